"use strict";
// Pages are whole without this. It adds downloads and copies to every page, and sorting and
// filtering to the index.

const words = JSON.parse(document.querySelector("main").dataset.words);

const button = (label, action, className = "tool") => {
  const made = document.createElement("button");
  made.type = "button";
  made.className = className;
  made.textContent = label;
  made.addEventListener("click", () => action(made));
  return made;
};

// Copying and downloading

// The old command asks nobody, also on a page from disk; the clipboard's own may ask or refuse.
const copy = async (text, pressed) => {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  pressed.focus();
  if (!copied) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      window.prompt("", text);
    }
  }
  const label = pressed.textContent;
  if (label === words.copied) return;
  pressed.textContent = words.copied;
  setTimeout(() => { pressed.textContent = label; }, 2000);
};

const download = (text, type, name, ending) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = `${name.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 80)}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

const plain = (text) => text.replace(/\s+/g, " ").trim();

const textOf = (cell) => {
  const clone = cell.cloneNode(true);
  clone.querySelectorAll("button.copy").forEach((other) => other.remove());
  clone.querySelectorAll("br").forEach((end) => end.replaceWith(" "));
  return plain(clone.textContent);
};

// The text of a cell by the names of its parts; "" is the name of what has none.
const partsOf = (cell) => {
  const clone = cell.cloneNode(true);
  const parts = { "": "" };
  for (const part of clone.querySelectorAll("[data-column]")) {
    const [key, text] = [part.dataset.column, part.title || plain(part.textContent)];
    parts[key] = parts[key] ? `${parts[key]}; ${text}` : text;
    part.remove();
  }
  parts[""] = textOf(clone);
  return parts;
};

// The shown rows of a table as texts, cells over several rows or columns repeated.
const grid = (table, read = textOf) => {
  const rows = [...table.rows].filter((row) => !row.hidden && !row.classList.contains("group"));
  const texts = rows.map(() => []);
  rows.forEach((row, y) => {
    let x = 0;
    for (const cell of row.cells) {
      while (texts[y][x] !== undefined) x += 1;
      for (let down = 0; down < cell.rowSpan && y + down < rows.length; down += 1) {
        for (let across = 0; across < cell.colSpan; across += 1) {
          texts[y + down][x + across] = read(cell);
        }
      }
    }
  });
  return texts;
};

// A text that a spreadsheet would take for a formula has an apostrophe before it.
const csvCell = (text) => {
  const tame = /^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.,]+( %)?$/.test(text) ? `'${text}` : text;
  return /[",\n]/.test(tame) ? `"${tame.replaceAll('"', '""')}"` : tame;
};
// Lines of a cell that are named, as its interval, have columns of their own. The mark at the
// beginning tells a spreadsheet that it is UTF-8.
const csv = (table) => {
  const [head, ...rows] = grid(table, partsOf);
  const names = head.map((_, x) => [...new Set(rows.flatMap((row) => Object.keys(row[x])))]);
  const heads = names.map((keys, x) => keys.map((key) => key ? `${head[x][""]}: ${key}` : head[x][""]));
  const values = rows.map((row) => names.flatMap((keys, x) => keys.map((key) => row[x][key] ?? "")));
  return `\ufeff${[heads.flat(), ...values].map((row) => row.map(csvCell).join(",")).join("\r\n")}\r\n`;
};

const markdown = (table) => {
  const line = (row) => `| ${row.map((text) => text.replace(/[\\|<]/g, "\\$&")).join(" | ")} |\n`;
  const [head, ...rows] = grid(table);
  return [head, head.map(() => "---"), ...rows].map(line).join("");
};

const tools = (after, ...buttons) => {
  const row = document.createElement("p");
  row.className = "tools";
  row.append(...buttons);
  after.after(row);
};

for (const svg of document.querySelectorAll("main figure > svg")) {
  const figure = svg.parentElement;
  const name = figure.getAttribute("aria-label") || document.title;
  const text = () => new XMLSerializer().serializeToString(svg);
  tools(figure, button(words.svg, () => download(text(), "image/svg+xml", name, "svg")));
}

for (const table of document.querySelectorAll("main table")) {
  const name = table.caption?.textContent || document.title;
  tools(
    table.closest(".scroll") || table,
    button(words.csv, () => download(csv(table), "text/csv", name, "csv")),
    button(words.markdown, (pressed) => copy(markdown(table), pressed)),
  );
}

for (const command of document.querySelectorAll("main pre.command")) {
  tools(command, button(words.command, (pressed) => copy(command.textContent.trim(), pressed)));
}

for (const pressed of document.querySelectorAll("button.copy")) {
  pressed.hidden = false;
  pressed.addEventListener("click", () => copy(pressed.dataset.copies, pressed));
}

// Sorting and filtering, both kept in the address: #filter=…&model=…&sort=…

for (const controls of document.querySelectorAll("[data-controls]")) {
  const table = document.getElementById(controls.dataset.controls);
  const input = controls.querySelector("input");
  const status = controls.querySelector("[role=status]");
  const heads = [...table.tHead.rows[0].cells];
  const groups = [...table.tBodies].map((body) => [body, [...body.rows].slice(1)]);
  const rows = groups.flatMap(([, members]) => members);
  const texts = rows.map((row) =>
    `${[...row.cells].map(textOf).join(" ")} ${Object.values(row.dataset).join(" ")}`.toLowerCase());
  const chips = [];
  let state = new URLSearchParams();

  const matches = (text, word) =>
    /^\d+$/.test(word) ? text.split(/\s+/).includes(word) : text.includes(word);

  const filter = () => {
    const wanted = (state.get("filter") || "").toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, i) => {
      const chosen = heads.every(({ dataset: { facet } }) =>
        !facet || !state.has(facet) || state.getAll(facet).includes(row.dataset[facet]));
      row.hidden = !chosen || !wanted.every((word) => matches(texts[i], word));
    });
    const shown = rows.filter((row) => !row.hidden).length;
    const told = shown ? status.dataset.shown : status.dataset.none;
    status.textContent = told.replace("{shown}", shown).replace("{all}", rows.length);
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
    history.replaceState(null, "", kept ? `#${kept}` : location.pathname + location.search);
    show();
  };

  // Without a "=" it is a part of the page, as #audits: the rows stay, and so do the words for
  // them in the address, for a reload and for the other language.
  const restore = () => {
    const fragment = location.hash.slice(1);
    if (!fragment || fragment.includes("=")) {
      const known = ["filter", "sort", ...heads.map((head) => head.dataset.facet).filter(Boolean)];
      const pairs = [...new URLSearchParams(fragment)];
      state = new URLSearchParams(pairs.filter(([name]) => known.includes(name)));
    } else if (String(state)) {
      history.replaceState(null, "", `#${state}`);
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

// The other language shows the same rows.
for (const link of document.querySelectorAll(".languages a")) {
  link.addEventListener("click", () => { link.hash = location.hash; });
}
