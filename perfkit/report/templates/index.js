"use strict";
// Sorting by a column and filtering by words.

const measurements = document.getElementById("measurements");
const headings = [...measurements.tHead.rows[0].cells];
const rows = [...measurements.querySelectorAll("tbody tr:not(.group)")];

const filter = (text) => {
  const wanted = text.toLowerCase().split(/\s+/);
  for (const row of rows) {
    const content = row.textContent.toLowerCase();
    row.hidden = !wanted.every((word) => content.includes(word));
  }
  for (const group of measurements.querySelectorAll(".group")) {
    const members = [...group.parentElement.rows].slice(1);
    group.hidden = members.every((row) => row.hidden);
  }
};

// Rows of all models in one order; those without a value come last in both directions.
const sort = (heading) => {
  const column = headings.indexOf(heading);
  const descending = heading.ariaSort === "ascending";
  const value = ({ cells }) => cells[column].dataset.sorts ?? cells[column].textContent.trim();
  rows.sort((a, b) => {
    const [x, y] = descending ? [value(b), value(a)] : [value(a), value(b)];
    return x && y ? x.localeCompare(y) : !value(a) - !value(b);
  });
  const [body] = measurements.tBodies;
  body.replaceChildren(...rows);
  measurements.replaceChildren(measurements.tHead, body);
  for (const other of headings) other.ariaSort = null;
  heading.ariaSort = descending ? "descending" : "ascending";
};

for (const heading of headings) {
  heading.replaceChildren(button(heading.textContent, () => sort(heading), "sort"));
}
const box = document.querySelector(".filter");
box.addEventListener("input", (event) => filter(event.target.value));
box.hidden = false;
