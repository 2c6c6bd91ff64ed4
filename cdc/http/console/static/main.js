// The frame of the page: which view is shown, the state on top, colours, keys, the secret.

import { keepSecret } from "./api.js";
import { h, show } from "./dom.js";
import { clock } from "./format.js";
import { examine, known, listeners, refresh } from "./state.js";
import { doctorView } from "./doctor.js";
import { eventsView } from "./events.js";
import { lakeView } from "./lake.js";
import { overviewView } from "./overview.js";
import { shapeView } from "./shape.js";
import { shapesView } from "./shapes.js";
import { slotView } from "./slot.js";
import { leaveTail, toggleTail } from "./tail.js";

const VIEWS = [
  ["overview", "Overview", overviewView],
  ["shapes", "Shapes", shapesView],
  ["slot", "Slot", slotView],
  ["lake", "Lake", lakeView],
  ["events", "Events", eventsView],
  ["doctor", "Doctor", doctorView],
];
const STATES = { active: "ok", starting: "warning", waiting: "warning", "not connected": "fault", "no answer": "fault" };
const THEMES = { auto: "◐", light: "☀", dark: "☾" };
const THEME_KEPT_AS = "shapelog-theme";

const at = (id) => document.getElementById(id);
let asked = false; // whether a redraw is on its way
let shown = null;

/** `#/shapes/HANDLE` as the view and what it is about. */
function route() {
  const [name, about] = location.hash.replace(/^#\/?/, "").split("/");
  const view = VIEWS.find(([one]) => one === name) ?? VIEWS[0];
  return { name: view[0], title: view[1], draw: view[2], about: about ? decodeURIComponent(about) : null };
}

function draw() {
  asked = false;
  const { name, title, draw: drawView, about } = route();
  const view = about !== null && name === "shapes" ? shapeView : drawView;
  show(
    at("nav"),
    VIEWS.map(([one, text]) =>
      h("a", { href: `#/${one}`, "aria-current": one === name ? "page" : null }, text, badge(one)),
    ),
  );
  drawState();
  document.title = about ? `${about} · shapelog` : `${title} · shapelog`;
  const subject = `${name}/${about ?? ""}`;
  if (shown !== subject) {
    leaveTail();
    if (shown !== null) {
      window.scrollTo(0, 0);
      at("main").focus({ preventScroll: true });
    }
    shown = subject;
    if (name === "lake") refresh();
    if (name === "doctor" && known.doctor.findings === null) examine();
  }
  show(at("main"), known.status === null ? waiting() : h("div", { "data-key": subject, class: "view" }, view(about)));
}

function waiting() {
  const text = known.trouble === null ? "Asking the server …" : `No answer: ${known.trouble}. Trying again …`;
  return h("p", { class: "empty" }, text);
}

function badge(view) {
  if (view !== "events") return null;
  const errors = known.events.filter((event) => event.level === "error" || event.level === "critical").length;
  return errors ? h("span", { class: "badge", title: `${errors} errors` }, errors > 99 ? "99+" : errors) : null;
}

function drawState() {
  const status = known.status;
  const state = stateOf(status);
  const pill = at("state");
  pill.className = `pill ${STATES[state] ?? ""}`;
  if (pill.textContent !== state) pill.textContent = state; // a screen reader says it, so only when it changes
  show(at("trouble"), troubles(status).map(([kind, text]) => h("p", { class: kind }, text)));
}

function stateOf(status) {
  if (known.trouble !== null) return "no answer";
  if (status === null) return "…";
  return status.connection.is_up ? status.state : "not connected";
}

function* found(status) {
  if (known.trouble !== null && status !== null) {
    yield ["fault", `No answer: ${known.trouble}. What you see is of ${clock(known.answeredAt)}.`];
  }
  if (status === null) return;
  if (status.connection.stuck) {
    yield ["fault", `The stream stands still: ${status.connection.stuck}`];
  } else if (status.connection.look) {
    yield ["warning", `Nothing comes yet: ${status.connection.look.explanation}.`];
  } else if (!status.connection.is_up) {
    const fault = status.connection.fault ?? "no attempt has succeeded yet";
    yield ["fault", `Not connected to Postgres: ${fault}`];
  }
  if (status.disk_fault) yield ["fault", `The disk refuses: ${status.disk_fault}`];
  if (status.slot.loss) yield ["fault", `The slot is lost: ${status.slot.loss}`];
  const { insurance } = status;
  if (insurance?.explanation && insurance.step !== "calm") {
    yield [insurance.step === "end" ? "fault" : "warning", `Slot insurance: ${insurance.explanation}.`];
  }
}

const troubles = (status) => [...found(status)];

function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(draw);
}

// Colours

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  at("theme").textContent = THEMES[theme];
  at("theme").setAttribute("aria-label", `Colours: ${theme === "auto" ? "as the system" : theme}`);
  at("theme").title = `Colours: ${theme === "auto" ? "as the system" : theme}`;
}

function nextTheme() {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
  localStorage.setItem(THEME_KEPT_AS, next);
  applyTheme(next);
}

// Keys

function press(event) {
  const isTyping = event.target.matches("input, select, textarea") || document.querySelector("dialog[open]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const view = VIEWS[Number(event.key) - 1];
  if (view) location.hash = `#/${view[0]}`;
  else if (event.key === "/") search();
  else if (event.key === "t") nextTheme();
  else if (event.key === "p") toggleTail();
  else if (event.key === "?") at("help").showModal();
  else return;
  event.preventDefault();
}

function search() {
  if (route().name !== "shapes" || route().about !== null) location.hash = "#/shapes";
  draw();
  at("search")?.focus();
}

// The secret

function askSecret(isWrong) {
  at("secret-wrong").hidden = !isWrong;
  at("secret-text").value = "";
  if (!at("secret").open) at("secret").showModal();
}

at("secret").addEventListener("close", () => {
  if (at("secret-text").value) keepSecret(at("secret-text").value);
  refresh();
});

listeners.changed = redraw;
listeners.secretWanted = askSecret;
at("theme").addEventListener("click", nextTheme);
at("keys").addEventListener("click", () => at("help").showModal());
document.addEventListener("keydown", press);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which view is shown
  at("main").focus();
});
window.addEventListener("hashchange", draw);
window.addEventListener("resize", redraw);
applyTheme(THEMES[localStorage.getItem(THEME_KEPT_AS)] ? localStorage.getItem(THEME_KEPT_AS) : "auto");
draw();
refresh();
