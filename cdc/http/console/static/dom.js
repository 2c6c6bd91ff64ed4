// Elements from calls, and the present page changed into the next one with as little change as possible, so that
// focus, selection, scrolling and what is being typed survive every refresh.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "oninput", "onchange", "onpointermove", "onpointerleave"];

/** An HTML element. Attributes that are null or false are left out; children may be nested lists, texts, nothing. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (HANDLERS.includes(name)) element[name] = value;
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** Make the children of a living element those that are given. */
export function show(element, ...children) {
  const next = element.cloneNode(false);
  filled(next, null, children);
  matchChildren(element, next);
}

// A living element with `data-own` keeps its children: something else looks after them.
function match(live, next) {
  if (live.nodeType !== next.nodeType || live.nodeName !== next.nodeName || keyOf(live) !== keyOf(next)) {
    live.replaceWith(next);
    return;
  }
  if (live.nodeType !== Node.ELEMENT_NODE) {
    if (live.data !== next.data) live.data = next.data;
    return;
  }
  for (const name of HANDLERS) if (live[name] !== next[name]) live[name] = next[name];
  for (const { name } of [...live.attributes]) {
    // Whether a person has unfolded something is that person's.
    if (!next.hasAttribute(name) && !(name === "open" && live.nodeName === "DETAILS")) live.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (live.getAttribute(name) !== value) live.setAttribute(name, value);
  }
  if (!live.hasAttribute("data-own")) matchChildren(live, next);
}

function matchChildren(live, next) {
  const have = [...live.childNodes];
  const want = [...next.childNodes];
  want.forEach((child, index) => (index < have.length ? match(have[index], child) : live.append(child)));
  have.slice(want.length).forEach((child) => child.remove());
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
}
