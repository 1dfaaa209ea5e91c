// The last calls, and for each the waterfall of its attempts with the reason for every decision.

import { $, count, h, mark, s, say, seconds } from "./dom.js";
import { DECISIONS, GATES, GRPC, OUTCOMES, result, tone } from "./words.js";

const PAGE = 100;

export class Calls {
  constructor(house) {
    this.house = house;
    this.open = new Set();
    this.rows = new Map();
    this.upstream = null;
    this.most = PAGE;
    this.list = h("ol", { class: "calls" });
    this.more = h("button", { type: "button", hidden: true, onclick: () => { this.most += PAGE; this.draw(); } }, "Show more");
    this.empty = h("div", { class: "empty", hidden: true });
    $("call-list").append(this.list, h("p", { class: "more" }, this.more), this.empty);
    for (const id of ["call-filter", "call-kind"]) $(id).addEventListener("input", () => { this.most = PAGE; this.draw(); });
    this.list.addEventListener("keydown", (event) => this.key_pressed(event));
  }

  of(upstream) {
    this.upstream = upstream;
    this.most = PAGE;
    const tag = $("call-upstream");
    tag.hidden = upstream === null;
    tag.replaceChildren(`upstream: ${upstream || "(refused)"}`, h("button", { type: "button", "aria-label": "Calls of every upstream", title: "Calls of every upstream", onclick: () => { this.of(null); this.draw(); } }, "×"));
  }

  draw() {
    const { house } = this;
    say($("count-calls"), house.seen ? count(house.seen) : "");
    if ($("calls").hidden) return;
    const wanted = $("call-filter").value.trim().toLowerCase();
    const kind = $("call-kind").value;
    const source = kind === "all" ? house.calls() : house.notable;
    const shown = source.filter(
      (call) => (kind !== "failed" || call.outcome !== "success") && (this.upstream === null || call.upstream === this.upstream) && matches(call, wanted),
    );
    this.place(shown.slice(0, this.most));
    this.more.hidden = shown.length <= this.most;
    say($("skipped"), house.skipped && kind === "all" ? `${count(house.skipped)} calls that succeeded at once are not shown: too many a second` : "");
    this.empty.hidden = shown.length > 0;
    if (!shown.length) this.nothing(source.length);
  }

  nothing(all) {
    const about = all ? `filter ${$("call-kind").value}` : "none";
    if (this.empty.dataset.about === about && this.empty.firstChild) return;
    this.empty.dataset.about = about;
    if (all || $("call-kind").value !== "all") {
      const clear = () => {
        $("call-filter").value = "";
        $("call-kind").value = "all";
        this.of(null);
        this.draw();
      };
      this.empty.replaceChildren(h("p", {}, all ? "No call that is kept matches." : "No call that is kept was retried or failed."), h("button", { type: "button", onclick: clear }, "Show all calls"));
      return;
    }
    const listen = this.house.ready?.listen[0] ?? "127.0.0.1:8080";
    const first = [...this.house.about.values()].find((each) => each.prefix);
    this.empty.replaceChildren(
      h("h2", {}, "No call has come through yet"),
      h("p", {}, "Send one, as a base URL or as a proxy:"),
      h("pre", {}, `${first ? `curl -i http://${listen}${first.prefix}/\n` : ""}HTTP_PROXY=http://${listen} http_proxy=http://${listen} \\\n  curl -i http://example.com/`),
    );
  }

  /** Show these calls in this order, keeping the elements of those that are shown already. */
  place(calls) {
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
      h("span", { class: "what" }, call.method ? [h("b", {}, call.method), " ", h("span", { class: "path", title: call.path }, call.path), h("span", { class: "host" }, call.host)] : h("span", { class: "quiet" }, call.detail ?? "unreadable")),
      h("span", { class: "of" }, call.upstream || "(refused)", call.route ? h("small", {}, ` ${call.route}`) : null),
      h("span", { class: "chips", title: "What came of each attempt" }, chips(call.history)),
      h("span", { class: `outcome ${call.outcome}`, title: OUTCOMES[call.outcome] }, call.outcome),
      h("span", { class: "took" }, seconds(call.duration ?? 0)),
    );
    const row = h("li", {}, head);
    const toggle = (open) => {
      mark(head, "aria-expanded", String(open));
      if (open) {
        this.open.add(call.number);
        row.append(story(call, this.house));
      } else {
        this.open.delete(call.number);
        row.lastChild.remove();
      }
    };
    head.addEventListener("click", () => toggle(head.getAttribute("aria-expanded") !== "true"));
    if (this.open.has(call.number)) toggle(true);
    return row;
  }

  reveal(call) {
    this.open.add(call.number);
    this.rows.get(call.number)?.remove();
    this.rows.delete(call.number);
    this.draw();
    const head = this.rows.get(call.number)?.firstChild;
    head?.scrollIntoView({ block: "center" });
    head?.focus({ preventScroll: true });
  }

  forget() {
    this.list.replaceChildren();
    this.rows.clear();
    this.open.clear();
  }

  key_pressed(event) {
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

/** What the app got: of a gRPC call its gRPC status, since the HTTP status says nothing there. */
function status(call) {
  if (call.grpc_status === undefined) return h("span", { class: `status s${String(call.status)[0]}`, title: call.status ? "What the app got" : "The app got no answer" }, call.status || "none");
  return h("span", { class: `status ${call.grpc_status ? "s5" : "s2"}`, title: `What the app got: gRPC status ${call.grpc_status}, HTTP status ${call.status}` }, `g${call.grpc_status}`);
}

/** What came of each attempt; the same several times over is said once, with its number. */
export function chips(history) {
  const runs = [];
  let at = history[0]?.upstream;
  for (const attempt of history) {
    if (attempt.upstream !== at) runs.push({ text: `→ ${(at = attempt.upstream)}`, tone: "none", times: 1 }); // from here on
    const last = runs[runs.length - 1];
    if (last?.text === result(attempt)) last.times++;
    else runs.push({ text: result(attempt), tone: tone(attempt), times: 1 });
  }
  if (!runs.length) runs.push({ text: "no attempt", tone: "none", times: 1 });
  const shown = runs.length > 5 ? [...runs.slice(0, 4), { text: `+${runs.length - 4}`, tone: "none", times: 1 }] : runs;
  return shown.map((run) => h("i", { class: `chip ${run.tone}` }, run.times > 1 ? `${run.text} ×${run.times}` : run.text));
}

function matches(call, wanted) {
  if (!wanted) return true;
  const text = `${call.method} ${call.host}${call.path} ${call.upstream} ${call.route} ${call.status} ${call.outcome} ${call.history.map((a) => `${a.status ?? ""} ${a.fault ?? ""} ${a.class ?? ""}`).join(" ")}`.toLowerCase();
  return wanted.split(/\s+/).every((word) => text.includes(word));
}

/** The whole story of a call: its attempts on a line of time, then why it ended as it did. */
function story(call, house) {
  const whole = Math.max(call.duration ?? 0, ...call.history.map((a) => a.start + (a.duration ?? 0)), 1e-6);
  const sent = [...call.history].sort((a, b) => a.start - b.start); // hedges are told in order of ending
  return h(
    "div",
    { class: "story" },
    sent.length ? h("ol", { class: "waterfall" }, sent.map((attempt, at) => stretch(attempt, sent[at + 1], whole))) : null,
    call.history.length > 1 ? h("p", { class: "axis", "aria-hidden": "true" }, h("span", {}, "0"), h("span", {}, seconds(whole / 2)), h("span", {}, seconds(whole))) : null,
    h("p", { class: "verdict" }, h("span", { class: `outcome ${call.outcome}` }, call.outcome), " ", OUTCOMES[call.outcome] ?? "", call.detail ? h("span", { class: "quiet" }, ` Detail: ${call.detail}.`) : null, call.app_retry ? h("span", { class: "quiet" }, " The app itself was retrying here.") : null),
    (call.fallbacks ?? []).map((each) => h("p", { class: "verdict" }, each.skipped ? `Not taken over by ${each.to} (${each.outcome}): ${each.skipped}.` : `Taken over by ${each.to} (${each.outcome}).`)),
    h("dl", { class: "facts" }, facts(call, house)),
  );
}

function facts(call, house) {
  const about = house.about.get(call.upstream);
  const route = about?.routes.find((each) => each.route === call.route) ?? about;
  const pairs = [
    ["upstream", [call.upstream, call.route].filter(Boolean).join(" › ")],
    ["strategy", call.strategy ? `${call.strategy}${route ? `, at most ${route.max_attempts} attempts` : ""}` : ""],
    ["bucket", route?.bucket ?? ""],
    ["host", call.host],
    ["path", call.path],
    ["app", call.client],
    ["protocol", call.protocol ?? ""],
    ["gRPC status", call.grpc_status === undefined ? "" : `${call.grpc_status} ${GRPC[call.grpc_status] ?? ""}`],
    ["began", call.time],
    ["took", seconds(call.duration ?? 0)],
  ];
  return pairs.filter(([, text]) => text).map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)));
}

/** One attempt: its bar, the wait after it, and the reason for what was done next. */
function stretch(attempt, next, whole) {
  const share = (value) => `${((value / whole) * 100).toFixed(3)}%`;
  const took = attempt.duration ?? Math.max(whole - attempt.start, 0);
  const bar = s("rect", { class: `bar ${tone(attempt)}`, x: share(attempt.start), width: share(took), y: "3", height: "12", rx: "2" });
  const parts = [s("line", { class: "rail", x1: "0", x2: "100%", y1: "9", y2: "9" })];
  const end = attempt.start + took;
  if (attempt.held) parts.push(s("line", { class: "wait", x1: share(Math.max(attempt.start - attempt.held, 0)), x2: share(attempt.start), y1: "9", y2: "9" }));
  if (next && next.start > end) parts.push(s("line", { class: "wait", x1: share(end), x2: share(next.start), y1: "9", y2: "9" }));
  const width = s("rect", { class: `bar least ${tone(attempt)}`, x: share(attempt.start), width: "3", y: "3", height: "12", rx: "1.5" });
  return h(
    "li",
    {},
    h("span", { class: "which" }, `${attempt.attempt}`),
    h("span", { class: `chip ${tone(attempt)}` }, result(attempt)),
    s("svg", { class: "lane", height: "18", width: "100%", role: "img", "aria-label": `from ${seconds(attempt.start)} for ${seconds(attempt.duration)}` }, parts, bar, width),
    h("span", { class: "span" }, attempt.duration === undefined ? "unfinished" : seconds(attempt.duration)),
    h("p", { class: "because" }, because(attempt)),
  );
}

function because(attempt) {
  const said = [];
  if (attempt.held) said.push(`held ${seconds(attempt.held)} by ${GATES[attempt.held_by] ?? attempt.held_by}`);
  if (attempt.upstream) said.push(`to ${[attempt.upstream, attempt.route].filter(Boolean).join(" › ")}`);
  if (attempt.endpoint) said.push(`at ${attempt.endpoint}${attempt.protocol ? ` by ${attempt.protocol}` : ""}`);
  if (attempt.key) said.push(`with key ${attempt.key}`);
  if (attempt.because) said.push(attempt.because);
  else if (attempt.class && attempt.class !== "success") said.push(attempt.class);
  if (attempt.first_byte !== undefined) said.push(`first byte after ${seconds(attempt.first_byte)}`);
  if (attempt.detail) said.push(attempt.detail);
  if (attempt.pushback) said.push(`the upstream said ${attempt.pushback}${attempt.pushback_delay === undefined ? "" : `: ${seconds(attempt.pushback_delay)}`}`);
  if (attempt.price) said.push(`paid ${attempt.price} token${attempt.price === 1 ? "" : "s"}`);
  const text = said.join(" · ");
  const then = decided(attempt);
  return then ? [text ? `${text} ` : "", h("b", {}, `→ ${then}`)] : [text];
}

function decided(attempt) {
  const { decision, delay, why } = attempt;
  if (!decision) return "";
  if (decision === "retried") return delay === undefined ? "retried" : `retried after ${seconds(delay)}`;
  if (decision === "fell back") return `${DECISIONS[decision]}: ${why}`;
  return DECISIONS[decision] ?? `not retried: ${decision}${why ? `, since ${why}` : ""}`;
}
