// Elements of the page. Names, types and values come from untrusted programs and configurations:
// they become text, never markup.

const SVG = "http://www.w3.org/2000/svg";

// Creates an element with attributes and children: elements, texts, or lists of these; null and
// false are skipped.
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element[name] = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  const real = children.flat(Infinity).filter((child) => child != null && child !== false);
  element.append(...real);
  return element;
}

// Changes the children of `there` to those of `wanted`, and keeps nodes that need no change:
// selections, open details and text being typed stay, even if nodes are added or removed before
// them.
export function morph(there, wanted) {
  const next = [...wanted.childNodes];
  const keys = new Set(next.map(keyOf));
  const isGone = (node) => keyOf(node) !== undefined && !keys.has(keyOf(node));
  let place = there.firstChild;
  for (const node of next) {
    while (isGone(place)) place = removed(place);
    if (!place) there.append(node);
    else if (isLike(place, node)) {
      update(place, node);
      place = place.nextSibling;
    } else if (keyOf(place) !== undefined) {
      // The node at this place is needed further on.
      place.before(node);
    } else {
      place.before(node);
      place = removed(place);
    }
  }
  while (place) place = removed(place);
}

const keyOf = (node) => node?.dataset?.key;

function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function update(there, wanted) {
  if (wanted.nodeType === Node.TEXT_NODE) {
    if (there.data !== wanted.data) there.data = wanted.data;
    return;
  }
  takeAttributes(there, wanted);
  morph(there, wanted);
}

function isLike(before, node) {
  return before.nodeName === node.nodeName && keyOf(before) === keyOf(node);
}

function takeAttributes(before, node) {
  // The open state of `details` belongs to the user.
  const kept = (name) => before.nodeName === "DETAILS" && name === "open";
  for (const { name } of [...before.attributes]) {
    if (!node.hasAttribute(name) && !kept(name)) before.removeAttribute(name);
  }
  for (const { name, value } of [...node.attributes]) {
    if (before.getAttribute(name) !== value && !kept(name)) before.setAttribute(name, value);
  }
  for (const event of ["onclick", "onsubmit", "oninput", "onchange"]) before[event] = node[event];
}

// Formats a number: 985, 12.3k, 1.23M.
export function short(number) {
  const units = ["", "k", "M", "G", "T"];
  let [value, unit] = [Math.abs(number), 0];
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  let digits = 0;
  if (unit > 0 && value < 9.995) digits = 2;
  else if (unit > 0 && value < 99.95) digits = 1;
  return (number < 0 && value > 0.5 ? "-" : "") + value.toFixed(digits) + units[unit];
}

// Natural order of names: eth2 sorts before eth10.
export const natural = new Intl.Collator("en", { numeric: true }).compare;

// Percentage of a whole.
export function percent(part, whole) {
  return whole > 0 ? Math.round((part * 100) / whole) : 0;
}

// A small chart of the last minutes, with the last value at the right edge.
export function chart(values, kind, label, least = 1) {
  const [width, height] = [120, 26];
  const most = Math.max(least, ...values);
  // A short history is stretched, up to a minute across.
  const span = Math.max(SPAN_MIN, values.length) - 1;
  const x = (index) => width - (values.length - 1 - index) * (width / span);
  const y = (value) => height - 1 - (value / most) * (height - 3);
  const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
  const first = values.length ? x(0).toFixed(1) : width;
  return svg("svg", { class: `chart ${kind}`, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": label, preserveAspectRatio: "none" },
  svg("polygon", { points: `${first},${height} ${points.join(" ")} ${width},${height}` }),
  svg("polyline", { points: points.join(" ") }));
}

// A bar for a share of a whole, with a text beside it.
export function filled(part, whole, text, kind = "") {
  return el("span", { class: "filled" }, bar(part, whole, kind), el("small", {}, text));
}

// A bar for a share of a whole.
export function bar(part, whole, kind = "") {
  const width = Math.min(100, whole > 0 ? (part * 100) / whole : 0);
  return svg("svg", { class: `bar ${kind}`, viewBox: "0 0 100 6", preserveAspectRatio: "none" },
    svg("rect", { class: "all", width: 100, height: 6 }),
    svg("rect", { class: "part", width: width.toFixed(2), height: 6 }));
}

// Number of points in a chart: as many as the daemon keeps, one every five seconds.
export const PAST = 120;
const SPAN_MIN = 12;
