"use strict";
/* Sorting and searching of tables, tooltips of figures, and dark colours. */

const made = (tag, properties) => Object.assign(document.createElement(tag), properties);

/* ---- colours ---- */
const root = document.documentElement;
const wantsDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme || (wantsDark.matches ? "dark" : "light")) === "dark";
const theme = made("button", { type: "button", className: "theme" });
const nameTheme = () => { theme.textContent = isDark() ? "Light colours" : "Dark colours"; };
theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); });
wantsDark.addEventListener("change", nameTheme);
nameTheme();
document.querySelector("nav").append(theme);

/* ---- sorting ---- */
const orderOf = cell => {
  const words = cell.tagName === "TH" ? cell : cell.firstChild;  // without the small print
  const text = words?.textContent ?? "";
  const number = parseFloat(text.replace(/[,\s]/g, "").replace("−", "-").replace(/^p[<=]/, ""));
  return { text: cell.textContent.trim(), number };
};
const compareCells = (one, other) => {
  const numbers = [one.number, other.number].map(Number.isNaN);
  if (!numbers[0] && !numbers[1]) return one.number - other.number;
  if (numbers[0] !== numbers[1]) return numbers[0] ? 1 : -1;
  return one.text.localeCompare(other.text, undefined, { numeric: true });
};
const sortBy = (table, heading) => {
  const column = heading.cellIndex, body = table.tBodies[0];
  const down = heading.getAttribute("aria-sort") === "ascending";
  const rows = [...body.rows].map((row, place) => ({ row, place, order: orderOf(row.cells[column]) }));
  rows.sort((a, b) => (down ? -1 : 1) * compareCells(a.order, b.order) || a.place - b.place);
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows.map(found => found.row));
};
for (const table of document.querySelectorAll(".scroll > table")) {
  if (table.tBodies[0].rows.length < 2) continue;
  for (const heading of table.tHead.rows[0].cells) {
    const button = made("button", { type: "button", className: "sort" });
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sortBy(table, heading));
  }
}

/* ---- search ---- */
const ON_A_SCREEN = 20;  // rows of some 36 pixels fill the 720 or so that a laptop's browser shows: fewer are seen at once
const plain = text => text.toLowerCase().replace(/\s+/g, " ").trim();  // also the spaces that do not break
for (const box of document.querySelectorAll(".scroll")) {
  const rows = [...box.querySelectorAll("tbody tr")];
  if (rows.length <= ON_A_SCREEN) continue;
  const field = made("input", { type: "search", placeholder: `Search ${rows.length} rows`, className: "search" });
  field.setAttribute("aria-label", "Search the table below");
  field.addEventListener("input", () => {
    const wanted = plain(field.value);
    for (const row of rows) row.hidden = ![...row.cells].some(cell => plain(cell.textContent).includes(wanted));
  });
  box.before(field);
}

/* ---- tooltips of figures ---- */
const NEAR = 26;
const tip = made("div", { className: "tip", hidden: true });
tip.setAttribute("role", "status");
document.body.append(tip);
const show = (image, spots, event) => {
  const frame = image.getBoundingClientRect();
  let nearest = null, least = NEAR;
  for (const [x, y, words] of spots) {
    const distance = Math.hypot(frame.left + x * frame.width - event.clientX, frame.top + y * frame.height - event.clientY);
    if (distance < least) { least = distance; nearest = words; }
  }
  tip.hidden = nearest === null;
  if (nearest === null) return;
  tip.textContent = nearest;
  const left = Math.min(event.clientX + 14, root.clientWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${event.clientY + 18}px`;
};
for (const image of document.querySelectorAll("img[data-spots]")) {
  const spots = JSON.parse(image.dataset.spots);
  image.addEventListener("pointermove", event => show(image, spots, event));
  image.addEventListener("pointerdown", event => show(image, spots, event));
  image.addEventListener("pointerleave", () => { tip.hidden = true; });
}
