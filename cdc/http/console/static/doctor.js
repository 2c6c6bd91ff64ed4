// The doctor: is the Postgres server fit to be followed, and which statement mends what is not.

import { h } from "./dom.js";
import { clock } from "./format.js";
import { copyable, levelPill, panel } from "./parts.js";
import { examine, known } from "./state.js";

const GRAVITY = ["fault", "warning", "info"];

export function doctorView() {
  const { findings, fit, error, at, isAsking } = known.doctor;
  const button = h(
    "button",
    { type: "button", class: "primary", disabled: isAsking, onclick: examine },
    isAsking ? "Asking …" : "Check again",
  );
  return panel(
    "Doctor",
    h("p", { class: "filters" }, button, h("span", { class: "remark" }, at === null ? "" : `as of ${clock(at)}`)),
    error === null ? null : refusal(error),
    findings === null ? (isAsking ? h("p", { class: "empty" }, "Asking the server; this takes a second.") : null) : told(findings, fit),
  );
}

function refusal(error) {
  return h("div", { class: "why fault" }, h("p", null, error.message), error.hint ? h("p", { class: "hint" }, error.hint) : null);
}

function told(findings, fit) {
  const well = findings.filter((one) => one.level === "ok").map((one) => one.check);
  const rest = findings
    .filter((one) => one.level !== "ok")
    .sort((one, other) => GRAVITY.indexOf(one.level) - GRAVITY.indexOf(other.level));
  return [
    h("p", { class: `why ${fit ? "ok" : "fault"}` }, fit ? "The server is fit to be followed." : "The server is not fit to be followed yet."),
    h("ul", { class: "events" }, rest.map(finding)),
    well.length ? h("p", { class: "remark" }, `All is well with ${well.join(", ")}.`) : null,
  ];
}

function finding(one) {
  return h(
    "li",
    { class: `event ${one.level}` },
    h("p", { class: "event-head" }, levelPill(one.level), h("code", null, one.check)),
    h("p", null, one.text),
    one.mend.length ? copyable(one.mend.join("\n")) : null,
  );
}
