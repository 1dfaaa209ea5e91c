// The pane beside the table: details of one upstream.

import { $, amount_of as amount, count, h, mark, percent, plain, rate, say, seconds, tokens, tone_of } from "./dom.js";
import { attempts_in_words, attempts_per_call, cooldown, filled, held_in_words, limit, probe, weather_in_words } from "./standing.js";
import { chips } from "./story.js";
import { UpstreamCharts } from "./trends.js";
import { OUTCOMES } from "./words.js";

const FIGURES = [
  ["calls", "Calls"], ["success", "Success"], ["attempts", "Attempts/call"], ["bucket", "Bucket"],
  ["cooldown", "Cooldown"], ["limit", "Limit"], ["p50", "p50"], ["p95", "p95"],
];

export class Detail {
  constructor(page, close) {
    this.page = page;
    this.pane = $("upstream-detail");
    this.close = close;
    this.name = undefined;
    this.loaded = null;
    this.item = null;
  }

  /** Fetch the details that are not on the board, now and every few seconds while the pane is open. */
  async load(name) {
    this.name = name;
    this.loaded = null;
    clearTimeout(this.timer);
    const again = async () => {
      if (this.name !== name) return;
      if (!this.page.paused && !document.hidden) {
        try {
          const { upstreams } = await this.page.json(`upstreams?name=${encodeURIComponent(name)}`);
          if (this.name !== name) return;
          this.loaded = upstreams[0] ?? null;
          this.page.changed();
        } catch {
// the stream shows that the process does not answer
        }
      }
      this.timer = setTimeout(again, 3000);
    };
    await again();
  }

  draw(item, name) {
    mark(this.pane, "hidden", item === null ? "" : null);
    document.body.classList.toggle("detailed", !this.pane.hidden);
    this.item = item;
    if (item === null) { // the upstream is not on the board yet, or is gone
      if (name !== undefined) return;
      this.charts?.end();
      this.charts = this.name = this.shown = undefined;
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
    const figure = ([id, text]) => h("div", {}, h("dt", {}, text), (parts[id] = h("dd", {})));
    this.charts?.end();
    this.charts = new UpstreamCharts(this.page, name, () => this.item?.bucket);
    this.pane.replaceChildren(
      h("div", { class: "standing" },
        h("header", {}, h("h2", {}, name || "(refused)"), (parts.badge = h("span", { class: "badge" })), (parts.also = h("span", { class: "beside" })), h("button", { type: "button", class: "close", "aria-label": "Close", title: "Close (Esc)", onclick: () => this.close() }, "×")),
        h("dl", { class: "figures" }, FIGURES.map(figure))),
      h("p", { class: "buttons" }, button("Its calls", () => this.page.show_calls(name)), name && name !== "unmatched" ? button("Its configuration", () => this.page.show_config(name)) : null),
      (parts.waits = h("section", { class: "waits" }, h("h3", {}, "What holds calls"), (parts.left = h("p", {})), (parts.began = h("div", {})), (parts.places = h("ul", {})))),
      block("outcomes", "How its calls ended, since the start"),
      h("section", {}, this.charts.element, (parts.level = h("p", { class: "quiet" }))),
      block("latest", "Latest calls that were retried or failed"),
      block("policy", "Policy"),
    );
  }

  fill(item) {
    const { parts } = this;
    const { bucket, live, state } = item;
    say(parts.badge, state.text);
    parts.badge.dataset.state = live.state;
    mark(parts.badge, "title", state.why);
    const beside = (live.also ?? []).map((name) => [name, this.page.states[name]]);
    refresh(parts.also, h("span", {}, beside.map(([name, { text, why }]) => h("span", { class: "also", "data-state": name, title: why }, text))));
    this.fill_figures(item);
    this.fill_waits(live);
    say(parts.level, bucket ? `${bucket.kind === "budget" ? `${tokens(bucket.level)} retries left` : `${tokens(bucket.level)} of ${tokens(bucket.capacity)} tokens`} in ${bucket.bucket} (${bucket.kind}${bucket.scopes > 1 ? `, the lowest of ${bucket.scopes} scopes` : ""})` : item.about?.bucket ? `${item.about.bucket}: not used yet, so full` : "Its retries are not paid from a bucket.");
    refresh(parts.outcomes, this.outcomes());
    refresh(parts.latest, this.latest(item.name));
    refresh(parts.policy, this.policy(item.about));
  }

  /** Fill in the figures of the last minute, at the top of the pane. */
  fill_figures(item) {
    const { parts } = this;
    const { live, bucket, about } = item;
    const { recent } = live;
    const per_call = attempts_per_call(recent);
    say(parts.calls, `${rate(recent.calls / Math.max(this.page.window, 1))}/s`);
    say(parts.success, percent(recent.at_once + recent.after_retries, recent.calls));
    mark(parts.success, "data-tone", tone_of(recent.failed, recent.calls));
    say(parts.attempts, per_call === null ? "–" : per_call.toFixed(2));
    mark(parts.attempts, "title", attempts_in_words(recent));
    mark(parts.attempts, "data-tone", per_call > 1.1 ? "wait" : null);
    say(parts.bucket, bucket ? filled(bucket) : about?.bucket ? "full" : about ? "none" : "–");
    say(parts.cooldown, cooldown(live));
    mark(parts.cooldown, "data-tone", live.open?.length || live.weather?.some(({ outage }) => outage) ? "bad" : live.cooldown ? "wait" : null);
    say(parts.limit, limit(item));
    say(parts.p50, seconds(recent.p50));
    say(parts.p95, seconds(recent.p95));
  }

  /** Fill in what makes calls wait: outages and limits, the cooldown and the call that began it, circuit breakers, keys. */
  fill_waits(live) {
    const { parts, loaded } = this;
    const held = live.held ? ` ${held_in_words(live)}` : "";
    const until = new Date(Date.now() + live.cooldown * 1000).toLocaleTimeString("en-GB");
    say(parts.left, live.cooldown ? `Calls are asked to wait for another ${seconds(live.cooldown)}, until ${until}.${held}` : held.trim());
    parts.left.hidden = !parts.left.textContent;
    refresh(parts.began, live.cooldown && loaded ? this.began(loaded.cooldown) : h("div", {}));
    const places = [
      ...weather_in_words(live),
      ...(loaded?.circuits ?? []).map(({ endpoint, open, seconds_left }) => `${endpoint}: ${open ? `open, ${probe(seconds_left)}` : "circuit closed"}`),
      ...(loaded?.credentials ?? []).map((key) => `key ${key.key}: ${key.usable ? (key.cooldown_seconds ? `cooling down for another ${seconds(key.cooldown_seconds)}` : "in use") : `put aside for another ${seconds(key.seconds_left)}`}${key.file_readable === false ? "; its file can't be read, and the earlier value stays in use" : ""}`),
    ];
    refresh(parts.places, h("div", {}, places.map((text) => h("li", { "data-tone": / in use$| closed$/.test(text) ? null : "wait" }, text))));
    parts.waits.hidden = !places.length && parts.left.hidden;
  }

  /** A sentence about the answer that began the cooldown. */
  began(cooldown) {
    if (!cooldown) return h("p", { class: "quiet" }, "Which answer began it is not known: the worker ended before it could say so.");
    if (cooldown.elsewhere) return h("p", {}, `At ${clock(cooldown.began)} another sidecar, which shares this cooldown through Redis, was answered ${cooldown.status}, with ${plain(seconds(cooldown.seconds))} to wait. It holds ${cooldown.holds}.`);
    const { method, path, status, field, holds, attempt, route, endpoint, key, worker } = cooldown;
    const where = [`attempt ${attempt}`, route ? `route ${route}` : "", endpoint ? `at ${endpoint}` : "", key ? `with key ${key}` : "", worker ? `in worker ${worker}` : ""].filter(Boolean).join(", ");
    const call = this.call_of(cooldown);
    return h("p", {},
      `At ${clock(cooldown.began)} `, h("code", {}, `${method} ${path}`), ` (${where}) was answered ${status}, and `, h("code", {}, field), ` asked for ${plain(seconds(cooldown.seconds))}. It holds ${holds}. `,
      call ? h("button", { type: "button", onclick: () => this.page.show_call(call) }, "Show this call") : null);
  }

  /** The call whose answer began a cooldown; undefined while the call is in progress, and when it is no longer kept. */
  call_of({ began, method, path, attempt, field }) {
    const ends = (call, each) => Date.parse(call.time) / 1000 + each.start + (each.duration ?? 0);
    return this.page.notable.find((call) => call.method === method && call.path.startsWith(path.replace(/…$/, "")) && call.history.some((each) => each.attempt === attempt && each.pushback === field && Math.abs(ends(call, each) - began) < 0.5));
  }

  outcomes() {
    const found = Object.entries(this.loaded?.outcomes ?? {}).sort((a, b) => b[1] - a[1]);
    if (!found.length) return h("p", { class: "quiet" }, this.loaded ? "No calls yet." : "…");
    const all = found.reduce((sum, [, n]) => sum + n, 0);
    const table = h("table", { class: "plain" }, found.map(([outcome, n]) => h("tr", { title: OUTCOMES[outcome] }, h("td", {}, h("button", { type: "button", class: `outcome ${outcome}`, title: `The recorded calls with this outcome. ${OUTCOMES[outcome] ?? ""}`, onclick: () => this.page.show_calls(this.name, outcome) }, outcome)), h("td", { class: "number" }, count(n)), h("td", { class: "number" }, percent(n, all)))));
    const advice = [retriedByApps(this.loaded), failedLater(this.loaded)].filter(Boolean);
    return advice.length ? h("div", {}, table, advice.map((text) => h("p", { class: "advice" }, text))) : table;
  }

  latest(name) {
    const calls = this.page.notable.filter((call) => call.upstream === name).slice(0, 8);
    if (!calls.length) return h("p", { class: "quiet" }, "None among the recorded calls.");
    const line = (call) =>
      h("button", { type: "button", class: "latest", onclick: () => this.page.show_call(call) },
        h("span", { class: "quiet" }, call.time.slice(11, 19)), h("span", { class: "path" }, `${call.method} ${call.path}`),
        h("span", { class: "chips" }, chips(call.history, call)),
        h("span", { class: `outcome ${call.outcome}` }, call.outcome));
    return h("div", {}, calls.map(line));
  }

  policy(about) {
    if (!about) return h("p", { class: "quiet" }, "No upstream of this name is configured.");
    const rows = [["Endpoints", about.endpoints.join("\n") || "where the request says"], ["Hosts", about.hosts.join("\n")], ["Prefix", about.prefix ?? ""], ["Mode", about.mode]];
    const one = (policy, name) => [name, `${policy.strategy}${policy.strategy === policy.kind ? "" : ` (${policy.kind})`}, ${policy.max_attempts} attempt${policy.max_attempts === 1 ? "" : "s"}, bucket ${policy.bucket ?? "off"}${policy.rate ? `, rate ${policy.rate}` : ""}${policy.fallback.length ? `, then ${policy.fallback.join(", ")}` : ""}`];
    rows.push(one(about, "Strategy"), ...about.routes.map((route) => one(route, `Route ${route.route}`)));
    return h("table", { class: "plain" }, rows.filter(([, text]) => text).map(([name, text]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, text))));
  }
}

const clock = (time) => new Date(time * 1000).toLocaleTimeString("en-GB");

/** Advice about errors in streams that the app had already begun to read; "" if there were none. */
function failedLater({ stream_errors: errors }) {
  if (!errors) return "";
  return `${count(errors)} error${errors === 1 ? "" : "s"} came in streams that had already begun to go to the app; those are never retried.`;
}

/** Advice about apps that retry on top of redrive; "" if none does. */
function retriedByApps({ app_retries: sure, likely_app_retries: likely }) {
  if (!sure && !likely) return "";
  const parts = [];
  if (sure) parts.push(`${amount(sure, "call")} ${sure === 1 ? "was an app's own retry" : "were apps' own retries"}. Switch the app's retries off: they multiply with redrive's.`);
  if (likely) parts.push(`${amount(likely, "call")} may be ${likely === 1 ? "an app's own retry" : "apps' own retries"} of what redrive had given up. If the app has retries of its own, they multiply with redrive's.`);
  return parts.join(" ");
}

/** Replace a part of the page, unless its text is the same. */
function refresh(place, made) {
  const now = made.textContent;
  if (place.said !== now) {
    place.said = now;
    place.replaceChildren(made);
  }
}
