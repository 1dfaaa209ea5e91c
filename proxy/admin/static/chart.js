// Line charts of the last fifteen minutes, as SVG: axes with units, the values at the instant that the pointer or the
// keyboard selects, and a sentence that says the same. Nothing is animated. Lines differ by dash as well as by colour.

import { h, mark, plain, s, say } from "./dom.js";

const SPAN = 900; // seconds
const MARGIN = { left: 50, right: 8, top: 8, bottom: 18 };
const PLOT = 84; // pixels

/** Charts with a common time axis: the instant that the pointer is at in one is marked in all of them. */
export class Charts {
  /**
   * `specs` has for each chart: title, unit, format(value), lines, and optionally: top(columns, highest) (the end of the axis),
   * log (the axis is a logarithmic one of times), hidden(columns), bands(columns) (the periods that are marked, [[from, to], …]) with `band`, their name.
   * A line has a name and value(columns, at), null if there is none; a `rare` line is left out if it is always 0.
   */
  constructor(specs) {
    this.charts = specs.map((spec) => new Chart(spec, this));
    this.when = h("p", { class: "when" });
    this.element = h("div", { class: "charts" }, this.when, this.charts.map((chart) => chart.element));
    this.columns = null;
    this.instant = null; // the instant that the pointer or keyboard is at, in seconds since the epoch; null if there is none
    const sizes = new ResizeObserver(() => this.draw());
    for (const chart of this.charts) sizes.observe(chart.element);
  }

  /** Show columns as /series has them; null if there are none yet. */
  show(columns) {
    if (columns === this.columns) return;
    this.columns = columns;
    this.draw();
  }

  draw() {
    const { columns } = this;
    if (!columns?.at.length) {
      say(this.when, columns ? "The first sample comes a few seconds after the start." : "…");
      for (const chart of this.charts) chart.element.hidden = true;
      return;
    }
    const at = this.at();
    say(this.when, this.instant === null ? `The last ${Math.round(columns.seconds[at])} seconds. For another time, point at a chart, or use ← and → in it.` : `The ${Math.round(columns.seconds[at])} seconds up to ${clock(columns.at[at])}.`);
    for (const chart of this.charts) chart.draw(columns, at, this.instant !== null);
  }

  /** The sample that the pointer or keyboard is at, else the last one. */
  at() {
    const { at } = this.columns;
    if (this.instant === null) return at.length - 1;
    const later = at.findIndex((time) => time >= this.instant - 0.001);
    return later < 0 ? at.length - 1 : later;
  }

  point(instant) {
    this.instant = instant;
    this.draw();
  }

  /** Move by this many samples. */
  step(by) {
    const { at } = this.columns;
    this.point(at[Math.min(Math.max(this.at() + by, 0), at.length - 1)]);
  }
}

class Chart {
  constructor(spec, group) {
    this.spec = spec;
    this.group = group;
    this.values = spec.lines.map(() => h("output", {}));
    this.keys = spec.lines.map(({ name }, n) =>
      h("li", {}, s("svg", { class: "key", width: 22, height: 8, "aria-hidden": "true" }, s("line", { class: `line l${n}`, x1: 1, x2: 21, y1: 4, y2: 4 })), h("span", {}, name), this.values[n]));
    this.band = spec.bands ? h("li", {}, s("svg", { class: "key", width: 22, height: 10, "aria-hidden": "true" }, hatch("key"), s("rect", { class: "band", width: 22, height: 10, fill: "url(#hatch-key)" })), h("span", {}, spec.band)) : null;
    this.svg = s("svg", { class: "plot", height: MARGIN.top + PLOT + MARGIN.bottom, tabindex: 0, role: "slider", "aria-valuemin": 0 });
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, spec.title), " ", h("span", { class: "quiet" }, spec.unit)), h("ul", { class: "keys" }, this.keys, this.band), this.svg);
    this.svg.addEventListener("pointermove", (event) => this.pointed(event));
    this.svg.addEventListener("pointerdown", (event) => this.pointed(event));
    this.svg.addEventListener("pointerleave", () => document.activeElement !== this.svg && group.point(null));
    this.svg.addEventListener("blur", () => group.point(null));
    this.svg.addEventListener("keydown", (event) => this.key_pressed(event));
  }

  draw(columns, at, pointed) {
    const { spec } = this;
    const { at: times } = columns;
    this.element.hidden = spec.hidden?.(columns) ?? false;
    if (this.element.hidden) return;
    const lines = spec.lines.map((line) => times.map((_, n) => line.value(columns, n)));
    const shown = lines.map((values, n) => !spec.lines[n].rare || values.some((value) => value));
    shown.forEach((is, n) => (this.keys[n].hidden = !is));
    lines.forEach((values, n) => say(this.values[n], values[at] === null ? "–" : spec.format(values[at])));
    const ticks = spec.log ? marks_of_times(lines.flat()) : halves(lines.flat(), (highest) => spec.top?.(columns, highest));
    const bands = spec.bands?.(columns) ?? [];
    if (this.band) this.band.hidden = !bands.length;
    this.describe(columns, lines, shown, at, bands);
    const width = Math.floor(this.element.clientWidth);
    if (width < 60) return;
    this.plot = { from: times[times.length - 1] - SPAN, width: width - MARGIN.left - MARGIN.right, ticks };
    mark(this.svg, "width", String(width));
    mark(this.svg, "viewBox", `0 0 ${width} ${MARGIN.top + PLOT + MARGIN.bottom}`);
    const cursor = pointed ? s("line", { class: "cursor", x1: this.x(times[at]), x2: this.x(times[at]), y1: MARGIN.top, y2: MARGIN.top + PLOT }) : null;
    const dots = pointed ? lines.map((values, n) => (shown[n] && values[at] !== null ? s("circle", { class: `dot l${n}`, cx: this.x(times[at]), cy: this.y(values[at]), r: 3 }) : null)) : [];
    this.svg.replaceChildren(
      ...[hatch(spec.title), ...this.bands(bands), ...this.axes(width), ...lines.map((values, n) => (shown[n] ? s("path", { class: `line l${n}`, d: this.path(times, values) }) : null)), cursor, ...dots].filter(Boolean),
    );
  }

  x(time) {
    return round(MARGIN.left + (Math.max(time - this.plot.from, 0) / SPAN) * this.plot.width);
  }

  y(value) {
    const { ticks } = this.plot;
    const scale = this.spec.log ? Math.log : (number) => number;
    const [low, high] = [ticks[0], ticks[ticks.length - 1]].map(scale);
    return round(MARGIN.top + PLOT * (1 - Math.min(Math.max((scale(value) - low) / (high - low), 0), 1)));
  }

  /** The path of a line, with a gap where there is no value; a single value between two gaps is drawn as a dash. */
  path(times, values) {
    let text = "";
    let before = null;
    values.forEach((each, n) => {
      const value = times[n] < this.plot.from ? null : each;
      if (value !== null) text += `${before === null ? "M" : "L"}${this.x(times[n])} ${this.y(value)}${before === null && (values[n + 1] ?? null) === null ? "h2" : ""}`;
      before = value;
    });
    return text;
  }

  bands(bands) {
    return bands.map(([from, to]) => {
      const x = this.x(from);
      return s("rect", { class: "band", x, y: MARGIN.top, width: Math.max(this.x(to) - x, 2), height: PLOT, fill: `url(#hatch-${id(this.spec.title)})` });
    });
  }

  axes(width) {
    const { spec } = this;
    const { ticks, from } = this.plot;
    const end = from + SPAN;
    const across = ticks.flatMap((value) => [
      s("line", { class: "grid-line", x1: MARGIN.left, x2: width - MARGIN.right, y1: this.y(value), y2: this.y(value) }),
      s("text", { class: "tick", x: MARGIN.left - 5, y: this.y(value) + 3.5, "text-anchor": "end" }, value ? plain(spec.format(value)) : "0"),
    ]);
    const minutes = width > 300 ? [15, 10, 5, 0] : [15, 0];
    const along = minutes.map((ago) => {
      const anchor = ago === 15 ? "start" : ago === 0 ? "end" : "middle";
      return s("text", { class: "tick", x: this.x(end - ago * 60), y: MARGIN.top + PLOT + 14, "text-anchor": anchor }, ago ? `−${ago} min` : "now");
    });
    return [...across, ...along];
  }

  /** A description of the chart in words, for screen readers. */
  describe(columns, lines, shown, at, bands) {
    const { spec } = this;
    const said = spec.lines.flatMap((line, n) => {
      const values = lines[n].filter((value) => value !== null);
      if (!shown[n] || !values.length) return [];
      const highest = Math.max(...values);
      const lowest = Math.min(...values);
      return `${line.name}: ${spec.format(lowest)}${lowest === highest ? " throughout" : ` to ${spec.format(highest)}, the most at ${clock(columns.at[lines[n].indexOf(highest)])}`}`;
    });
    if (bands.length) said.push(`${spec.band}: ${bands.map(([from, to]) => `${clock(from)} to ${clock(to)}`).slice(-3).join(", ")}`);
    mark(this.svg, "aria-label", `${spec.title}, ${spec.unit}, last 15 minutes. ${said.join(". ") || "Nothing to show"}.`);
    mark(this.svg, "aria-valuemax", String(columns.at.length - 1));
    mark(this.svg, "aria-valuenow", String(at));
    const values = spec.lines.flatMap((line, n) => (shown[n] ? `${line.name} ${lines[n][at] === null ? "none" : spec.format(lines[n][at])}` : []));
    mark(this.svg, "aria-valuetext", `${clock(columns.at[at])}: ${values.join(", ")}`);
  }

  pointed(event) {
    if (!this.plot) return;
    const { left } = this.svg.getBoundingClientRect();
    const { columns } = this.group;
    const time = this.plot.from + ((event.clientX - left - MARGIN.left) / this.plot.width) * SPAN;
    const nearest = columns.at.reduce((best, each) => (Math.abs(each - time) < Math.abs(best - time) ? each : best));
    if (nearest !== this.group.instant) this.group.point(nearest);
  }

  key_pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: 12, PageDown: -12, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      this.group.step(steps[event.key]);
    } else if (event.key === "Escape" && this.group.instant !== null) {
      event.stopPropagation(); // Escape leaves the chart only, not the pane as well
      this.group.point(null);
    }
  }
}

/** The pattern of a band: hatching, so that a band is not recognised by colour alone. */
function hatch(name) {
  return s("pattern", { id: `hatch-${id(name)}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, s("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 6 }));
}

const id = (name) => name.toLowerCase().replace(/\W+/g, "-");
const round = (value) => Math.round(value * 10) / 10;
const clock = (time) => new Date(time * 1000).toLocaleTimeString("en-GB");

/** The marks of an axis from 0: 0, the end and its half. The end is `top(highest)`, or the next number whose half is round too. */
function halves(values, top) {
  const highest = Math.max(0, ...values);
  const power = 10 ** Math.floor(Math.log10(highest || 1));
  const end = top(highest) ?? (highest ? [1, 1.5, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= highest * 0.999) : 1);
  return [0, end / 2, end];
}

/** The possible marks of a logarithmic axis of times, in seconds: each about ten times the one before, and round as people say it. */
const TIMES = [1e-4, 0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36_000, 360_000];

/** The marks of a logarithmic axis around times, or every other one if there are many. */
export function marks_of_times(values) {
  const some = values.filter((value) => value > 0);
  const low = Math.max(TIMES.findLastIndex((mark) => mark <= Math.min(...some, 0.1) * 1.001), 0);
  const above = TIMES.findIndex((mark) => mark >= Math.max(...some, 0.1) * 0.999);
  const high = Math.max(above < 0 ? TIMES.length - 1 : above, low + 1);
  const step = high - low > 4 ? 2 : 1;
  return TIMES.filter((_, n) => n >= low && n < high + step && (n - low) % step === 0);
}
