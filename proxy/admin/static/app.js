// The page as a whole: its data, which the stream keeps up to date, and the three panels that show it.

import { $, count, h, mark, percent, rate, say, tone_of } from "./dom.js";
import { Calls, newest_first } from "./calls.js";
import { Config } from "./config.js";
import { PANELS, Place } from "./place.js";
import { Stream, Unauthorized, ask, hasToken, json, setToken } from "./stream.js";
import { Upstreams } from "./upstreams.js";

const KEPT = { plain: 300, notable: 1000 };
const SAMPLES = 60;

class Page {
  constructor() {
    this.live = new Map(); // by upstream: the rows of the board
    this.buckets = new Map();
    this.states = {}; // by name: the text of each state of an upstream, and how much trouble it is
    this.about = new Map(); // by upstream: its policy, fetched when the configuration changes
    this.named = new Set();
    this.levels = new Map(); // by bucket: its last levels
    this.plain = []; // calls, newest first
    this.notable = [];
    this.ready = null;
    this.seen = this.skipped = this.window = 0;
    this.paused = false;
    this.board = null;
    this.state = "connecting";
    this.drawing = false;

    this.upstreams = new Upstreams(this);
    this.calls_panel = new Calls(this);
    this.config = new Config(this);
    this.stream = new Stream("events?board&most=50", {
      event: (name, data) => (name === "board" ? this.moved(data) : this.called(data)),
      state: (state, wait) => this.linked(state, wait),
    });
  }

  // -- events of the stream --------------------------------------------------------------------------------------

  moved(board) {
    if (this.board !== board.board) this.begin(board);
    this.stranger = board.full ? !board.states : this.stranger;
    if (this.stranger) return this.notices();
    if (board.full) {
      this.live.clear();
      this.buckets.clear();
      this.states = board.states;
    }
    for (const row of board.upstreams) this.live.set(row.name, row);
    for (const row of board.buckets) this.buckets.set(row.bucket, row);
    if (board.history && this.levels.size === 0) for (const [label, levels] of Object.entries(board.history)) this.levels.set(label, levels.filter((level) => level !== null));
    else if (board.sample !== this.sample) this.sampled(board.sample - this.sample);
    this.sample = board.sample;
    this.window = board.window;
    this.seen = board.calls;
    this.skipped = board.skipped;
    this.ready = board.ready;
    if (this.loads !== board.loads || board.full) this.learn(board.loads);
    this.changed();
  }

  /** Begin with the data of another process: forget everything that is shown. */
  begin(board) {
    if (this.board !== null) {
      this.restarted = new Date();
      this.plain = [];
      this.notable = [];
      this.calls_panel.forget();
    }
    this.board = board.board;
    this.levels.clear();
    this.loads = undefined;
    this.sample = board.sample;
    this.fetch_calls();
  }

  async fetch_calls() {
    try {
      const [last, notable] = await Promise.all([json("requests?limit=200"), json("requests?only=notable&limit=300")]);
      for (const call of [...last.requests, ...notable.requests].sort((a, b) => a.number - b.number)) this.keep(call);
      this.calls_panel.find_again();
      this.changed();
    } catch {
// the stream shows what is wrong
    }
  }

  async learn(loads) {
    this.loads = loads;
    try {
      const { upstreams } = await json("upstreams");
      this.about = new Map(upstreams.map((each) => [each.label, each]));
      this.named = new Set(upstreams.map((each) => each.name));
      if (!this.learned) this.calls_panel.open_again(); // a call of a link may have been opened before this was known
      this.learned = true;
      this.changed();
    } catch {
      this.loads = undefined;
    }
  }

  sampled(times) {
    for (const [label, bucket] of this.buckets) {
      const levels = this.levels.get(label) ?? [];
      for (let n = 0; n < Math.min(times, SAMPLES); n++) levels.push(bucket.level);
      this.levels.set(label, levels.slice(-SAMPLES));
    }
  }

  called(call) {
    this.keep(call);
    this.changed();
  }

  /** Add a call, newest first, unless it is in the list already. */
  keep(call) {
    const plain = call.outcome === "success" && call.history.length === 1;
    const list = plain ? this.plain : this.notable;
    let at = 0;
    while (at < list.length && list[at].number > call.number) at++;
    if (list[at]?.number === call.number) return;
    list.splice(at, 0, call);
    list.length = Math.min(list.length, plain ? KEPT.plain : KEPT.notable);
  }

  calls() {
    return [...this.plain, ...this.notable].sort(newest_first);
  }

  /** A call by its number, fetched if the page does not have it; null if it is no longer kept. */
  async find_call(number) {
    const known = [this.plain, this.notable].flatMap((list) => list.filter((call) => call.number === number))[0];
    if (known) return known;
    const answer = await ask(`requests/${number}`);
    if (answer.status === 404) return null;
    if (!answer.ok) throw new Error(`requests/${number}: ${answer.status}`);
    const call = await answer.json();
    this.keep(call);
    return call;
  }

  history(label) {
    const levels = this.levels.get(label) ?? [];
    const now = this.buckets.get(label);
    return now ? [...levels.slice(1 - SAMPLES), now.level] : levels;
  }

  // -- requests --------------------------------------------------------------------------------------------------

  json(path) {
    return json(path);
  }

  /** Make a request; the answer may have any status. */
  ask(path) {
    return ask(path);
  }

  post(path, data) {
    if (data === undefined) return ask(path, { method: "POST" });
    return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(data) });
  }

  show_calls(upstream, outcome = null) {
    this.calls_panel.of(upstream, outcome);
    $("call-filter").value = "";
    const troubled = outcome === null && this.notable.some((call) => call.upstream === upstream);
    $("call-kind").value = troubled ? "notable" : "all";
    show("calls");
    this.calls_panel.focus();
  }

  show_call(call) {
    this.show_calls(call.upstream);
    this.calls_panel.reveal(call);
  }

  show_config(upstream) {
    show("config");
    this.config.show(upstream);
  }

  show_what_if(upstream) {
    show("config");
    this.config.try_out(upstream);
  }

  /** Another thing is shown now: make an entry in the browser's history, so that "back" leads to the one before. */
  moved_on() {
    this.place?.write(true);
  }

  // -- showing ---------------------------------------------------------------------------------------------------

  linked(state, wait) {
    this.state = state;
    if (state === "token") askForToken();
    const texts = {
      live: "live",
      lost: `no answer; again in ${wait} s`,
      token: "token needed",
      asleep: "asleep in the background",
    };
    const chip = $("link");
    say(chip, this.paused && state === "live" ? "paused" : texts[state]);
    chip.dataset.state = this.paused && state === "live" ? "paused" : state;
    this.notices();
  }

  pause(on) {
    this.paused = on;
    mark($("pause"), "aria-pressed", String(on));
    say($("pause"), on ? "Resume updates" : "Pause updates");
    this.linked(this.state);
    this.changed();
  }

  changed() {
    if (this.drawing || this.paused) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      if (!this.paused) this.draw();
    });
  }

  draw() {
    this.totals();
    this.notices();
    this.upstreams.draw();
    this.calls_panel.draw();
    this.config.draw();
  }

  totals() {
    const sum = { calls: 0, at_once: 0, after_retries: 0, failed: 0, attempts: 0, retries: 0, arrived: 0 };
    for (const { recent } of this.live.values()) for (const name of Object.keys(sum)) sum[name] += recent[name];
    const set = (name, text, tone = null) => {
      const place = document.querySelector(`[data-total=${name}]`);
      say(place, text);
      mark(place, "data-tone", tone);
    };
    const bad = sum.calls && sum.failed / sum.calls > 0.01;
    set("rate", `${rate(sum.calls / Math.max(this.window, 1))}/s`);
    set("success", percent(sum.at_once + sum.after_retries, sum.calls), bad ? tone_of(sum.failed, sum.calls) : null);
    set("first", percent(sum.at_once, sum.calls));
    const sent = sum.attempts - sum.retries - sum.arrived; // a call that fell back counts once, at its first upstream
    set("attempts", sent > 0 ? (sum.attempts / sent).toFixed(2) : "–", sum.attempts > sent * 1.1 ? "wait" : null);
    set("flying", this.ready ? count(this.ready.in_flight) : "–");
    document.title = bad ? `redrive: ${percent(sum.at_once + sum.after_retries, sum.calls)} succeed` : "redrive";
  }

  notices() {
    const told = [];
    if (this.state === "lost" && this.board !== null) told.push(["bad", "redrive does not answer. The page shows the last state, and continues by itself when redrive is back."]);
    if (this.stranger) told.push(["bad", "redrive is now of another release than this page: load the page again."]);
    if (this.ready?.draining && this.state === "live") told.push(["wait", "redrive is draining: it is not ready, and lets calls in flight finish."]);
    else if (this.ready && !this.ready.ready && this.state === "live") told.push(["wait", "redrive is not ready for calls yet."]);
    if (this.ready?.reload_errors.length) told.push(["bad", `The configuration was refused when it was loaded again (${this.ready.reload_errors.length} error${this.ready.reload_errors.length === 1 ? "" : "s"}); the earlier configuration stays in force.`, "Show them"]);
    if (this.restarted && this.state === "live") told.push(["info", `redrive was restarted at ${this.restarted.toLocaleTimeString()}: all counts start again.`, "Dismiss"]);
    const text = JSON.stringify(told);
    if (text === this.told) return;
    this.told = text;
    const acts = { "Show them": () => show("config"), Dismiss: () => { this.restarted = null; this.notices(); } };
    $("notices").replaceChildren(...told.map(([cls, line, act]) => h("p", { class: `notice ${cls}` }, h("span", {}, line), act ? h("button", { type: "button", onclick: acts[act] }, act) : null)));
  }
}

// -- tabs, keys, theme, token --------------------------------------------------------------------------------------

function show(name) {
  for (const id of PANELS) {
    const chosen = id === name;
    $(id).hidden = !chosen;
    mark($(`tab-${id}`), "aria-selected", String(chosen));
    mark($(`tab-${id}`), "tabindex", chosen ? null : "-1");
  }
  page.draw();
  page.moved_on();
}

function shown() {
  return PANELS.find((id) => !$(id).hidden);
}

function wireTabs() {
  PANELS.forEach((id, at) => {
    const tab = $(`tab-${id}`);
    tab.addEventListener("click", () => show(id));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = PANELS[(at + step + PANELS.length) % PANELS.length];
      show(next);
      $(`tab-${next}`).focus();
    });
  });
}

const FILTERS = { upstreams: "upstream-filter", calls: "call-filter", config: "key-filter" };

function keyPressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, select, textarea") && event.target.type !== "checkbox";
  if (event.key === "Escape") {
    if (typing && event.target.value && event.target.type === "search") {
      event.target.value = "";
      event.target.dispatchEvent(new Event("input"));
    } else if (typing) event.target.blur();
    else page.upstreams.close();
    return;
  }
  if (typing) return;
  const acts = {
    1: () => go("upstreams"),
    2: () => go("calls"),
    3: () => go("config"),
    "/": () => $(FILTERS[shown()]).focus(),
    p: () => page.pause(!page.paused),
    t: () => turnTheme(),
    s: () => shown() === "upstreams" && page.upstreams.sort_on(false),
    S: () => shown() === "upstreams" && page.upstreams.sort_on(true),
    "?": () => $("help-dialog").showModal(),
    c: () => shown() === "upstreams" && page.upstreams.list.chosen !== null && page.show_calls(page.upstreams.list.chosen),
  };
  const act = acts[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

/** Show a panel and put the keyboard into its list. */
function go(name) {
  show(name);
  if (name === "upstreams") page.upstreams.list.scroll.focus();
  else if (name === "calls") page.calls_panel.focus();
  else page.config.list.scroll.focus();
}

const THEMES = ["system", "light", "dark"];

function turnTheme(to) {
  const root = document.documentElement;
  const now = root.dataset.theme ?? "system";
  const next = to ?? THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  say($("theme"), `Theme: ${next}`);
  try {
    localStorage.setItem("redrive-theme", next);
  } catch {
    // without storage, the theme is kept until the page is closed
  }
}

function askForToken() {
  const dialog = $("token-dialog");
  say($("token-wrong"), hasToken() ? "This is not the token." : "");
  if (!dialog.open) dialog.showModal();
  $("token").value = "";
  $("token").focus();
}

let page;

function begin() {
  let theme = null;
  try {
    theme = localStorage.getItem("redrive-theme");
  } catch {
    // without storage, the theme is the system's
  }
  turnTheme(THEMES.includes(theme) ? theme : "system");
  page = new Page();
  wireTabs();
  document.addEventListener("keydown", keyPressed);
  $("pause").addEventListener("click", () => page.pause(!page.paused));
  $("theme").addEventListener("click", () => turnTheme());
  $("help").addEventListener("click", () => $("help-dialog").showModal());
  $("token-dialog").addEventListener("cancel", (event) => event.preventDefault());
  $("token-form").addEventListener("submit", () => {
    setToken($("token").value.trim());
    page.stream.again();
  });
  page.place = new Place({ upstreams: page.upstreams, calls: page.calls_panel, config: page.config }, show);
  page.place.read();
}

// If any request of the page is refused for its token, ask for the token, as for the stream.
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason instanceof Unauthorized) {
    event.preventDefault();
    askForToken();
  }
});

begin();
