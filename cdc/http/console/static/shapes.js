// All shapes: searched, sorted, a page of them.

import { h } from "./dom.js";
import { count, rate, size } from "./format.js";
import { linkTo, nameOf, noShape, panel, statePill } from "./parts.js";
import { known, listeners } from "./state.js";

const SHOWN_MAX = 200;
const ORDERS = {
  name: (one, other) => nameOf(one).localeCompare(nameOf(other)),
  size: (one, other) => (other.bytes ?? -1) - (one.bytes ?? -1) || ORDERS.name(one, other),
  changes: (one, other) => (other.changes_per_second ?? -1) - (one.changes_per_second ?? -1) || ORDERS.name(one, other),
  readers: (one, other) => (other.readers ?? -1) - (one.readers ?? -1) || ORDERS.name(one, other),
  rows: (one, other) => (other.rows ?? -1) - (one.rows ?? -1) || ORDERS.name(one, other),
};

const asked = { text: "", order: "name" };

export function shapesView() {
  const all = known.status.shapes;
  if (!all.length) return panel("Shapes", noShape());
  const words = asked.text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((shape) => words.every((word) => textOf(shape).includes(word))).sort(ORDERS[asked.order]);
  const more = found.length - SHOWN_MAX;
  return panel(
    "Shapes",
    h("div", { class: "filters" }, searchBox(), orderBox(), h("span", { class: "remark", role: "status" }, `${count(found.length)} of ${count(all.length)}`)),
    found.length
      ? h("table", { class: "shapes" }, heads(), h("tbody", null, found.slice(0, SHOWN_MAX).map(row)))
      : h("p", { class: "empty" }, "No shape is like that."),
    more > 0 ? h("p", { class: "remark" }, `${count(more)} more: search for less.`) : null,
  );
}

function searchBox() {
  const oninput = (event) => {
    asked.text = event.target.value;
    listeners.changed();
  };
  return h("input", {
    id: "search",
    type: "search",
    placeholder: "Name, table, where, handle, state",
    "aria-label": "Search the shapes",
    "aria-keyshortcuts": "/",
    value: asked.text,
    autocomplete: "off",
    spellcheck: "false",
    oninput,
  });
}

function orderBox() {
  const onchange = (event) => {
    asked.order = event.target.value;
    listeners.changed();
  };
  const option = (name) => h("option", { value: name, selected: name === asked.order }, `by ${name}`);
  return h("select", { "aria-label": "Order", onchange }, Object.keys(ORDERS).map(option));
}

function heads() {
  const head = (text, kind) => h("th", { scope: "col", class: kind }, text);
  return h(
    "thead",
    null,
    h(
      "tr",
      null,
      head("Shape"),
      head("Definition", "wide"),
      head("State"),
      head("Readers", "number wide"),
      head("Changes", "number wide"),
      head("Rows", "number wide"),
      head("Log", "number"),
    ),
  );
}

function row(shape) {
  return h(
    "tr",
    { "data-key": shape.handle },
    h("td", null, h("a", { href: linkTo(shape) }, nameOf(shape)), h("span", { class: "definition narrow" }, plain(definition(shape))), h("span", { class: "remark narrow" }, use(shape))),
    h("td", { class: "definition wide" }, plain(definition(shape))),
    h("td", null, statePill(shape)),
    h("td", { class: "number wide" }, count(shape.readers)),
    h("td", { class: "number wide" }, rate(shape.changes_per_second)),
    h("td", { class: "number wide" }, count(shape.rows)),
    h("td", { class: "number" }, size(shape.bytes)),
  );
}

/** Who reads it and how fast it changes, for those who have no room for columns. */
const use = (shape) => `${count(shape.readers)} ${shape.readers === 1 ? "reader" : "readers"} · ${rate(shape.changes_per_second)} changes`;

/** What a shape has of its table, as SQL. */
export function definition(shape) {
  const columns = shape.columns === null ? "*" : shape.columns.join(", ");
  return `SELECT ${columns} FROM ${shape.table}${shape.where ? ` WHERE ${shape.where}` : ""}`;
}

/** A definition without what Postgres needs and people do not: schemas of its own operators and types, quotes. */
function plain(sql) {
  const part = (text) =>
    text
      .replace(/OPERATOR\(pg_catalog\.([^)]+)\)/g, "$1")
      .replace(/pg_catalog\./g, "")
      .replace(/"([a-z_][a-z0-9_]*)"/g, "$1");
  return sql.split(/('(?:[^']|'')*')/).map((text, index) => (index % 2 ? text : part(text))).join("");
}

function textOf(shape) {
  return [shape.name, shape.handle, definition(shape), plain(definition(shape)), shape.state, shape.fault ? "stopped" : ""].join(" ").toLowerCase();
}
