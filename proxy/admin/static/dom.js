// Helpers for elements and numbers. Text is only ever inserted as text: no part of this page parses a string as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an HTML element: `props` are attributes, `on…` listeners; children are nodes or texts. */
export function h(name, props = {}, ...children) {
  return dress(document.createElement(name), props, children);
}

/** Make an SVG element. */
export function s(name, props = {}, ...children) {
  return dress(document.createElementNS(SVG, name), props, children);
}

function dress(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const $ = (id) => document.getElementById(id);

/** Set an element's text, unless it is the same already. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set an attribute or, with null, remove it. */
export function mark(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

export function count(number) {
  if (number < 10_000) return number.toLocaleString("en-US");
  if (number < 1_000_000) return `${(number / 1000).toFixed(number < 100_000 ? 1 : 0)}k`;
  return `${(number / 1_000_000).toFixed(1)}M`;
}

/** A number with its noun: 1 call, 2 calls. */
export const amount_of = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** The tone of a share of failures: one call in ten is another thing than one in a thousand. */
export const tone_of = (failed, calls) => (!failed ? null : failed / calls >= 0.1 ? "bad" : "wait");

export function rate(number) {
  if (number === 0) return "0";
  return number < 0.95 ? number.toFixed(2) : number < 99.5 ? number.toFixed(1) : count(Math.round(number));
}

/** A share as percent; 100 % only if the part is the whole. */
export function percent(part, whole) {
  if (!whole) return "–";
  const share = (part / whole) * 100;
  if (part !== whole && share > 99.9) return "99.9\u00a0%";
  return part && share < 0.1 ? "0.1\u00a0%" : `${share.toFixed(share === 0 || share === 100 ? 0 : 1)}\u00a0%`;
}

/** A time, rounded to useful precision, as `redrive top` has it, with a no-break space before its unit. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.9995) return `${(value * 1000).toFixed(value < 0.00995 ? 1 : 0)}\u00a0ms`;
  if (value < 99.5) return `${value.toFixed(value < 9.95 ? 1 : 0)}\u00a0s`;
  return value < 5940 ? `${Math.round(value / 60)}\u00a0min` : `${(value / 3600).toFixed(1)}\u00a0h`;
}

/** A number without zeros at the end of its decimals. */
export const plain = (text) => text.replace(/\.0+(?!\d)|(\.\d*?[1-9])0+(?!\d)/, "$1");

/** A bucket's level, rounded to useful precision. */
export function tokens(value) {
  return Number.isInteger(value) || value >= 100 ? count(Math.round(value)) : value.toFixed(1);
}

/** A sparkline of levels, filled below. */
export class Sparkline {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.line = s("polyline", { class: "line" });
    this.area = s("polygon", { class: "area" });
    const box = { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" };
    this.element = s("svg", box, this.area, this.line);
    this.drawn = "";
  }

  draw(levels, capacity, length) {
    const step = this.width / Math.max(length - 1, 1);
    const from = this.width - (levels.length - 1) * step;
    const points = levels.map((level, at) => {
      const share = Math.min(Math.max(level / (capacity || 1), 0), 1);
      return `${(from + at * step).toFixed(1)},${(this.height - 1 - share * (this.height - 2)).toFixed(1)}`;
    });
    const text = points.join(" ");
    if (text === this.drawn) return;
    this.drawn = text;
    this.line.setAttribute("points", text);
    this.area.setAttribute("points", points.length ? `${from.toFixed(1)},${this.height} ${text} ${this.width},${this.height}` : "");
  }
}
