"use strict";
// Pages are complete without this script. It adds buttons for downloads and copies, and lets links
// work in JupyterLab.

const words = JSON.parse(document.querySelector("main").dataset.words);

const button = (label, action, className = "tool") => {
  const made = document.createElement("button");
  made.type = "button";
  made.className = className;
  made.textContent = label;
  made.addEventListener("click", () => action(made));
  return made;
};

// Links in JupyterLab

// Jupyter sends a file to a page only if the address has its key `_xsrf`. A page that was opened
// with the key passes it on to links of the same server. In JupyterLab's viewer, a frame with the
// address in its `base` element, links open in browser tabs.
const here = location.href.split("#")[0];
const page = new URL(document.baseURI);
const key = page.searchParams.get("_xsrf");
for (const link of key ? document.querySelectorAll("a[href]") : []) {
  const href = link.getAttribute("href");
  if (href.startsWith("#")) {
    link.href = here + href;
    continue;
  }
  if (link.origin === page.origin) {
    const address = new URL(link.href);
    address.searchParams.set("_xsrf", key);
    link.href = address;
  }
  if (window !== window.top) link.target = "_blank";
}

// On narrow screens, the list of sections is folded.
for (const list of document.querySelectorAll(".sections details")) {
  list.open = matchMedia("(min-width: 40rem)").matches;
}

// Copying and downloading

// execCommand needs no permission, even on a page from disk; navigator.clipboard may be refused.
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
  clone.querySelectorAll("br").forEach((end) => end.replaceWith(" "));
  return plain(clone.textContent);
};

// Text of a cell by the names of its parts; "" is the key of text outside named parts.
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

// Text of a table's visible rows.
const grid = (table, read = textOf) => [...table.rows]
  .filter((row) => !row.hidden && !row.classList.contains("group"))
  .map((row) => [...row.cells].map((cell) => read(cell)));

// An apostrophe precedes text that a spreadsheet would take for a formula.
const csvCell = (text) => {
  const tame = /^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.,]+( %)?$/.test(text) ? `'${text}` : text;
  return /[",\n]/.test(tame) ? `"${tame.replaceAll('"', '""')}"` : tame;
};
// Named parts of a cell, such as its interval, become columns. A byte order mark tells
// spreadsheets that the text is UTF-8.
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

// JupyterLab's server allows pages no downloads.
for (const svg of key ? [] : document.querySelectorAll("main figure:not(.narrow) > svg")) {
  const figure = svg.parentElement;
  const name = figure.getAttribute("aria-label") || document.title;
  const text = () => new XMLSerializer().serializeToString(svg);
  tools(figure, button(words.svg, () => download(text(), "image/svg+xml", name, "svg")));
}

for (const table of document.querySelectorAll("main table")) {
  const name = table.caption?.textContent || document.title;
  const inFile = button(words.csv, () => download(csv(table), "text/csv", name, "csv"));
  const copied = button(words.markdown, (pressed) => copy(markdown(table), pressed));
  tools(table.closest(".scroll") || table, ...(key ? [copied] : [inFile, copied]));
}

for (const command of document.querySelectorAll("main pre.command")) {
  tools(command, button(words.command, (pressed) => copy(command.textContent.trim(), pressed)));
}
