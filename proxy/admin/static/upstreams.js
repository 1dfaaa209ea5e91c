// The panel with the table of upstreams.

import { Detail } from "./detail.js";
import { $, Sparkline, count, h, mark, percent, rate, say, seconds, tone_of } from "./dom.js";
import { Holding } from "./holding.js";
import { Reasons } from "./reasons.js";
import { amount, attempts_in_words, attempts_per_call, cooldown, filled, held_in_words, keys_in_words, limit, opened, weather_in_words } from "./standing.js";
import { Overview } from "./trends.js";
import { VirtualList } from "./virtual.js";

const COLUMNS = [
  { id: "state", text: "State", title: "Upstreams in trouble come first" },
  { id: "name", text: "Upstream", title: "Name and address" },
  { id: "calls", text: "Calls", title: "Calls of apps" },
  { id: "success", text: "Success", title: "Green: with the first attempt. Blue: after retries. Red: failed." },
  { id: "attempts", text: "Att./call", title: "Attempts per call, counting only calls with an attempt here, including calls from other upstreams" },
  { id: "bucket", text: "Bucket", title: "Retry tokens left, and their last five minutes" },
  { id: "cooldown", text: "Cooldown", title: "How long an outage has lasted; how long callers still have to wait; how many keys have to; or how many endpoints' circuit breakers are open" },
  { id: "limiter", text: "Limit", title: "Attempts a second that a rate bucket or the adaptive limiter allows; attempts under way, out of the most allowed, by a fixed limit or by the one found for an upstream in trouble" },
  { id: "p50", text: "p50", title: "Half of the calls of the last minute took no longer, retries included" },
  { id: "p95", text: "p95", title: "95 of 100 calls of the last minute took no longer, retries included" },
];

/** The greatest number of upstreams that leave room for what holds calls, and for the reasons of the last minute. */
const FEW = 8;

const phone = matchMedia("(max-width: 760px)");

export class Upstreams {
  constructor(page) {
    this.page = page;
    this.sort = { by: "state", up: false };
    this.heads = new Map();
    this.list = new VirtualList($("upstream-grid"), {
      label: "Upstreams",
      head: this.head(),
      make: () => makeRow(),
      fill: (row, item) => this.fill(row, item),
      key: (item) => item.name,
      open: (item) => this.open(item.name),
      height: () => (phone.matches ? 84 : 34),
    });
    this.detail = new Detail(page, () => this.close());
    this.overview = new Overview(page);
    this.holding = new Holding((name) => this.open(name));
    this.reasons = new Reasons(page);
    for (const id of ["upstream-filter", "only-trouble", "span"]) $(id).addEventListener("input", () => this.draw());
    this.sorter();
    phone.addEventListener("change", () => this.draw());
  }

  head() {
    const cells = COLUMNS.map(({ id, text, title }) => {
      const button = h("button", { type: "button", title, tabindex: "-1", onclick: () => this.sort_by(id) }, text);
      const cell = h("div", { role: "columnheader", class: `cell ${id}` }, button);
      this.heads.set(id, cell);
      return cell;
    });
    return h("div", { class: "head row", role: "row" }, cells);
  }

  sorter() {
    const select = $("sort");
    for (const { id, text } of COLUMNS) select.append(h("option", { value: id }, id === "state" ? "trouble first" : text));
    select.addEventListener("input", () => this.sort_by(select.value));
  }

  sort_by(id) {
    const down = id !== "name";
    this.sort = this.sort.by === id && $("sort") !== document.activeElement ? { by: id, up: !this.sort.up } : { by: id, up: !down };
    $("sort").value = id;
    this.draw();
    this.page.moved_on();
  }

  /** Sort by the next column; with `back`, reverse the order of the current one. */
  sort_on(back) {
    const at = COLUMNS.findIndex(({ id }) => id === this.sort.by);
    this.sort_by(back ? this.sort.by : COLUMNS[(at + 1) % COLUMNS.length].id);
  }

  /** The data of one upstream's row. */
  item(name) {
    const { page } = this;
    const about = page.about.get(name);
    const live = page.live.get(name);
    const limiter = page.buckets.get(about?.limiter ? `${about.limiter} (limiter)` : "");
    return { name, live, about, bucket: page.buckets.get(live.bucket), rated: page.buckets.get(live.rate), limiter, state: page.states[live.state] };
  }

  draw() {
    const { page } = this;
    const items = [...page.live.keys()].map((name) => this.item(name));
    const troubled = items.filter((item) => item.state.rank > 0).length;
    say($("troubled"), troubled ? count(troubled) : "");
    const serious = items.filter((item) => item.state.rank > 2).length;
    say($("count-upstreams"), items.length ? count(serious || items.length) : "");
    mark($("count-upstreams"), "data-tone", serious ? "bad" : null);
    mark($("count-upstreams"), "title", serious ? `${count(serious)} of ${count(items.length)} in serious trouble` : null);
    const wanted = $("upstream-filter").value.trim().toLowerCase();
    const only = $("only-trouble").checked;
    const shown = items.filter((item) => (!only || item.state.rank > 0) && matches(item, wanted));
    shown.sort(this.order());
    for (const [id, cell] of this.heads) mark(cell, "aria-sort", this.sort.by !== id ? null : this.sort.up ? "ascending" : "descending");
    this.list.show(shown, shown.length ? null : this.nothing(items.length, only));
    $("upstream-grid").parentElement.classList.toggle("few", shown.length > 0 && items.length <= FEW);
    this.holding.draw(items, items.length <= FEW);
    this.reasons.draw(items.length > 0 && items.length <= FEW);
    this.overview.draw();
    this.detail.draw(page.live.has(this.opened) ? this.item(this.opened) : null, this.opened);
  }

  order() {
    const { by, up } = this.sort;
    const value = (item) => sortable(item, by, this.figures(item));
    const turn = up ? 1 : -1;
    return (a, b) => {
      const [x, y] = [value(a), value(b)];
      return x < y ? -turn : x > y ? turn : 0;
    };
  }

  figures(item) {
    return $("span").value === "recent" ? item.live.recent : item.live;
  }

  nothing(all, only) {
    if (!this.page.ready) return h("p", { "data-about": "wait" }, "Waiting for redrive…");
    if (all) {
      const clear = () => {
        $("upstream-filter").value = "";
        $("only-trouble").checked = false;
        this.draw();
      };
      const text = only && !$("upstream-filter").value ? "No upstream is in trouble." : "No upstream matches the filter.";
      return h("div", { "data-about": text }, h("p", {}, text), h("button", { type: "button", onclick: clear }, "Show all"));
    }
    const file = this.page.ready.config_file || "config/redrive.yaml";
    return h(
      "div",
      { "data-about": "none" },
      h("h2", {}, "No upstream is named yet"),
      h("p", {}, "Hosts that no upstream names are forwarded under the defaults, and appear here once they are called. To name one, add this to ", h("code", {}, file), ":"),
      h("pre", {}, "upstreams:\n  github:\n    url: https://api.github.com\n    dialects: [http, github]"),
      h("p", { class: "quiet" }, "The file is loaded again when it changes."),
    );
  }

  fill(row, item) {
    const { live, about, bucket, state } = item;
    const figures = this.figures(item);
    const parts = row.parts;
    row.dataset.state = live.state;
    say(parts.name, live.name || "(refused)");
    say(parts.where, live.name ? (about?.endpoints.join(", ") ?? "") : "requests that were turned away before any policy applied");
    mark(parts.name, "title", live.name);
    say(parts.badge, state.rank ? state.text : "");
    parts.also.forEach((chip, at) => {
      const beside = live.also?.[at];
      say(chip, beside ? this.page.states[beside].text : "");
      mark(chip, "data-state", beside ?? null);
      mark(chip, "title", beside ? this.page.states[beside].why : null);
    });
    mark(parts.state, "title", `${state.text}: ${state.why}`);
    mark(parts.badge, "title", [held_in_words(live), ...weather_in_words(live), opened(live), keys_in_words(live)].filter(Boolean).join("\n") || null);
    mark(parts.state, "aria-label", state.text);
    say(parts.held, live.held ? `${count(live.held)} held` : "");
    mark(parts.held, "title", held_in_words(live) || null);
    const recent = figures === live.recent;
    say(parts.calls, recent ? rate(figures.calls / Math.max(this.page.window, 1)) : count(figures.calls));
    say(parts.unit, recent ? "/s" : "");
    mark(parts.calls, "title", figures.arrived ? `and ${amount(figures.arrived, "call")} from other upstreams, as their fallback` : null);
    fillShares(parts, figures);
    const per_call = attempts_per_call(figures);
    say(parts.attempts, per_call === null ? "–" : per_call.toFixed(2));
    mark(parts.attempts, "title", attempts_in_words(figures));
    mark(parts.attempts, "data-tone", per_call > 1.1 ? "wait" : null);
    say(parts.level, bucket ? filled(bucket) : about?.bucket ? "full" : about ? "no bucket" : "–");
    mark(parts.level, "title", bucket ? `${bucket.bucket} (${bucket.kind})` : about?.bucket ? `${about.bucket}: not used yet` : null);
    mark(parts.level, "data-tone", bucket?.drained ? "bad" : null);
    parts.spark.element.classList.toggle("none", !bucket);
    parts.spark.draw(bucket ? this.page.history(bucket.bucket) : [], bucket?.capacity ?? 1, 60);
    say(parts.cooldown, cooldown(live));
    mark(parts.cooldown, "title", [held_in_words(live), ...weather_in_words(live), opened(live), keys_in_words(live)].filter(Boolean).join("\n") || null);
    mark(parts.cooldown, "data-tone", live.open?.length || live.weather?.some(({ outage }) => outage) ? "bad" : live.cooldown ? "wait" : null);
    say(parts.limiter, limit(item));
    const limited = weather_in_words({ weather: live.weather?.filter((lane) => lane.limit) }).join("\n");
    mark(parts.limiter, "title", limited || live.queued ? limited || `${amount(live.queued, "call")} ${live.queued === 1 ? "waits" : "wait"} for a place among the attempts under way` : null);
    mark(parts.limiter, "data-tone", live.queued || live.weather?.some(({ limit: found }) => found) ? "wait" : null);
    say(parts.p50, seconds(live.recent.p50));
    say(parts.p95, seconds(live.recent.p95));
  }

  open(name) {
    this.opened = name;
    this.list.chosen = name;
    this.detail.load(name);
    this.draw();
    this.page.moved_on();
  }

  close() {
    if (this.opened === undefined) return;
    this.opened = undefined;
    this.draw();
    this.list.scroll.focus();
    this.page.moved_on();
  }

  /** This panel's part of the page's URL (place.js): the sort order, and the upstream that is open. */
  place() {
    const { by, up } = this.sort;
    const sort = by === "state" && !up ? null : `${up ? "" : "-"}${by}`;
    return { sort, upstream: this.opened === "" ? "(refused)" : this.opened };
  }

  /** Show what a URL says. */
  go(query) {
    const sort = query.get("sort") ?? "-state";
    const by = sort.replace(/^-/, "");
    this.sort = COLUMNS.some(({ id }) => id === by) ? { by, up: !sort.startsWith("-") } : { by: "state", up: false };
    $("sort").value = this.sort.by;
    const upstream = query.get("upstream");
    if (upstream !== null) this.open(upstream === "(refused)" ? "" : upstream);
    else if (this.opened !== undefined) this.close();
    else this.draw();
  }
}

function matches({ name, about }, wanted) {
  if (!wanted) return true;
  return [name, ...(about?.endpoints ?? []), ...(about?.hosts ?? [])].some((text) => text.toLowerCase().includes(wanted));
}

function sortable(item, by, figures) {
  const { live, bucket } = item;
  switch (by) {
    case "state": return item.state.rank;
    case "name": return item.name.toLowerCase();
    case "calls": return figures.calls;
    case "success": return figures.calls ? figures.failed / figures.calls : -1;
    case "attempts": return attempts_per_call(figures) ?? 0;
    case "bucket": return bucket ? -bucket.level / (bucket.capacity || 1) : -2;
    case "cooldown": return live.cooldown;
    case "limiter": return item.limiter?.fill_rate ?? item.rated?.level ?? (live.under_way || -1);
    default: return live.recent[by] ?? -1;
  }
}

function makeRow() {
  const parts = { spark: new Sparkline(60, 20) };
  const cell = (id, ...children) => h("div", { class: `cell ${id}`, role: "gridcell" }, children);
  const text = (name, kind = "span", cls = null) => (parts[name] = h(kind, { class: cls }));
  parts.state = h("span", { class: "lamp", role: "img" });
  parts.also = [0, 1].map(() => h("span", { class: "also" }));
  parts.bar = h("span", { class: "bar3", "aria-hidden": "true" }, text("good", "i", "good"), text("mended", "i", "mended"), text("bad", "i", "bad"));
  const row = h(
    "div",
    { class: "row", role: "row" },
    cell("state", parts.state),
    cell("name", text("name", "b"), text("badge", "span", "badge"), ...parts.also, text("held", "span", "holds"), text("where", "span", "where")),
    cell("calls", text("calls"), text("unit", "small")),
    cell("success", parts.bar, text("share")),
    cell("attempts", text("attempts")),
    cell("bucket", parts.spark.element, text("level")),
    cell("cooldown", text("cooldown")),
    cell("limiter", text("limiter")),
    cell("p50", text("p50")),
    cell("p95", text("p95")),
  );
  row.parts = parts;
  return row;
}

function fillShares(parts, { calls, at_once, after_retries, failed }) {
  for (const [name, part] of [["good", at_once], ["mended", after_retries], ["bad", failed]]) {
    // Even a tiny share must be visible.
    parts[name].style.flexGrow = calls ? String(part && Math.max(part / calls, 0.03)) : "0";
  }
  say(parts.share, percent(at_once + after_retries, calls));
  mark(parts.share, "data-tone", tone_of(failed, calls));
  mark(parts.share, "title", calls ? `${count(at_once)} with the first attempt, ${count(after_retries)} after retries, ${count(failed)} failed` : null);
}
