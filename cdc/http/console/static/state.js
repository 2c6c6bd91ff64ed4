// What the page knows of its server, and the loop that keeps it fresh. A hidden page asks nothing.

import { Refused, SecretWanted, askJson, hasSecret } from "./api.js";

const ROUND_MS = 2000;
const PAUSE_SHARE = 4; // between two rounds at least so many times what a round took: a busy server is not asked more
const SAMPLES_MAX = 900;
const EVENTS_MAX = 200; // each round brings them: what is older than so many is looked up in the log itself
const CURVES = [
  "at",
  "received_bytes_per_second",
  "flushed_bytes_per_second",
  "read_rows_per_second",
  "lag_bytes",
  "lag_seconds",
  "buffered_bytes",
  "retained_bytes",
];

export const known = {
  status: null, // of /v1/admin/status
  events: [],
  curves: Object.fromEntries(CURVES.map((name) => [name, []])),
  answeredAt: null, // milliseconds
  trouble: null, // why the last round failed
  lake: null, // of /v1/admin/lake, while it is looked at
  doctor: { findings: null, fit: null, error: null, at: null, isAsking: false },
};

/** What is called after every change of `known`. */
export const listeners = { changed: () => {}, secretWanted: () => {} };

let timer = 0;
let isUnderWay = false;

/** One round, and then the next ones. */
export async function refresh() {
  clearTimeout(timer);
  if (isUnderWay || document.hidden) return;
  isUnderWay = true;
  const began = performance.now();
  try {
    const after = known.curves.at.at(-1) ?? 0;
    const [status, curves, events, lake] = await Promise.all([
      askJson("status"),
      askJson(`samples?after=${after}`),
      askJson(`events?limit=${EVENTS_MAX}`),
      location.hash.startsWith("#/lake") ? askJson("lake") : known.lake,
    ]);
    known.status = status;
    known.events = events.events;
    known.lake = lake;
    known.answeredAt = Date.now();
    known.trouble = null;
    append(curves);
  } catch (error) {
    if (error instanceof SecretWanted) {
      isUnderWay = false;
      listeners.secretWanted(hasSecret());
      return; // whoever types it in begins again
    }
    known.trouble = error instanceof Refused ? error.message : "the server does not answer";
  }
  isUnderWay = false;
  listeners.changed();
  timer = setTimeout(refresh, Math.max(ROUND_MS, PAUSE_SHARE * (performance.now() - began)));
}

function append(curves) {
  for (const name of CURVES) known.curves[name] = known.curves[name].concat(curves[name]).slice(-SAMPLES_MAX);
}

/** Let the server be examined. */
export async function examine() {
  const doctor = known.doctor;
  if (doctor.isAsking) return;
  doctor.isAsking = true;
  listeners.changed();
  try {
    const found = await askJson("doctor", { ms: 30000 });
    Object.assign(doctor, { findings: found.findings, fit: found.fit, error: null, at: Date.now() });
  } catch (error) {
    doctor.error = error instanceof Refused ? error.facts : { message: "the server does not answer" };
  }
  doctor.isAsking = false;
  listeners.changed();
}

document.addEventListener("visibilitychange", () => document.hidden || refresh());
