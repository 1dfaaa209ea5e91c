// The table of upstreams, and the details of the one that is chosen.

import { $, Sparkline, count, h, mark, percent, rate, say, seconds, tokens } from "./dom.js";
import { chips } from "./story.js";
import { OUTCOMES, STATES } from "./words.js";
import { VirtualList } from "./virtual.js";

const COLUMNS = [
  { id: "state", text: "State", title: "What is in trouble comes first" },
  { id: "name", text: "Upstream", title: "Name, and where it is" },
  { id: "calls", text: "Calls", title: "Calls of apps" },
  { id: "success", text: "Success", title: "Green: with the first attempt. Blue: after retries. Red: failed." },
  { id: "attempts", text: "Att./call", title: "Sendings upstream for each call" },
  { id: "bucket", text: "Bucket", title: "Retry tokens left, and their last five minutes" },
  { id: "cooldown", text: "Cooldown", title: "How long calls are still held, since the upstream asked for it; or how many endpoints' circuit breakers are open" },
  { id: "limiter", text: "Limit", title: "Attempts a second that a rate bucket or the adaptive limiter lets through; attempts under way, of those that may be" },
  { id: "p50", text: "p50", title: "Half of the calls of the last minute took no longer, retries included" },
  { id: "p95", text: "p95", title: "95 of 100 calls of the last minute took no longer, retries included" },
];

const phone = matchMedia("(max-width: 760px)");

export class Upstreams {
  constructor(house) {
    this.house = house;
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
    this.detail = new Detail(house, () => this.close());
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
    this.house.moved_on();
  }

  /** By the next column, or by the same one the other way round. */
  sort_on(back) {
    const at = COLUMNS.findIndex(({ id }) => id === this.sort.by);
    this.sort_by(back ? this.sort.by : COLUMNS[(at + 1) % COLUMNS.length].id);
  }

  /** Everything that is shown of one upstream, worked out. */
  item(name) {
    const { house } = this;
    const live = house.live.get(name);
    const about = house.about.get(name);
    const policies = about ? [about, ...about.routes] : [];
    const bucket = lowest(policies.map((each) => house.buckets.get(each.bucket)));
    const rated = lowest(policies.map((each) => house.buckets.get(each.rate)));
    const limiter = house.buckets.get(about?.limiter ? `${about.limiter} (limiter)` : "");
    return { name, live, about, bucket, rated, limiter, state: state(live, bucket) };
  }

  draw() {
    const { house } = this;
    const items = [...house.live.keys()].map((name) => this.item(name));
    const troubled = items.filter((item) => STATES[item.state].rank > 0).length;
    say($("troubled"), troubled ? count(troubled) : "");
    say($("count-upstreams"), items.length ? count(items.length) : "");
    mark($("count-upstreams"), "data-tone", items.some((item) => STATES[item.state].rank > 2) ? "bad" : null);
    const wanted = $("upstream-filter").value.trim().toLowerCase();
    const only = $("only-trouble").checked;
    const shown = items.filter((item) => (!only || STATES[item.state].rank > 0) && matches(item, wanted));
    shown.sort(this.order());
    for (const [id, cell] of this.heads) mark(cell, "aria-sort", this.sort.by !== id ? null : this.sort.up ? "ascending" : "descending");
    this.list.show(shown, shown.length ? null : this.nothing(items.length, only));
    this.detail.draw(house.live.has(this.opened) ? this.item(this.opened) : null, this.opened);
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
    if (!this.house.ready) return h("p", { "data-about": "wait" }, "Waiting for redrive…");
    if (all) {
      const clear = () => {
        $("upstream-filter").value = "";
        $("only-trouble").checked = false;
        this.draw();
      };
      const text = only && !$("upstream-filter").value ? "No upstream is in trouble." : "No upstream matches the filter.";
      return h("div", { "data-about": text }, h("p", {}, text), h("button", { type: "button", onclick: clear }, "Show all of them"));
    }
    const file = this.house.ready.config_file || "config/redrive.yaml";
    return h(
      "div",
      { "data-about": "none" },
      h("h2", {}, "No upstream is named yet"),
      h("p", {}, "Hosts that no upstream names are forwarded under the defaults, and show here once they are called. To name one, add this to ", h("code", {}, file), ":"),
      h("pre", {}, "upstreams:\n  github:\n    url: https://api.github.com\n    dialects: [http, github]"),
      h("p", { class: "quiet" }, "The file is loaded again when it changes."),
    );
  }

  fill(row, item) {
    const { live, about, bucket } = item;
    const figures = this.figures(item);
    const parts = row.parts;
    row.dataset.state = item.state;
    say(parts.name, live.name || "(refused)");
    say(parts.where, live.name ? (about?.endpoints.join(", ") ?? "") : "requests that were turned away before any policy applied");
    mark(parts.name, "title", live.name);
    const known = STATES[item.state];
    say(parts.badge, known.rank ? known.text : "");
    mark(parts.state, "title", `${known.text}: ${known.why}`);
    mark(parts.badge, "title", [opened(live), aside(live)].filter(Boolean).join("\n") || null);
    mark(parts.state, "aria-label", known.text);
    const recent = figures === live.recent;
    say(parts.calls, recent ? rate(figures.calls / Math.max(this.house.window, 1)) : count(figures.calls));
    say(parts.unit, recent ? "/s" : "");
    fillShares(parts, figures);
    say(parts.attempts, figures.calls ? (figures.attempts / figures.calls).toFixed(2) : "–");
    mark(parts.attempts, "data-tone", figures.attempts > figures.calls * 1.1 ? "wait" : null);
    say(parts.level, bucket ? filled(bucket) : about?.bucket ? "full" : about ? "no bucket" : "–");
    mark(parts.level, "title", bucket ? `${bucket.bucket} (${bucket.kind})` : about?.bucket ? `${about.bucket}: not used yet` : null);
    mark(parts.level, "data-tone", bucket && drained(bucket) ? "bad" : null);
    parts.spark.element.classList.toggle("none", !bucket);
    parts.spark.draw(bucket ? this.house.history(bucket.bucket) : [], bucket?.capacity ?? 1, 60);
    const broken = live.open?.length ?? 0;
    say(parts.cooldown, live.cooldown ? seconds(live.cooldown) : broken ? `${count(broken)} open` : "–");
    mark(parts.cooldown, "title", [live.held ? `${count(live.held)} calls are held now` : "", opened(live)].filter(Boolean).join("\n") || null);
    mark(parts.cooldown, "data-tone", broken ? "bad" : live.cooldown ? "wait" : null);
    say(parts.limiter, limit(item));
    mark(parts.limiter, "title", live.queued ? `${live.queued === 1 ? "1 call waits" : `${count(live.queued)} calls wait`} for a place among the attempts under way` : null);
    mark(parts.limiter, "data-tone", live.queued ? "wait" : null);
    say(parts.p50, seconds(live.recent.p50));
    say(parts.p95, seconds(live.recent.p95));
  }

  open(name) {
    this.opened = name;
    this.list.chosen = name;
    this.detail.load(name);
    this.draw();
    this.house.moved_on();
  }

  close() {
    if (this.opened === undefined) return;
    this.opened = undefined;
    this.draw();
    this.list.scroll.focus();
    this.house.moved_on();
  }

  /** What of this panel is in the page's URL (place.js): the sort, and the upstream that is open. */
  place() {
    const { by, up } = this.sort;
    const sort = by === "state" && !up ? null : `${up ? "" : "-"}${by}`;
    return { sort, upstream: this.opened === "" ? "(refused)" : this.opened };
  }

  /** Take up what a URL says. */
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

function state(live, bucket) {
  const { calls, failed, attempts } = live.recent;
  if (live.name === "") return calls ? "refused" : "quiet"; // no upstream: what no policy applied to
  if (live.cooldown > 0) return "cooling";
  if (calls && failed * 2 >= calls) return "failing";
  if (bucket && drained(bucket)) return "drained";
  if (live.open?.length) return "open";
  if (live.aside?.length) return "aside";
  if (!calls) return "quiet";
  if (failed) return "errors";
  return attempts > calls * 1.1 ? "retrying" : "ok";
}

/** Which endpoints' circuit breakers are open, and for how long. */
function opened(live) {
  return (live.open ?? []).map(([endpoint, left]) => `${endpoint}: open, ${left ? `the next probe in ${seconds(left)}` : "a probe is due"}`).join("\n");
}

/** Which of its credentials are put aside, by number. */
function aside(live) {
  return (live.aside ?? []).map(([key, left]) => `key ${key}: put aside, for ${seconds(left)} yet`).join("\n");
}

/** Its credentials by number, and which are put aside. */
function keys({ credentials }) {
  return (credentials ?? []).map(({ key, usable, seconds_left }) => `key ${key}: ${usable ? "in use" : `put aside, for ${seconds(seconds_left)} yet`}`).join("\n");
}

/** Whether a bucket hardly grants a retry any more; a throttle grants none from the half on (gRPC A6). */
function drained({ kind, level, capacity }) {
  if (kind === "throttle") return level <= capacity / 2;
  if (kind === "budget") return level < 1;
  return kind !== "rate" && level < capacity * 0.1;
}

/** What there is, of what there may be; a budget grows with the calls, and has no most. */
function filled({ kind, level, capacity }) {
  return kind === "budget" ? `${tokens(level)} left` : `${tokens(level)}/${tokens(capacity)}`;
}

function lowest(buckets) {
  const found = buckets.filter(Boolean);
  return found.length ? found.reduce((a, b) => (b.level / (b.capacity || 1) < a.level / (a.capacity || 1) ? b : a)) : null;
}

function matches({ name, about }, wanted) {
  if (!wanted) return true;
  return [name, ...(about?.endpoints ?? []), ...(about?.hosts ?? [])].some((text) => text.toLowerCase().includes(wanted));
}

function sortable(item, by, figures) {
  const { live, bucket } = item;
  switch (by) {
    case "state": return STATES[item.state].rank;
    case "name": return item.name.toLowerCase();
    case "calls": return figures.calls;
    case "success": return figures.calls ? figures.failed / figures.calls : -1;
    case "attempts": return figures.calls ? figures.attempts / figures.calls : 0;
    case "bucket": return bucket ? -bucket.level / (bucket.capacity || 1) : -2;
    case "cooldown": return live.cooldown;
    case "limiter": return item.limiter?.fill_rate ?? item.rated?.level ?? (live.under_way || -1);
    default: return live.recent[by] ?? -1;
  }
}

function limit({ limiter, rated, about, live }) {
  const most = about?.concurrency;
  const placed = most ? `${count(live.under_way)}/${count(most)}` : live.under_way ? `${count(live.under_way)} under way` : "";
  const paced = pace({ limiter, rated, about });
  return placed ? (paced === "–" ? placed : `${paced}, ${placed}`) : paced;
}

function pace({ limiter, rated, about }) {
  if (limiter) return limiter.enabled ? `${rate(limiter.fill_rate)}/s` : "open";
  if (rated) return `${tokens(rated.level)} left`;
  return about?.limiter || about?.rate ? "open" : "–";
}

function makeRow() {
  const parts = { spark: new Sparkline(60, 20) };
  const cell = (id, ...children) => h("div", { class: `cell ${id}`, role: "gridcell" }, children);
  const text = (name, kind = "span", cls = null) => (parts[name] = h(kind, { class: cls }));
  parts.state = h("span", { class: "lamp", role: "img" });
  parts.bar = h("span", { class: "bar3", "aria-hidden": "true" }, text("good", "i", "good"), text("mended", "i", "mended"), text("bad", "i", "bad"));
  const row = h(
    "div",
    { class: "row", role: "row" },
    cell("state", parts.state),
    cell("name", text("name", "b"), text("badge", "span", "badge"), text("where", "span", "where")),
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
    // What there is must be seen, however little it is.
    parts[name].style.flexGrow = calls ? String(part && Math.max(part / calls, 0.03)) : "0";
  }
  say(parts.share, percent(at_once + after_retries, calls));
  mark(parts.share, "data-tone", failed ? "bad" : null);
  mark(parts.share, "title", calls ? `${count(at_once)} with the first attempt, ${count(after_retries)} after retries, ${count(failed)} failed` : null);
}

/** The pane beside the table. */
class Detail {
  constructor(house, close) {
    this.house = house;
    this.pane = $("upstream-detail");
    this.close = close;
    this.name = undefined;
    this.loaded = null;
    this.spark = new Sparkline(300, 56);
  }

  /** Ask for what the board does not carry, now and every few seconds while it is shown. */
  async load(name) {
    this.name = name;
    this.loaded = null;
    clearTimeout(this.timer);
    const again = async () => {
      if (this.name !== name) return;
      if (!this.house.paused && !document.hidden) {
        try {
          const { upstreams } = await this.house.json(`upstreams?name=${encodeURIComponent(name)}`);
          if (this.name !== name) return;
          this.loaded = upstreams[0] ?? null;
          this.house.changed();
        } catch {
          // the stream says that nothing answers
        }
      }
      this.timer = setTimeout(again, 3000);
    };
    await again();
  }

  draw(item, name) {
    mark(this.pane, "hidden", item === null ? "" : null);
    document.body.classList.toggle("detailed", !this.pane.hidden);
    if (item === null) {
      this.name = undefined;
      this.shown = undefined;
      return;
    }
    if (this.shown !== name) this.build(name);
    this.shown = name;
    this.fill(item);
  }

  build(name) {
    const parts = (this.parts = {});
    const block = (id, title) => h("section", {}, h("h3", {}, title), (parts[id] = h("div", {})));
    const button = (text, act) => h("button", { type: "button", onclick: act }, text);
    this.pane.replaceChildren(
      h("header", {}, h("h2", {}, name || "(refused)"), (parts.badge = h("span", { class: "badge" })), h("button", { type: "button", class: "close", "aria-label": "Close", title: "Close (Esc)", onclick: () => this.close() }, "×")),
      h("p", { class: "buttons" }, button("Its calls", () => this.house.show_calls(name)), name && name !== "unmatched" ? button("Its configuration", () => this.house.show_config(name)) : null),
      h("section", { class: "bucket" }, h("h3", {}, "Bucket, last five minutes"), this.spark.element, (parts.level = h("p", { class: "quiet" }))),
      block("outcomes", "What came of its calls, since the start"),
      block("latest", "Latest calls that were retried or failed"),
      block("policy", "Policy"),
    );
  }

  fill(item) {
    const { parts } = this;
    const { bucket } = item;
    say(parts.badge, STATES[item.state].text);
    parts.badge.dataset.state = item.state;
    mark(parts.badge, "title", STATES[item.state].why);
    this.spark.element.classList.toggle("none", !bucket);
    this.spark.draw(bucket ? this.house.history(bucket.bucket) : [], bucket?.capacity ?? 1, 60);
    say(parts.level, bucket ? `${bucket.kind === "budget" ? `${tokens(bucket.level)} retries left` : `${tokens(bucket.level)} of ${tokens(bucket.capacity)} tokens`} in ${bucket.bucket} (${bucket.kind}${bucket.scopes > 1 ? `, the lowest of ${bucket.scopes} scopes` : ""})` : item.about?.bucket ? `${item.about.bucket}: not used yet, so full` : "Its retries are not paid from a bucket.");
    refresh(parts.outcomes, this.outcomes());
    refresh(parts.latest, this.latest(item.name));
    refresh(parts.policy, this.policy(item.about, item.live));
  }

  outcomes() {
    const found = Object.entries(this.loaded?.outcomes ?? {}).sort((a, b) => b[1] - a[1]);
    if (!found.length) return h("p", { class: "quiet" }, this.loaded ? "No calls yet." : "…");
    const all = found.reduce((sum, [, n]) => sum + n, 0);
    const table = h("table", { class: "plain" }, found.map(([outcome, n]) => h("tr", { title: OUTCOMES[outcome] }, h("td", {}, h("button", { type: "button", class: `outcome ${outcome}`, title: `The calls that are kept of this outcome. ${OUTCOMES[outcome] ?? ""}`, onclick: () => this.house.show_calls(this.name, outcome) }, outcome)), h("td", { class: "number" }, count(n)), h("td", { class: "number" }, percent(n, all)))));
    const advice = [retriedByApps(this.loaded), failedLater(this.loaded)].filter(Boolean);
    return advice.length ? h("div", {}, table, advice.map((text) => h("p", { class: "advice" }, text))) : table;
  }

  latest(name) {
    const calls = this.house.notable.filter((call) => call.upstream === name).slice(0, 8);
    if (!calls.length) return h("p", { class: "quiet" }, "None among those that are kept.");
    const line = (call) =>
      h("button", { type: "button", class: "latest", onclick: () => this.house.show_call(call) },
        h("span", { class: "quiet" }, call.time.slice(11, 19)), h("span", { class: "path" }, `${call.method} ${call.path}`),
        h("span", { class: "chips" }, chips(call.history, call)),
        h("span", { class: `outcome ${call.outcome}` }, call.outcome));
    return h("div", {}, calls.map(line));
  }

  policy(about, live) {
    if (!about) return h("p", { class: "quiet" }, "No upstream of this name is configured.");
    const rows = [["Endpoints", about.endpoints.join("\n") || "where the request says"], ["Hosts", about.hosts.join("\n")], ["Prefix", about.prefix ?? ""], ["Mode", about.mode], ["Circuit breakers", opened(live)], ["Keys", keys(about)]];
    const one = (policy, name) => [name, `${policy.strategy}${policy.strategy === policy.kind ? "" : ` (${policy.kind})`}, ${policy.max_attempts} attempt${policy.max_attempts === 1 ? "" : "s"}, bucket ${policy.bucket ?? "off"}${policy.rate ? `, rate ${policy.rate}` : ""}${policy.fallback.length ? `, then ${policy.fallback.join(", ")}` : ""}`];
    rows.push(one(about, "Strategy"), ...about.routes.map((route) => one(route, `Route ${route.route}`)));
    return h("table", { class: "plain" }, rows.filter(([, text]) => text).map(([name, text]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, text))));
  }
}

/** What there is to say of streams that told of an error once the app had begun to read. */
function failedLater({ stream_errors: errors }) {
  if (!errors) return "";
  return `${count(errors)} error${errors === 1 ? "" : "s"} came in streams that had begun to go to the app: those are never retried here.`;
}

/** What there is to say of apps that retry on top of redrive. */
function retriedByApps({ app_retries: sure, likely_app_retries: likely }) {
  if (!sure && !likely) return "";
  const parts = [];
  if (sure) parts.push(`${count(sure)} of these calls were an app's own retries`);
  if (likely) parts.push(`${count(likely)} look like an app's own retries of calls that redrive had given up`);
  return `${parts.join(", and ")}. Switch the app's retries off: they multiply with those made here.`;
}

/** Put a part in the place of what was there, unless it says the same. */
function refresh(place, made) {
  const now = made.textContent;
  if (place.said !== now) {
    place.said = now;
    place.replaceChildren(made);
  }
}
