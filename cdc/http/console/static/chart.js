// A curve over the last minutes: area and line, the greatest value, and the one under the pointer.

import { h, s } from "./dom.js";
import { NOTHING, clock } from "./format.js";

const HEIGHT = 84;
const TOP = 8;
const GAP_SECONDS = 10; // without points for so long, nothing is drawn
const pointers = {}; // where the pointer is, by chart: it outlives a redraw

/** `times` in seconds, `values` beside them, which may be null. */
export function chart({ name, times, values, words, width, remark }) {
  const points = times.map((time, index) => [time, values[index]]).filter(([, value]) => value !== null);
  const top = Math.max(...points.map(([, value]) => value), 0);
  const [from, until] = [times[0] ?? 0, times.at(-1) ?? 1];
  const x = (time) => ((time - from) / Math.max(until - from, 1)) * width;
  const y = (value) => HEIGHT - (top ? value / top : 0) * (HEIGHT - TOP);
  const pointed = points.length && name in pointers ? nearest(points, x, pointers[name]) : null;
  const now = points.at(-1)?.[1] ?? null;
  const said = pointed ?? points.at(-1);
  return h(
    "figure",
    { class: "chart", "data-key": name },
    h(
      "figcaption",
      null,
      h("span", null, name),
      h("strong", null, said ? words(said[1]) : NOTHING),
      h("span", { class: "remark" }, pointed ? clock(pointed[0] * 1000) : (remark ?? `most ${words(top)}`)),
    ),
    s(
      "svg",
      {
        viewBox: `0 0 ${width} ${HEIGHT + 1}`,
        width,
        height: HEIGHT + 1,
        role: "img",
        "aria-label": `${name}: now ${words(now)}, at most ${words(top)}`,
        onpointermove: (event) => (pointers[name] = event.offsetX),
        onpointerleave: () => delete pointers[name],
      },
      s("line", { class: "floor", x1: 0, x2: width, y1: HEIGHT, y2: HEIGHT }),
      runs(points).map((run) => curve(run, x, y)),
      pointed ? s("line", { class: "pointer", x1: x(pointed[0]), x2: x(pointed[0]), y1: 0, y2: HEIGHT }) : null,
      pointed ? s("circle", { class: "pointer", cx: x(pointed[0]), cy: y(pointed[1]), r: 3 }) : null,
    ),
    h("p", { class: "ends" }, h("span", null, times.length ? clock(from * 1000) : ""), h("span", null, "now")),
  );
}

function curve(run, x, y) {
  const path = run.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join("L");
  const [first, last] = [x(run[0][0]).toFixed(1), x(run.at(-1)[0]).toFixed(1)];
  return [
    s("path", { class: "area", d: `M${first},${HEIGHT}L${path}L${last},${HEIGHT}Z` }),
    s("path", { class: "line", d: `M${path}` }),
  ];
}

/** Points without gaps between. */
function runs(points) {
  const found = [];
  for (const point of points) {
    const run = found.at(-1);
    if (run && point[0] - run.at(-1)[0] <= GAP_SECONDS) run.push(point);
    else found.push([point]);
  }
  return found;
}

function nearest(points, x, at) {
  return points.reduce((best, point) => (Math.abs(x(point[0]) - at) < Math.abs(x(best[0]) - at) ? point : best));
}
