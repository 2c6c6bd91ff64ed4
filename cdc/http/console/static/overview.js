// The overview: why G is where it is, how far behind, how fast, and what happened last.

import { axis } from "./axis.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import { NOTHING, clock, count, perSecond, size, span } from "./format.js";
import { eventRow, noShape, panel, room, tile } from "./parts.js";
import { known } from "./state.js";

const HELD_SECONDS = 5; // a hold of so long is worth a colour
const LAG_WARNED = 256 * 2 ** 20;
const EVENTS_SHOWN = 5;
const CHART_GAP = 24;

export function overviewView() {
  const { status, curves, events } = known;
  const width = room();
  const columns = innerWidth > 1000 ? 4 : innerWidth > 720 ? 2 : 1; // as in the style sheet
  return [
    h("dl", { class: "tiles" }, tiles(status, curves)),
    status.shapes.length + status.births.length ? null : panel("Shapes", noShape()),
    panel("Why G is where it is", why(status), axis(status, width)),
    status.births.length ? panel("Being born", h("ul", { class: "births" }, status.births.map(birth))) : null,
    panel("Rates", h("div", { class: "charts" }, charts(curves, Math.floor((width - (columns - 1) * CHART_GAP) / columns)))),
    panel(
      "Last events",
      events.length
        ? h("ul", { class: "events" }, events.slice(0, EVENTS_SHOWN).map(eventRow))
        : h("p", { class: "empty" }, "Nothing has happened yet."),
      h("p", null, h("a", { href: "#/events" }, "All events")),
    ),
  ];
}

function tiles(status, curves) {
  const { slot, held_by: holder } = status;
  const living = status.shapes.filter((shape) => shape.state !== "ended");
  const stopped = living.filter((shape) => shape.fault).length;
  const pending = living.filter((shape) => shape.visible !== shape.durable).length;
  const lag = slot.unconfirmed_bytes;
  const seconds = holder?.seconds ?? 0;
  const received = curves.received_bytes_per_second.at(-1) ?? null;
  return [
    tile("Behind the server", size(lag), "WAL not confirmed", lag > LAG_WARNED ? "warning" : null),
    tile("Held for", span(seconds), holder ? `by ${holder.name}` : "nobody holds G", seconds > HELD_SECONDS ? "warning" : null),
    tile("Received", perSecond(size(received)), "WAL"),
    tile("Slot lasts", lasts(slot), `keeps ${size(slot.retained_bytes)}`, slot.loss ? "fault" : null),
    tile("Shapes", count(living.length), stopped ? `${stopped} stopped` : `${count(pending)} with something pending`, stopped ? "fault" : null),
  ];
}

/** How long until the slot is lost. */
export function lasts(slot) {
  if (!slot.exists) return NOTHING;
  if (slot.loss) return "lost";
  if (slot.safe_wal_bytes === null) return "no limit";
  return slot.seconds_left === null ? "at rest" : span(slot.seconds_left);
}

function why(status) {
  const holder = status.held_by;
  const isCalm = holder === null && status.connection.is_up;
  const kind = isCalm ? "ok" : holder !== null && holder.seconds > HELD_SECONDS ? "warning" : "busy";
  return h(
    "p",
    { class: `why ${kind}` },
    status.explanation,
    holder?.committed_at ? h("span", { class: "remark" }, ` It was committed at ${clock(Date.parse(holder.committed_at))}.`) : null,
  );
}

function birth(one) {
  const words = [one.step, one.attempt > 1 ? `attempt ${one.attempt}` : null, one.reason, `${count(one.rows)} rows, ${size(one.bytes)}`];
  return h(
    "li",
    null,
    h("strong", null, one.name ?? one.table),
    h("span", { class: "remark" }, words.filter(Boolean).join(" · ")),
    one.share === null ? null : h("progress", { max: 1, value: one.share, "aria-label": "copied" }),
    one.waits_for.map((text, index) => h("p", { class: "hint" }, `waits for ${text}`, one.mend[index] ? ` · ${one.mend[index]}` : null)),
  );
}

function charts(curves, width) {
  const draw = (name, column, words) => chart({ name, times: curves.at, values: curves[column], words, width });
  return [
    draw("Behind the server", "lag_bytes", size),
    draw("Received", "received_bytes_per_second", (value) => perSecond(size(value))),
    draw("Written to disk", "flushed_bytes_per_second", (value) => perSecond(size(value))),
    draw("Read by subscribers", "read_rows_per_second", (value) => perSecond(value === null ? NOTHING : `${count(value)} rows`)),
  ];
}
