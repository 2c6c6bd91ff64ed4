// Pieces that several views have.

import { h } from "./dom.js";
import { clock, count } from "./format.js";

const STATE_KINDS = { ready: "ok", copying: "busy", rebased: "ok", ended: "off" };
const LEVEL_KINDS = { ok: "ok", info: "busy", warning: "warning", error: "fault", critical: "fault", fault: "fault" };

const PANEL_SIDES = 34; // its padding and borders
const ROOM_LEAST = 240; // a window that is being made has no width yet

/** How wide a picture in a panel may be. */
export function room() {
  const main = document.getElementById("main");
  return Math.max(main.clientWidth - 2 * parseFloat(getComputedStyle(main).paddingLeft) - PANEL_SIDES, ROOM_LEAST);
}

/** A panel with a title. */
export function panel(title, ...children) {
  return h("section", { class: "panel" }, h("h2", null, title), children);
}

/** A number with its name, and a remark. */
export function tile(name, value, remark, kind) {
  return h(
    "div",
    { class: `tile ${kind ?? ""}` },
    h("dt", null, name),
    h("dd", null, value),
    remark ? h("dd", { class: "remark" }, remark) : null,
  );
}

/** Names and values, one below the other; those without a value are left out. Long ones have a line to themselves. */
export function facts(pairs, kind = "") {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: `facts ${kind}` },
    known.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}

/** A sentence with its commands, which stand between backticks. */
export const told = (text) => text.split("`").map((part, index) => (index % 2 ? h("code", null, part) : part));

export function statePill(shape) {
  const [kind, text] = shape.fault ? ["fault", "stopped"] : [STATE_KINDS[shape.state] ?? "off", shape.state];
  return h("span", { class: `pill ${kind}` }, text);
}

export function levelPill(level) {
  return h("span", { class: `pill ${LEVEL_KINDS[level] ?? "off"}` }, level);
}

/** What an empty system wants. */
export function noShape() {
  return h("p", { class: "empty" }, "There is no shape yet. Add one: ", h("code", null, "shapelog shapes add TABLE"));
}

/** What people call a shape. */
export const nameOf = (shape) => shape.name ?? shape.handle;

/** Where a shape is shown. */
export const linkTo = (shape) => `#/shapes/${encodeURIComponent(shape.handle)}`;

export function eventRow(event) {
  const times = event.count > 1 ? ` · ${count(event.count)} times since ${clock(event.began_at * 1000)}` : "";
  return h(
    "li",
    { class: `event ${LEVEL_KINDS[event.level] ?? ""}` },
    h(
      "p",
      { class: "event-head" },
      h("time", null, clock(event.at * 1000)),
      levelPill(event.level),
      event.code ? h("code", null, event.code) : null,
      h("span", { class: "remark" }, event.source, times),
    ),
    h("p", null, event.text),
    event.hint ? h("p", { class: "hint" }, event.hint) : null,
  );
}

/** A statement or command, and a button that copies it. */
export function copyable(text) {
  const copy = async (event) => {
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "selected"; // a page without TLS may not write to the clipboard
    }
  };
  return h("div", { class: "copyable" }, h("pre", { tabindex: 0 }, text), h("button", { type: "button", onclick: copy }, "copy"));
}
