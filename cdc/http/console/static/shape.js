// One shape: what it is, how far it is, and its rows as they come.

import { h } from "./dom.js";
import { count, rate, size } from "./format.js";
import { facts, nameOf, panel, statePill } from "./parts.js";
import { definition } from "./shapes.js";
import { known } from "./state.js";
import { tail } from "./tail.js";

export function shapeView(handle) {
  const shape = known.status.shapes.find((one) => one.handle === handle || one.name === handle);
  if (!shape) return panel(handle, h("p", { class: "empty" }, "No living shape has this name or handle."), back());
  const holder = known.status.held_by;
  const holds = holder !== null && holder.handle === shape.handle;
  return [
    h("section", { class: "panel" }, h("h2", null, nameOf(shape), " ", statePill(shape)), about(shape, holds), back()),
    shape.state === "ended" ? null : panel("Rows as they come", tail(shape.handle)),
  ];
}

function about(shape, holds) {
  const isSettled = shape.visible === shape.durable;
  return [
    shape.fault ? h("p", { class: "why fault" }, shape.fault) : null,
    holds ? h("p", { class: "why warning" }, known.status.explanation) : null,
    h("pre", { class: "sql", tabindex: 0 }, definition(shape)),
    facts([
      ["Handle", h("code", null, shape.handle)],
      ["Key", shape.key.join(", ")],
      ["Readers", `${count(shape.readers)} at this moment`],
      ["Changes", `${rate(shape.changes_per_second)} over the last half minute`],
      ["Rows", count(shape.rows)],
      ["Log", `${size(shape.bytes)} in its own files`],
      ["V, visible", h("code", null, shape.visible ?? "not looked at")],
      ["D, durable", h("code", null, shape.durable ?? "not looked at")],
      ["Pending", shape.visible === null ? null : isSettled ? "nothing" : "from D to V"],
      ["Replica", shape.replica],
      ["Log mode", shape.log_mode],
      ["Ended because", shape.reason],
      ["Goes on as", shape.successor],
    ]),
  ];
}

const back = () => h("p", null, h("a", { href: "#/shapes" }, "All shapes"));
