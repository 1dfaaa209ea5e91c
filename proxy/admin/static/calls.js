// The panel of the last calls: which of them are shown, in which order, and which are open.

import { $, count, h, mark, say, seconds } from "./dom.js";
import { chips, story } from "./story.js";
import { holder, OUTCOMES } from "./words.js";

const PAGE = 100;

/** The columns: the value to sort by, and whether the greatest comes first. Calls with equal values are sorted newest first. */
const COLUMNS = [
  { id: "began", text: "Began", title: "When the call came; the newest first", value: (call) => call.time, down: true },
  { id: "status", text: "Got", title: "The status that the app got; g14 is a gRPC status", value: (call) => call.grpc_status ?? call.status, down: true },
  { id: "what", text: "Call", title: "Method, path, host", value: (call) => `${call.path} ${call.host} ${call.method}` },
  { id: "of", text: "Upstream", title: "The upstream, the route where one matched, and the app where apps have names", value: (call) => `${call.upstream} ${call.route} ${call.app ?? ""}` },
  { id: "chips", text: "Attempts", title: "What happened to each attempt; sorted by number", value: (call) => call.attempts, down: true },
  { id: "outcome", text: "Outcome", title: "How the call ended", value: (call) => call.outcome },
  { id: "took", text: "Took", title: "From the request's head to the end of the answer, waits included", value: (call) => call.duration ?? 0, down: true },
];

/** The characters at the end of a path that are always shown. */
const TAIL = 16;

export class Calls {
  constructor(page) {
    this.page = page;
    this.open = new Set();
    this.rows = new Map();
    this.upstream = this.outcome = null;
    this.sort = { by: "began", down: true };
    this.most = PAGE;
    this.heads = new Map();
    this.list = h("ol", { class: "calls", "aria-label": "Calls" });
    this.more = h("button", { type: "button", hidden: true, onclick: () => { this.most += PAGE; this.draw(); } }, "Show more");
    this.empty = h("div", { class: "empty", hidden: true });
    this.held = h("p", { class: "held", hidden: true });
    this.gone = h("p", { class: "gone", role: "status", hidden: true });
    $("call-list").append(this.gone, this.held, (this.head = this.make_head()), this.list, h("p", { class: "more" }, this.more), this.empty);
    for (const id of ["call-filter", "call-kind"]) $(id).addEventListener("input", () => { this.most = PAGE; this.draw(); });
    this.list.addEventListener("keydown", (event) => this.key_pressed(event));
    $("call-sort").append(...COLUMNS.map(({ id, text }) => h("option", { value: id }, text)));
    $("call-sort").addEventListener("input", () => this.sort_by($("call-sort").value));
  }

  make_head() {
    const button = ({ id, text, title }) => {
      const made = h("button", { type: "button", class: `to-${id}`, title, onclick: () => this.sort_by(id) }, text);
      this.heads.set(id, made);
      return made;
    };
    return h("div", { class: "call heads", role: "group", "aria-label": "Sort calls by" }, COLUMNS.map(button));
  }

  sort_by(id, down = this.sort.by === id ? !this.sort.down : COLUMNS.find((each) => each.id === id).down ?? false) {
    this.sort = { by: id, down };
    this.draw();
    this.page.moved_on();
  }

  /** Show only the calls of this upstream and of this outcome; null: of all. */
  of(upstream, outcome = null) {
    this.upstream = upstream;
    this.outcome = outcome;
    this.most = PAGE;
    const tag = $("call-upstream");
    tag.hidden = upstream === null && outcome === null;
    const text = [upstream === null ? "" : `upstream: ${upstream || "(refused)"}`, outcome === null ? "" : `outcome: ${outcome}`].filter(Boolean).join(", ");
    tag.replaceChildren(text, h("button", { type: "button", "aria-label": "Calls of every upstream and outcome", title: "Calls of every upstream and outcome", onclick: () => { this.of(null); this.draw(); this.page.moved_on(); } }, "×"));
  }

  // -- this panel's part of the URL (place.js) -------------------------------------------------------------------

  place() {
    const linked = this.open.size ? this.linked : undefined;
    const usual = this.sort.by === "began" && this.sort.down;
    // "" is an upstream too: that of requests that were refused before any policy applied
    return { upstream: this.upstream === "" ? "(refused)" : this.upstream, outcome: this.outcome, sort: usual ? null : `${this.sort.down ? "-" : ""}${this.sort.by}`, call: linked?.number, at: linked?.time };
  }

  go(query) {
    const upstream = query.get("upstream");
    this.of(upstream === "(refused)" ? "" : upstream, query.get("outcome"));
    const sort = query.get("sort") ?? "-began";
    const by = sort.replace(/^-/, "");
    this.sort = COLUMNS.some(({ id }) => id === by) ? { by, down: sort.startsWith("-") } : { by: "began", down: true };
    this.gone.hidden = true;
    this.close_all();
    this.draw();
    if (query.has("call")) this.find(query.get("call"), query.get("at"));
  }

  /** Show the call of a link, or say in a line that it is gone. */
  async find(number, at) {
    const say_gone = () => {
      say(this.gone, `Call ${number}${at ? ` of ${at}` : ""} is no longer kept. redrive keeps the last 500 calls that succeeded without retries, and the last 500 others, until it ends.`);
      this.gone.hidden = false;
    };
    if (!/^\d{1,15}$/.test(number)) return say_gone();
    try {
      const call = await this.page.find_call(Number(number));
      if (call === null || (at && call.time !== at)) say_gone();
      else this.reveal(call, false);
    } catch {
// the stream shows that the process does not answer
    }
  }

  close_all() {
    for (const number of this.open) {
      this.rows.get(number)?.remove();
      this.rows.delete(number);
    }
    this.open.clear();
    this.linked = undefined;
  }

  // -- showing ---------------------------------------------------------------------------------------------------

  draw() {
    const { page } = this;
    say($("count-calls"), page.seen ? count(page.seen) : "");
    if ($("calls").hidden) return;
    const kind = $("call-kind").value;
    const source = kind === "all" ? page.calls() : page.notable;
    const shown = this.chosen(source, kind);
    if (this.open.size) this.reach(shown);
    this.place_rows(shown.slice(0, this.most));
    this.more.hidden = shown.length <= this.most;
    $("call-sort").value = this.sort.by;
    for (const [id, head] of this.heads) {
      const sorted = this.sort.by === id;
      mark(head, "aria-pressed", String(sorted));
      mark(head, "data-sorted", sorted ? (this.sort.down ? "down" : "up") : null);
    }
    say($("skipped"), page.skipped && kind === "all" ? `${count(page.skipped)} calls that succeeded at once are not shown: too many a second` : "");
    this.say_held();
    this.head.hidden = !shown.length;
    this.empty.hidden = shown.length > 0;
    if (!shown.length) this.nothing(source.length);
  }

  /** The calls that pass the filters, sorted. */
  chosen(source, kind) {
    const wanted = $("call-filter").value.trim().toLowerCase();
    const found = source.filter(
      (call) =>
        (kind !== "failed" || call.outcome !== "success") &&
        (this.upstream === null || call.upstream === this.upstream) &&
        (this.outcome === null || call.outcome === this.outcome) &&
        matches(call, wanted),
    );
    const { value } = COLUMNS.find(({ id }) => id === this.sort.by);
    const turn = this.sort.down ? -1 : 1;
    return found.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      return x < y ? -turn : x > y ? turn : newest_first(a, b);
    });
  }

  /** Say in a line how many calls a gate holds now; they are added to the list when they end. */
  say_held() {
    const rows = [...this.page.live.values()].filter(({ name, held }) => held && (this.upstream === null || this.upstream === name));
    this.held.hidden = !rows.length;
    if (!rows.length) return;
    const why = ({ cooldown, held_by: by }) => Object.keys(by ?? {}).map((cause) => `${holder(cause, { cooldown })}${cause === "cooling" && cooldown ? `, ${seconds(cooldown)} left` : ""}`).join("; ");
    const one = (row) => `${row.name} ${count(row.held)}${why(row) ? ` (${why(row)})` : ""}`;
    const listed = rows.sort((a, b) => b.held - a.held).slice(0, 5).map(one);
    say(this.held, `Held now: ${listed.join("; ")}${rows.length > 5 ? `; and calls of ${rows.length - 5} other upstreams` : ""}.`);
  }

  nothing(all) {
    const filtered = this.upstream !== null || this.outcome !== null;
    const about = all || filtered ? "filtered" : $("call-kind").value === "all" ? "none" : "plain";
    if (this.empty.dataset.about === about && this.empty.firstChild) return;
    this.empty.dataset.about = about;
    if (about !== "none") {
      const clear = () => {
        $("call-filter").value = "";
        $("call-kind").value = "all";
        this.of(null);
        this.draw();
        this.page.moved_on();
      };
      this.empty.replaceChildren(h("p", {}, about === "filtered" ? "No recorded call matches." : "No recorded call was retried or failed."), h("button", { type: "button", onclick: clear }, "Show all calls"));
      return;
    }
    const listen = this.page.ready?.listen[0] ?? "127.0.0.1:8080";
    const first = [...this.page.about.values()].find((each) => each.prefix);
    this.empty.replaceChildren(
      h("h2", {}, "No call has come through yet"),
      h("p", {}, "Send one, as a base URL or as a proxy:"),
      h("pre", {}, `${first ? `curl -i http://${listen}${first.prefix}/\n` : ""}HTTP_PROXY=http://${listen} http_proxy=http://${listen} \\\n  curl -i http://example.com/`),
    );
  }

  /** Show these calls in this order; calls that are shown already keep their elements. */
  place_rows(calls) {
    const keep = new Set(calls.map((call) => call.number));
    for (const [number, row] of this.rows) {
      if (!keep.has(number)) {
        row.remove();
        this.rows.delete(number);
      }
    }
    let before = this.list.firstChild;
    for (const call of calls) {
      let row = this.rows.get(call.number);
      if (!row) this.rows.set(call.number, (row = this.make(call)));
      if (row === before) before = before.nextSibling;
      else this.list.insertBefore(row, before);
    }
  }

  make(call) {
    const head = h(
      "button",
      { type: "button", class: "call", "aria-expanded": "false" },
      h("time", { datetime: call.time, title: call.time }, call.time.slice(11, 23)),
      status(call),
      h("span", { class: "what" }, call.method ? [h("b", {}, call.method), " ", path(call.path), h("span", { class: "host" }, call.host)] : h("span", { class: "quiet" }, call.detail ?? "unreadable")),
      h("span", { class: "of" }, call.upstream || "(refused)", call.route ? h("small", {}, ` ${call.route}`) : null, call.app ? h("small", {}, ` by ${call.app}`) : null),
      h("span", { class: "chips", title: "What happened to each attempt" }, chips(call.history, call)),
      h("span", { class: `outcome ${call.outcome}`, title: OUTCOMES[call.outcome] }, call.outcome),
      h("span", { class: "took" }, seconds(call.duration ?? 0)),
    );
    const row = h("li", {}, head);
    const toggle = (open) => {
      mark(head, "aria-expanded", String(open));
      if (open) {
        this.open.add(call.number);
        row.append(story(call, this.page));
      } else {
        this.open.delete(call.number);
        row.lastChild.remove();
      }
    };
    head.addEventListener("click", () => {
      toggle(head.getAttribute("aria-expanded") !== "true");
      if (this.open.has(call.number)) this.linked = call;
      else if (this.linked?.number === call.number) this.linked = undefined;
      this.page.moved_on();
    });
    if (this.open.has(call.number)) toggle(true);
    return row;
  }

  /** Open a call and scroll to it; with `step`, move the keyboard's focus there too. */
  reveal(call, step = true) {
    this.open.add(call.number);
    this.linked = call;
    this.rows.get(call.number)?.remove();
    this.rows.delete(call.number);
    this.draw();
    const head = this.rows.get(call.number)?.firstChild;
    head?.scrollIntoView({ block: "center" });
    head?.focus({ preventScroll: true });
    if (step) this.page.moved_on();
  }

  /** Show as many calls as are needed for the opened call of the address: calls that come later may be sorted before it. */
  reach(shown) {
    const at = this.linked ? shown.findIndex(({ number }) => number === this.linked.number) : -1;
    this.most = Math.max(this.most, Math.ceil((at + 1) / PAGE) * PAGE);
  }

  /** Make the open calls again, where they are. */
  open_again() {
    const focused = [...this.open].find((number) => this.rows.get(number)?.contains(document.activeElement));
    for (const number of this.open) {
      this.rows.get(number)?.remove();
      this.rows.delete(number);
    }
    this.draw();
    this.rows.get(focused)?.firstChild.focus({ preventScroll: true });
  }

  /** Scroll to the call of the address again, now that the last calls are listed around it. */
  find_again() {
    this.draw();
    if (this.open.size && this.linked) this.rows.get(this.linked.number)?.scrollIntoView({ block: "center" });
  }

  forget() {
    this.list.replaceChildren();
    this.rows.clear();
    this.open.clear();
    this.linked = undefined;
  }

  key_pressed(event) {
    if (!event.target.matches("button.call")) return;
    const heads = [...this.list.querySelectorAll("button.call")];
    const at = heads.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: heads.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    heads[Math.min(Math.max(to, 0), heads.length - 1)]?.focus();
  }

  focus() {
    this.list.querySelector("button.call")?.focus();
  }
}

/** Sort calls newest first: by when they began, then, within a millisecond, by when they ended. */
export function newest_first(a, b) {
  if (a.time !== b.time) return a.time < b.time ? 1 : -1;
  return b.number - a.number;
}

/** The status that the app got: for a gRPC call its gRPC status, since its HTTP status says nothing about success. */
function status(call) {
  if (call.grpc_status === undefined) return h("span", { class: `status s${String(call.status)[0]}`, title: call.status ? "What the app got" : "The app got no answer" }, call.status || "none");
  return h("span", { class: `status ${call.grpc_status ? "s5" : "s2"}`, title: `What the app got: gRPC status ${call.grpc_status}, HTTP status ${call.status}` }, `g${call.grpc_status}`);
}

function matches(call, wanted) {
  if (!wanted) return true;
  const text = `${call.method} ${call.host}${call.path} ${call.upstream} ${call.route} ${call.app ?? ""} ${call.status} ${call.outcome} ${call.history.map((a) => `${a.status ?? ""} ${a.fault ?? ""} ${a.class ?? ""}`).join(" ")}`.toLowerCase();
  return wanted.split(/\s+/).every((word) => text.includes(word));
}

/** A path whose middle is left out first if there is no room: its end says most. Query values are masked anyway. */
function path(text) {
  const [way] = text.split("?");
  const at = Math.max(way.length - TAIL, 0);
  return h("span", { class: "path", title: text }, at ? h("span", { class: "front" }, text.slice(0, at)) : null, h("span", { class: "tail" }, way.slice(at)), h("span", { class: "query" }, text.slice(way.length)));
}
