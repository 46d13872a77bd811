"use strict";
// Sorting and filtering; the address keeps both: #filter=…&model=…&sort=…

for (const controls of document.querySelectorAll("[data-controls]")) {
  const table = document.getElementById(controls.dataset.controls);
  const input = controls.querySelector("input");
  const status = controls.querySelector("[role=status]");
  const heads = [...table.tHead.rows[0].cells];
  const groups = [...table.tBodies].map((body) => [body, [...body.rows].slice(1)]);
  const rows = groups.flatMap(([, members]) => members);
  // A row as the filter reads it, "batch 8 | input dali | …", also without spaces beside numbers.
  const labels = heads.map((head) => [...new Set([head.dataset.key, textOf(head).toLowerCase()])]);
  const texts = rows.map((row) => {
    const cells = [...row.cells].flatMap((cell, x) => labels[x].map((label) => `${label} ${textOf(cell)}`));
    return [...cells, ...Object.values(row.dataset)].join(" | ").toLowerCase();
  });
  const closed = texts.map((text) => text.replace(/(?<=\d) (?=[^\d|])|(?<=[^\d|]) (?=\d)/g, ""));
  const chips = [];
  let state = new URLSearchParams();

  // A word is part of a text; one with a number also where the text has a space beside the number,
  // which is a whole one: 64px finds "64 px", not "164 px".
  const matches = (i, word) => {
    if (/^\d+$/.test(word)) return texts[i].split(/\s+/).includes(word);
    if (texts[i].includes(word)) return true;
    const literal = word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
    return /\d/.test(word) && new RegExp(`(?<![\\d.,])${literal}(?!\\d)`).test(closed[i]);
  };

  // Words of the filter; "batch 8" and "64 px" are a word each, if a row has them side by side.
  const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean).reduce((found, word) => {
    const last = found.at(-1) ?? "";
    const pair = last + word;
    const isPair = last && /^(\d[\d.,]*\D+|\D+\d[\d.,]*)$/.test(pair);
    if (isPair && (labels.flat().includes(last) || rows.some((_, i) => matches(i, pair)))) {
      return [...found.slice(0, -1), pair];
    }
    return [...found, word];
  }, []);

  const filter = () => {
    const wanted = wordsOf(state.get("filter") || "");
    rows.forEach((row, i) => {
      const chosen = heads.every(({ dataset: { facet } }) =>
        !facet || !state.has(facet) || state.getAll(facet).includes(row.dataset[facet]));
      row.hidden = !chosen || !wanted.every((word) => matches(i, word));
    });
    const shown = rows.filter((row) => !row.hidden).length;
    const message = shown ? status.dataset.shown : status.dataset.none;
    status.textContent = message.replace("{shown}", shown).replace("{all}", rows.length);
    for (const heading of table.querySelectorAll("tr.group")) {
      const members = [...heading.parentElement.rows].slice(1);
      heading.hidden = members.every((row) => row.hidden);
    }
  };

  // Rows without a value come last in both directions; units are never mixed.
  const sort = () => {
    const [, key, down] = (state.get("sort") || "").match(/^(\w+)(-down)?$/) || [];
    const column = heads.findIndex((head) => head.dataset.key === key);
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    for (const body of [...table.tBodies]) body.remove();
    if (column < 0) {
      for (const [body, members] of groups) {
        body.append(...members);
        table.append(body);
      }
      return;
    }
    const head = heads[column];
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.sorts ?? textOf(row.cells[column]);
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (!x || !y) return !x - !y;
      const found = head.dataset.sort === "number" ? x - y : x.localeCompare(y);
      return down ? -found : found;
    };
    const unit = (row) => row.dataset[head.dataset.within] || "";
    for (const shared of [...new Set(rows.map(unit))].sort()) {
      const body = groups[0][0].cloneNode();
      const heading = groups[0][0].rows[0].cloneNode(true);
      heading.cells[0].textContent = shared;
      body.append(shared ? heading : "", ...rows.filter((row) => unit(row) === shared).sort(order));
      table.append(body);
    }
  };

  const show = () => {
    input.value = state.get("filter") || "";
    for (const { chip, facet, name } of chips) {
      chip.setAttribute("aria-pressed", state.getAll(facet).includes(name));
    }
    sort();
    filter();
  };

  const change = (name, values) => {
    state.delete(name);
    for (const text of values) if (text) state.append(name, text);
    const kept = String(state);
    history.replaceState(null, "", kept ? `${here}#${kept}` : here);
    show();
  };

  // A fragment without "=" is a section, such as #audits: rows and address keep their state, for
  // a reload and for the other language.
  const restore = () => {
    const fragment = location.hash.slice(1);
    if (!fragment || fragment.includes("=")) {
      const known = ["filter", "sort", ...heads.map((head) => head.dataset.facet).filter(Boolean)];
      const pairs = [...new URLSearchParams(fragment)];
      state = new URLSearchParams(pairs.filter(([name]) => known.includes(name)));
    } else if (String(state)) {
      history.replaceState(null, "", `${here}#${state}`);
    }
    show();
  };

  heads.forEach((head, column) => {
    const { key, facet } = head.dataset;
    const next = { ascending: `${key}-down`, descending: "" };
    const label = head.textContent;
    head.replaceChildren(button(label, () =>
      change("sort", [next[head.getAttribute("aria-sort")] ?? key]), "sort"));
    if (!facet) return;
    const cells = rows.map((row) => [row.dataset[facet], row.cells[column].firstElementChild]);
    const names = new Map(cells.filter(([name]) => name).map(([name, cell]) => [name, cell.textContent]));
    if (names.size < 2) return;
    const field = document.createElement("span");
    field.className = "chips";
    field.setAttribute("role", "group");
    field.setAttribute("aria-label", label);
    field.append(`${label} `);
    for (const [name, text] of names) {
      const chip = button(text, () => {
        const chosen = state.getAll(facet);
        const others = chosen.filter((other) => other !== name);
        change(facet, others.length < chosen.length ? others : [...chosen, name]);
      }, "chip");
      chips.push({ chip, facet, name });
      field.append(chip);
    }
    controls.append(field);
  });
  controls.append(button(controls.dataset.clear, () => {
    state = new URLSearchParams();
    change("filter", []);
  }));

  input.addEventListener("input", () => change("filter", [input.value]));
  window.addEventListener("hashchange", restore);
  controls.hidden = false;
  restore();
}

// The page in the other language shows the same rows.
for (const link of document.querySelectorAll(".languages a")) {
  link.addEventListener("click", () => { link.hash = location.hash; });
}
