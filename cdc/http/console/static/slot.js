// The slot: what it costs the server, how much room is left, how long that lasts.

import { chart } from "./chart.js";
import { h, s } from "./dom.js";
import { perSecond, size, span } from "./format.js";
import { lasts } from "./overview.js";
import { facts, panel, room } from "./parts.js";
import { known } from "./state.js";

const WARNED = 0.5; // of the budget

export function slotView() {
  const { status, curves } = known;
  const { slot } = status;
  const width = room();
  const kind = slot.loss || !slot.exists ? "fault" : slot.wal_status === "reserved" ? "ok" : "warning";
  return [
    panel(
      `Slot ${slot.name}`,
      h("p", { class: `why ${kind}` }, slot.explanation ?? "The server was not asked yet."),
      slot.exists ? budget(slot, width) : null,
      facts([
        ["State", slot.wal_status ? h("span", { class: `pill ${kind}` }, slot.wal_status) : null],
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
    panel("WAL kept for the slot", chart({ name: "Kept", times: curves.at, values: curves.retained_bytes, words: size, width })),
    panel("The connection", connection(status)),
  ];
}

function budget(slot, width) {
  if (slot.safe_wal_bytes === null) {
    const setting = h("code", null, "max_slot_wal_keep_size");
    return h("p", { class: "hint" }, "The server sets no limit (", setting, " is -1): a slot that nobody reads can fill its disk.");
  }
  const room = Math.max(slot.safe_wal_bytes, 0);
  const total = (slot.retained_bytes ?? 0) + room;
  const share = total ? (slot.retained_bytes ?? 0) / total : 0;
  const words = `${size(slot.retained_bytes)} of ${size(total)} used, ${size(room)} left`;
  const left = slot.seconds_left === null ? "" : `; ${span(slot.seconds_left)} at the present rate`;
  return h(
    "div",
    { class: "budget" },
    s(
      "svg",
      { viewBox: `0 0 ${width} 14`, width, height: 14, role: "img", "aria-label": `WAL budget: ${words}` },
      s("rect", { class: "kept", width, height: 14, rx: 4 }),
      s("rect", { class: share > WARNED ? "used warned" : "used", width: Math.max(share * width, 3), height: 14, rx: 4 }),
    ),
    h("p", { class: "remark" }, words, left),
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
