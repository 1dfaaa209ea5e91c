// The charts of an upstream, or of all together; their data is fetched with every new sample while they are visible.

import { Charts } from "./chart.js";
import { $, count, h, rate, seconds, tokens } from "./dom.js";

const LOOK = 500; // ms between checks whether there is a new sample and the charts are visible
const OPEN = "redrive-charts";

const a_second = (column) => (columns, at) => columns[column][at] / columns.seconds[at];
const a_share = (part) => (columns, at) => (columns.calls[at] ? (part(columns, at) / columns.calls[at]) * 100 : null);
const time = (column) => (columns, at) => columns[column][at];

const CALLS = {
  title: "Calls",
  unit: "per second",
  format: rate,
  lines: [
    { name: "calls", value: a_second("calls") },
    { name: "attempts", value: a_second("attempts") },
    { name: "retries", value: a_second("retries") },
    { name: "by fallback", value: a_second("arrived"), rare: true },
  ],
};
const SUCCESS = {
  title: "Success",
  unit: "% of calls",
  format: (value) => `${value > 99.9 && value < 100 ? 99.9 : Number(value.toFixed(1))} %`,
  top: () => 100,
  lines: [
    { name: "with retries", value: a_share((columns, at) => columns.at_once[at] + columns.after_retries[at]) },
    { name: "without retries", value: a_share((columns, at) => columns.at_once[at]) },
  ],
};
const LATENCY = {
  title: "Latency",
  unit: "retries included, log scale",
  format: seconds,
  log: true,
  lines: [
    { name: "p50", value: time("p50") },
    { name: "p95", value: time("p95") },
    { name: "p99", value: time("p99") },
  ],
};
const no_calls = (columns) => !columns.calls.some((calls) => calls);
const COOLDOWN = { band: "cooldown or outage", bands: cooled };

/** The periods in which callers were asked to wait, from the list of cooldowns that began and from the samples, and those
 *  of outages.
 */
function cooled(columns) {
  const last = columns.at[columns.at.length - 1];
  const found = columns.at.flatMap((at, n) => (columns.cooldown[n] ? [[at, at + columns.cooldown[n]]] : []));
  for (const { began, seconds: long } of columns.cooldowns ?? []) found.push([began, began + long]);
  const out = new Map(); // the outages that are not over, by whom they hold
  for (const { event, at, seconds: long, endpoint, callers } of columns.weather ?? []) {
    const who = `${endpoint} ${callers}`;
    if (event === "outage_began") out.set(who, at - long);
    else if (event === "outage_over") found.push([at - long, at]), out.delete(who);
  }
  for (const since of out.values()) found.push([since, last]);
  found.sort((a, b) => a[0] - b[0]);
  const bands = [];
  for (const [from, to] of found) {
    if (from >= last || to <= last - 900) continue;
    const before = bands[bands.length - 1];
    if (before && from <= before[1] + 1) before[1] = Math.max(before[1], Math.min(to, last));
    else bands.push([from, Math.min(to, last)]);
  }
  return bands;
}

/** The chart of a bucket's level; `of()` gives the row of the bucket, or nothing. */
function bucket_chart(of) {
  const levels = (columns) => columns.buckets?.[of()?.bucket] ?? [];
  return {
    title: "Retry bucket",
    unit: "tokens left",
    hidden: () => !of(),
    format: tokens,
    top: (columns, highest) => (of()?.kind === "budget" ? undefined : Math.max(of()?.capacity ?? 0, highest) || undefined),
    lines: [{ name: "level", value: (columns, at) => levels(columns)[at] ?? null }],
  };
}

/** A fetcher of columns: asks for them when there is a new sample, while `element` is visible. */
class Follower {
  constructor(page, element, path, take) {
    this.page = page;
    this.element = element;
    this.path = path;
    this.take = take;
    this.ended = false;
    this.again();
  }

  async again() {
    if (this.ended) return;
    const { page } = this;
    const sample = `${page.board} ${page.sample}`;
    if (page.board !== null && this.had !== sample && !page.paused && !document.hidden && this.element.checkVisibility()) {
      try {
        const columns = await page.json(this.path);
        this.had = sample;
        if (!this.ended) this.take(columns);
      } catch {
// the stream shows that the process does not answer
      }
    }
    if (!this.ended) this.timer = setTimeout(() => this.again(), LOOK);
  }

  end() {
    this.ended = true;
    clearTimeout(this.timer);
  }
}

/** The charts of one upstream, in its pane. */
export class UpstreamCharts {
  constructor(page, name, bucket) {
    this.charts = new Charts([{ ...CALLS, ...COOLDOWN }, { ...SUCCESS, ...COOLDOWN, hidden: no_calls }, { ...LATENCY, ...COOLDOWN, hidden: no_calls }, { ...bucket_chart(bucket), ...COOLDOWN }]);
    this.element = this.charts.element;
    this.follower = new Follower(page, this.element, `series?name=${encodeURIComponent(name)}`, (columns) => this.charts.show(columns));
  }

  end() {
    this.follower.end();
  }
}

/** The charts of all upstreams together, above the table; they can be folded. */
export class Overview {
  constructor(page) {
    this.page = page;
    this.charts = new Charts([CALLS, SUCCESS, LATENCY]);
    this.box = $("overview");
    this.box.append(this.charts.element);
    this.box.open = remembered() ?? matchMedia("(min-width: 761px) and (min-height: 700px)").matches;
    this.box.addEventListener("toggle", () => this.toggled());
    this.toggled();
  }

  toggled() {
    remember(this.box.open);
    this.follower?.end();
    this.follower = this.box.open ? new Follower(this.page, this.box, "series", (columns) => this.charts.show(columns)) : null;
  }

  /** Hide the charts while there is no upstream. */
  draw() {
    this.box.hidden = this.page.live.size === 0;
  }
}

function remembered() {
  try {
    return { open: true, closed: false }[localStorage.getItem(OPEN)] ?? null;
  } catch {
    return null;
  }
}

function remember(open) {
  try {
    localStorage.setItem(OPEN, open ? "open" : "closed");
  } catch {
    // without storage, the height of the page decides
  }
}
