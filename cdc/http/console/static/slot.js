// The slot: what it costs the server and who holds it, how much room is left, what is done before that is used up.

import { chart } from "./chart.js";
import { h, s } from "./dom.js";
import { perSecond, size } from "./format.js";
import { lasts } from "./overview.js";
import { facts, panel, room, told } from "./parts.js";
import { known } from "./state.js";

const BAR = 14;
const STEPS = {
  calm: ["ok", "calm"],
  alert: ["warning", "alert"],
  pause: ["warning", "snapshots pause"],
  end: ["fault", "the holder ends"],
};

export function slotView() {
  const { status, curves } = known;
  const { slot } = status;
  const width = room();
  const state = slot.loss || !slot.exists ? "fault" : slot.wal_status === "reserved" ? "ok" : "warning";
  const kind = state === "ok" && (status.insurance?.step ?? "calm") !== "calm" ? "warning" : state;
  return [
    panel(
      `Slot ${slot.name}`,
      h("p", { class: `why ${kind}` }, told(slot.explanation ?? "The server was not asked yet.")),
      slot.holder ? custody(slot) : null,
      facts([
        ["State", slot.wal_status ? h("span", { class: `pill ${state}` }, slot.wal_status) : null],
        ["Lasts", lasts(slot)],
        ["Keeps", `${size(slot.retained_bytes)} of WAL`],
        ["Not confirmed", size(slot.unconfirmed_bytes)],
        ["The server writes", perSecond(size(slot.wal_bytes_per_second))],
        ["Restart", code(slot.restart_lsn)],
        ["Confirmed", code(slot.confirmed_flush_lsn)],
        ["WAL end", code(slot.wal_end)],
        ["Walsender", slot.active_pid ? `process ${slot.active_pid}` : slot.exists ? "none: nobody reads the slot" : null],
      ]),
    ),
    status.insurance === null || !slot.exists ? null : panel("Slot insurance", insured(slot, status.insurance, width)),
    panel("WAL kept for the slot", chart({ name: "Kept", times: curves.at, values: curves.retained_bytes, words: size, width })),
    panel("The connection", connection(status)),
  ];
}

function custody(slot) {
  const words = [
    ["Held by", slot.holder],
    ["Freed by", h("span", null, told(slot.freed_by))],
  ];
  return facts(words, "long");
}

function insured(slot, insurance, width) {
  if (insurance.budget_bytes === null) {
    const settings = ["max_slot_wal_keep_size", "--wal-budget"].map((name) => h("code", null, name));
    return h("p", { class: "hint" }, "Nothing bounds the slot: the server's ", settings[0], " is -1, and no ", settings[1], " was given. If it is read no more, its WAL fills the server's disk.");
  }
  const [kind, words] = STEPS[insurance.step];
  return [
    h("p", { class: `why ${kind}` }, h("span", { class: `pill ${kind}` }, words), " ", insurance.explanation),
    bar(slot.retained_bytes ?? 0, insurance, width),
  ];
}

/** What is kept of the budget, and where the steps are. */
function bar(kept, insurance, width) {
  const share = Math.min(kept / insurance.budget_bytes, 1);
  const steps = Object.entries(insurance.steps);
  const words = `${size(kept)} of ${size(insurance.budget_bytes)} used`;
  return h(
    "div",
    { class: "budget" },
    s(
      "svg",
      { viewBox: `0 0 ${width} ${BAR}`, width, height: BAR, role: "img", "aria-label": `WAL budget: ${words}` },
      s("rect", { class: "kept", width, height: BAR, rx: 4 }),
      s("rect", { class: insurance.step === "calm" ? "used" : "used warned", width: Math.max(share * width, 3), height: BAR, rx: 4 }),
      steps.map(([, percent]) => s("line", { class: "step", x1: (percent / 100) * width, x2: (percent / 100) * width, y2: BAR })),
    ),
    h("p", { class: "remark" }, [words, ...steps.map(([step, percent]) => `${STEPS[step][1]} at ${percent} %`)].join(" · ")),
  );
}

function connection(status) {
  const { connection: one } = status;
  return facts([
    ["Postgres", h("code", null, status.server)],
    ["Connected", one.is_up ? "yes" : "no"],
    ["Connections so far", one.made],
    ["Data folder", h("code", null, status.data_dir)],
    ["Process", status.pid],
    ["Started", new Date(status.started_at).toLocaleString("en-CA", { hour12: false })],
  ]);
}

const code = (text) => (text ? h("code", null, text) : null);
