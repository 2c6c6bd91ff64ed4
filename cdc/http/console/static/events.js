// The last events of the program's own log, with what can be done about them.

import { h } from "./dom.js";
import { eventRow, panel } from "./parts.js";
import { known, listeners } from "./state.js";

const CHOICES = {
  all: () => true,
  warnings: (event) => event.level !== "info",
  errors: (event) => event.level === "error" || event.level === "critical",
};

let chosen = "all";

export function eventsView() {
  const found = known.events.filter(CHOICES[chosen]);
  return panel(
    "Events",
    h("div", { class: "filters", role: "group", "aria-label": "Which events" }, Object.keys(CHOICES).map(choice)),
    found.length
      ? h("ul", { class: "events" }, found.map(eventRow))
      : h("p", { class: "empty" }, chosen === "all" ? "Nothing has happened yet." : `No ${chosen} are remembered.`),
    h("p", { class: "remark" }, "The last 200 since the start of the program, the newest first. The program's own log has all of them."),
  );
}

function choice(name) {
  const onclick = () => {
    chosen = name;
    listeners.changed();
  };
  const count = known.events.filter(CHOICES[name]).length;
  return h("button", { type: "button", "aria-pressed": String(name === chosen), onclick }, `${name} ${count}`);
}
