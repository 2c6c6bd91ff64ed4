// Why G is where it is, as a picture: the slot, G and every shape along one axis of the WAL.
//
// The axis shows distances from the WAL's end, on a logarithmic scale: the last kilobyte and the gigabyte that a
// forgotten shape holds have room side by side. A shape that holds nothing back is durable up to where the stream is,
// whatever the place of its last row: its line goes on to there. And every shape is durable up to G at least: that is
// what G means. So a D that lies below is shown at G.

import { h, s } from "./dom.js";
import { lsn, lsnText, place, size, span } from "./format.js";
import { linkTo, nameOf } from "./parts.js";

const ROWS_MAX = 10;
const UNIT = 1024; // bytes of the scale's linear beginning
const LEAST = 64 * 1024; // what the axis shows at least
const ROW = 32;
const NARROW = 560;
const TICKS = [10, 15, 20, 25, 30, 35, 40].map((power) => 2 ** power);

/** The rows of the picture: who holds G first, then what is pending, the oldest first, then the rest. */
export function rowsOf(status) {
  const holder = status.held_by;
  const g = lsn(status.global_flushed_lsn);
  const living = status.shapes.filter((shape) => shape.state !== "ended");
  const rows = living.map((shape) => ({
    name: nameOf(shape),
    link: linkTo(shape),
    visible: place(shape.visible),
    durable: most(place(shape.durable), g),
    isKnown: shape.visible !== null,
    isPending: shape.visible !== shape.durable,
    isHolder: holder !== null && holder.handle !== null && shape.handle === holder.handle,
  }));
  if (holder !== null && !rows.some((row) => row.isHolder)) {
    rows.push({ name: holder.name, link: null, visible: null, durable: null, isKnown: true, isPending: true, isHolder: true });
  }
  const rank = (row) => (row.isHolder ? 0 : row.isPending ? 1 : row.isKnown ? 2 : 3);
  const byPlace = (one, other) => {
    const [a, b] = [one.durable ?? 0n, other.durable ?? 0n];
    if (a === b) return one.name < other.name ? -1 : 1;
    return rank(one) === 1 ? (a < b ? -1 : 1) : a < b ? 1 : -1;
  };
  return rows.sort((one, other) => rank(one) - rank(other) || byPlace(one, other));
}

/** The picture. */
export function axis(status, width) {
  const marks = {
    restart: lsn(status.slot.restart_lsn),
    confirmed: lsn(status.confirmed_flush_lsn),
    g: lsn(status.global_flushed_lsn),
    seen: lsn(status.seen_lsn),
    end: lsn(status.slot.wal_end),
  };
  const all = rowsOf(status);
  const rows = all.slice(0, ROWS_MAX);
  const places = [...Object.values(marks), ...rows.flatMap((row) => (row.isPending ? [row.visible, row.durable] : []))];
  const known = places.filter((one) => one !== null && one > 0n);
  if (!known.length) return h("p", { class: "empty" }, "Nothing was received yet.");
  const scale = scaleOf(known, width);
  const top = 46;
  const height = top + ROW * (rows.length + 1) + 26;
  const left = all.length - rows.length;
  return h(
    "figure",
    { class: "axis" },
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": spoken(status, rows) },
      ticks(scale, top, height),
      rows.map((row, index) => (row.isHolder ? band(index + 1, top, width) : null)),
      flags(scale, marks, top, height),
      slotRow(scale, marks, top),
      rows.map((row, index) => shapeRow(scale, row, marks, top + ROW * (index + 1), status.held_by)),
    ),
    h(
      "figcaption",
      { class: "legend" },
      legend("kept", "kept by the server for the slot"),
      legend("pending", "not on disk yet"),
      legend("visible", "V: readers see it up to here"),
      legend("durable", "D: on disk up to here"),
      legend("idle", "nothing pending"),
      left > 0 ? h("a", { href: "#/shapes" }, `and ${left.toLocaleString("en")} more shapes`) : null,
    ),
  );
}

function most(one, other) {
  return one === null || (other !== null && other > one) ? other : one;
}

function scaleOf(known, width) {
  const end = known.reduce((one, other) => (one > other ? one : other));
  const far = known.reduce((most, one) => Math.max(most, Number(end - one)), LEAST);
  const isNarrow = width < NARROW;
  const [from, until] = [isNarrow ? 8 : 170, width - 14];
  const x = (value) => {
    const behind = Math.min(Math.max(Number(end - value), 0), far);
    return until - (Math.log1p(behind / UNIT) / Math.log1p(far / UNIT)) * (until - from);
  };
  return { x, end, far, from, until, isNarrow };
}

function ticks({ x, end, far, until, from }, top, height) {
  const shown = TICKS.filter((behind) => behind <= far);
  const texts = shown.map((behind) => [x(end - BigInt(behind)), `−${size(behind).replace(".0", "")}`]);
  let free = until - 72; // the words at the end have their room
  return [
    s("line", { class: "floor", x1: from, x2: until, y1: height - 22, y2: height - 22 }),
    texts.map(([at]) => s("line", { class: "tick", x1: at, x2: at, y1: top - 6, y2: height - 22 })),
    texts.map(([at, text]) => {
      if (at > free || at < from + 20) return null;
      free = at - 56;
      return s("text", { class: "tick", x: at, y: height - 6, "text-anchor": "middle" }, text);
    }),
    s("text", { class: "tick", x: until, y: height - 6, "text-anchor": "end" }, "WAL end"),
  ];
}

/** G and the stream's place, from top to bottom; where they meet, they share a flag. */
function flags({ x, from, until }, { g, seen }, top, height) {
  const lines = [["seen", seen], ["g", g]].filter(([, value]) => value !== null && value > 0n);
  const isOne = lines.length === 2 && g === seen;
  return lines.map(([name, value]) => {
    if (isOne && name === "seen") return null;
    const at = x(value);
    const text = name === "g" ? `${isOne ? "G = received" : "G"} ${lsnText(value)}` : `received ${lsnText(value)}`;
    const y = name === "g" ? 14 : 32;
    const anchor = at > (from + until) / 2 ? "end" : "start";
    return s(
      "g",
      { class: `flag ${name}` },
      s("line", { x1: at, x2: at, y1: y - 10, y2: height - 22 }),
      s("text", { x: anchor === "end" ? at - 6 : at + 6, y, "text-anchor": anchor }, text),
    );
  });
}

function slotRow(scale, { restart, confirmed }, top) {
  const { x, end } = scale;
  const y = top + ROW / 2;
  const bar = (kind, one, other) =>
    one === null || other === null || one <= 0n
      ? null
      : s("rect", { class: kind, x: x(one), y: y - 4, width: Math.max(x(other) - x(one), 0), height: 8, rx: 2 });
  return s(
    "g",
    null,
    label(scale, "the slot", y, null),
    bar("kept", restart, end),
    bar("unconfirmed", confirmed, end),
    restart === null ? null : point("restart", x(restart), y, `restart ${lsnText(restart)}`),
    confirmed === null || confirmed <= 0n ? null : point("durable", x(confirmed), y, `confirmed ${lsnText(confirmed)}`),
  );
}

function shapeRow(scale, row, { g, seen }, offset, holder) {
  const { x, from, until, isNarrow } = scale;
  const y = offset + ROW / 2 + (isNarrow || row.isHolder ? 7 : 0);
  const parts = [label(scale, row.name, y, row.link, row.isHolder)];
  if (row.isHolder && row.visible === null) {
    parts.push(s("line", { class: "birth", x1: x(g), x2: x(seen ?? g), y1: y, y2: y }), point("durable", x(g), y, "G"));
  } else if (row.isPending) {
    const durable = row.durable === null ? from : x(row.durable);
    parts.push(s("line", { class: "pending", x1: durable, x2: x(row.visible ?? scale.end), y1: y, y2: y }));
    if (row.durable !== null) parts.push(point("durable", durable, y, `durable up to ${lsnText(row.durable)}`));
    if (row.visible !== null) parts.push(point("visible", x(row.visible), y, `V ${lsnText(row.visible)}`));
  } else if (row.isKnown) {
    const last = row.visible === null ? from : x(row.visible);
    if (seen !== null) parts.push(s("line", { class: "idle", x1: last, x2: Math.max(x(seen), last), y1: y, y2: y }));
    if (row.visible !== null) parts.push(point("settled", last, y, `V = D ${lsnText(row.visible)}`));
  }
  if (row.isHolder) {
    const words = `holds G, ${span(holder.seconds)}`;
    parts.push(s("text", { class: "holds", x: until - 6, y: offset + 13, "text-anchor": "end" }, words));
  }
  return s("g", null, parts);
}

function band(index, top, width) {
  return s("rect", { class: "holder", x: 0, y: top + ROW * index, width, height: ROW, rx: 4 });
}

function label({ isNarrow }, name, y, link, isHolder = false) {
  const fits = isNarrow ? 28 : 20;
  const shown = name.length > fits ? `${name.slice(0, fits - 1)}…` : name;
  const place = isNarrow ? { x: 8, y: y - 9 } : { x: 8, y: y + (isHolder ? -2 : 4) };
  const text = s("text", { class: isHolder ? "name holds" : "name", ...place }, shown, shown === name ? null : s("title", null, name));
  return link === null ? text : s("a", { href: link }, text);
}

function point(kind, x, y, text) {
  return s("circle", { class: kind, cx: x, cy: y, r: 4.5 }, s("title", null, text));
}

function legend(kind, text) {
  return h("span", null, s("svg", { width: 18, height: 10 }, swatch(kind)), text);
}

function swatch(kind) {
  if (kind === "kept") return s("rect", { class: kind, x: 1, y: 2, width: 16, height: 6, rx: 2 });
  if (kind === "durable" || kind === "visible") return s("circle", { class: kind, cx: 9, cy: 5, r: 4 });
  return s("line", { class: kind, x1: 1, x2: 17, y1: 5, y2: 5 });
}

/** The picture for who does not see it. */
function spoken(status, rows) {
  const pending = rows.filter((row) => row.isPending).map((row) => row.name);
  return `${status.explanation}. ${pending.length ? `Pending: ${pending.join(", ")}.` : ""}`;
}
