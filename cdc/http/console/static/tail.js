// A shape's rows as they come: long polls, one after the other, for as long as the view is open and not paused.

import { Refused, SecretWanted, ask } from "./api.js";
import { h } from "./dom.js";
import { count, lsnText, place } from "./format.js";

const SHOWN_MAX = 200;
const AT_ONCE_MAX = 500; // more in one answer: nobody reads that; what is shown goes on with what comes from now on
const WAIT_SECONDS = 15;
const ANSWER_MS_MAX = 25000;
const RETRY_MS = 2000;
const VALUE_CHARACTERS_MAX = 120;
const NOW = "now";

let open = null; // the tail of the view that is shown

/** The part of a view that is the tail of this shape. */
export function tail(handle) {
  if (open?.handle !== handle) {
    leaveTail();
    open = start(handle);
  }
  return h(
    "div",
    { class: "tail", "data-key": handle },
    h(
      "p",
      { class: "filters" },
      h("button", { type: "button", "aria-keyshortcuts": "p", "aria-pressed": String(open.isPaused), onclick: toggleTail }, open.isPaused ? "go on" : "pause"),
      h("span", { class: "remark", id: "tail-said" }, open.said),
    ),
    h("ol", { id: "tail", "data-own": true, tabindex: 0, "aria-label": "Rows, the newest first" }),
  );
}

/** The view is left. */
export function leaveTail() {
  open?.controller.abort();
  open = null;
}

export function toggleTail() {
  if (open === null) return;
  open.isPaused = !open.isPaused;
  if (open.isPaused) open.controller.abort();
  else run(open);
  say(open, open.isPaused ? "paused" : "waiting for changes …");
  const button = document.querySelector(".tail button");
  button.textContent = open.isPaused ? "go on" : "pause";
  button.setAttribute("aria-pressed", String(open.isPaused));
}

function start(handle) {
  const one = { handle, after: NOW, asked: handle, isPaused: false, said: "waiting for changes …", seen: 0, controller: null };
  run(one);
  return one;
}

async function run(one) {
  const controller = new AbortController();
  one.controller = controller;
  while (!controller.signal.aborted) {
    try {
      await step(one, controller.signal);
    } catch (error) {
      if (controller.signal.aborted || error instanceof SecretWanted) return;
      say(one, error instanceof Refused ? error.message : "no answer; trying again");
      await pause(controller.signal);
    }
  }
}

async function step(one, signal) {
  const query = new URLSearchParams({ after: one.after, wait: one.after === NOW ? 0 : WAIT_SECONDS });
  if (one.after !== NOW) query.set("handle", one.asked);
  const answer = await ask(`shapes/${encodeURIComponent(one.asked)}/rows?${query}`, { signal, ms: ANSWER_MS_MAX });
  const handle = answer.headers.get("shapelog-handle");
  if (answer.status === 204) return say(one, "a successor is being born");
  if (answer.status === 410) {
    [one.after, one.asked] = [NOW, handle];
    return mark(one, `goes on as ${handle}`);
  }
  if (!answer.ok) throw new Refused((await answer.json()).error);
  const lines = (await answer.text()).split("\n").filter(Boolean);
  if (signal.aborted) return null; // what was read is asked for again
  one.seen += lines.length;
  one.after = lines.length > AT_ONCE_MAX ? NOW : answer.headers.get("shapelog-next");
  if (lines.length > AT_ONCE_MAX) mark(one, `${count(lines.length)} rows and more went by at once; the last of them:`);
  put(lines.slice(-SHOWN_MAX).map((line) => JSON.parse(line)).map(rowOf));
  return say(one, one.seen ? `${count(one.seen)} rows since this was opened` : "waiting for changes …");
}

function put(items) {
  const list = document.getElementById("tail");
  if (list === null) return;
  list.prepend(...items.reverse());
  while (list.childElementCount > SHOWN_MAX) list.lastElementChild.remove();
}

function mark(one, text) {
  put([h("li", { class: "mark" }, text)]);
  say(one, text);
}

function say(one, text) {
  one.said = text;
  const line = document.getElementById("tail-said");
  if (line !== null && open === one) line.textContent = text;
}

function rowOf(row) {
  const values = row.new ?? row.old ?? {};
  return h(
    "li",
    null,
    h("span", { class: `kind ${row.kind}` }, row.kind),
    h("code", { class: "place", title: row.offset }, placeOf(row.offset)),
    h("span", { class: "values" }, Object.entries(values).map(([name, value]) => [h("b", null, name), "=", valueOf(value), " "])),
  );
}

function placeOf(offset) {
  const at = place(offset);
  return at === null ? offset : lsnText(at);
}

function valueOf(value) {
  if (value === null) return h("i", null, "NULL");
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > VALUE_CHARACTERS_MAX ? `${text.slice(0, VALUE_CHARACTERS_MAX - 1)}…` : text;
}

const pause = (signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, RETRY_MS);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
