"use strict";
// Tables can be read without this; it adds sorting, filtering and copying.

const cellValue = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.sorts ?? cell.textContent.trim().toLowerCase();
};

const compare = (a, b) => {
  const [x, y] = [Number(a), Number(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
};

for (const table of document.querySelectorAll("table.index")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => compare(cellValue(a, column), cellValue(b, column)) * (up ? 1 : -1));
      table.tBodies[0].append(...rows);
    });
  });
}

for (const input of document.querySelectorAll("[data-filters]")) {
  const rows = [...document.getElementById(input.dataset.filters).tBodies[0].rows];
  const count = document.querySelector(`[data-counts="${input.dataset.filters}"]`);
  const texts = rows.map((row) => {
    const copy = row.cloneNode(true);
    copy.querySelectorAll("button").forEach((button) => button.remove());
    return copy.textContent.toLowerCase();
  });
  const has = (text, word) =>
    /^\d+$/.test(word) ? text.split(/\s+/).includes(word) : text.includes(word);
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, i) => { row.hidden = !words.every((word) => has(texts[i], word)); });
    const shown = rows.filter((row) => !row.hidden).length;
    count.textContent = count.dataset.says.replace("{shown}", shown).replace("{all}", rows.length);
  };
  input.addEventListener("input", filter);
  input.closest("[hidden]").hidden = false;
  filter();
}

// The old command asks nobody, also on a page from disk; the clipboard's own may ask or refuse.
const copy = async (text) => {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (copied) return;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    window.prompt("", text);
  }
};

for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  const says = button.textContent;
  button.addEventListener("click", async () => {
    await copy(button.dataset.copies);
    button.textContent = button.dataset.done;
    button.focus();
    setTimeout(() => { button.textContent = says; }, 2000);
  });
}
