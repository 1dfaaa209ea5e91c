// The reasons of the last minute, below a short table of upstreams: why calls were retried, held back or given up.

import { $, amount_of, count, h, mark } from "./dom.js";
import { OUTCOMES } from "./words.js";

const SPAN = 60_000; // ms
const MOST = 8;

export class Reasons {
  constructor(page) {
    this.page = page;
    this.element = $("reasons");
    this.told = "";
  }

  /** Show them, unless the table of upstreams needs the room. */
  draw(has_room) {
    const groups = has_room ? grouped(this.page.notable, Date.now()) : [];
    mark(this.element, "hidden", has_room && this.page.seen ? null : "");
    const told = JSON.stringify(groups.map(({ key, calls, newest }) => [key, calls, newest.number]));
    if (told === this.told) return;
    this.told = told;
    const list = groups.slice(0, MOST).map((group) => this.line(group));
    this.element.replaceChildren(
      h("h3", {}, "Reasons of the last minute"),
      groups.length ? h("ul", {}, list) : h("p", { class: "quiet" }, "No call was retried or failed."),
      groups.length > MOST ? h("p", { class: "quiet" }, `and ${count(groups.length - MOST)} others`) : "",
    );
  }

  line({ calls, newest }) {
    const { upstream, outcome, remedy } = newest;
    const retried = outcome === "success";
    return h("li", {},
      h("button", { type: "button", title: "The newest of these calls", onclick: () => this.page.show_call(newest) },
        h("b", { class: "number" }, count(calls)),
        h("span", { class: "of" }, upstream || "(refused)"),
        h("span", { class: `outcome ${outcome}`, title: OUTCOMES[outcome] }, retried ? "retried" : outcome),
        h("span", { class: "why" }, why(newest), !retried && remedy ? h("span", { class: "quiet" }, ` What helps: ${remedy}.`) : null)),
    );
  }
}

/** The calls of the last minute by upstream, outcome and what failed, those that failed first. */
function grouped(calls, now) {
  const groups = new Map();
  for (const call of calls) { // newest first
    if (now - Date.parse(call.time) - (call.duration ?? 0) * 1000 > SPAN) continue;
    const key = JSON.stringify([call.upstream, call.outcome, failed(call)?.because, failed(call)?.fault]);
    const group = groups.get(key);
    if (group) group.calls++;
    else groups.set(key, { key, calls: 1, newest: call });
  }
  const order = ({ newest, calls }) => [newest.outcome === "success" ? 1 : 0, -calls];
  return [...groups.values()].sort((a, b) => order(a)[0] - order(b)[0] || order(a)[1] - order(b)[1]);
}

/** The attempt that says why: the last that was not delivered as a success. */
function failed(call) {
  return call.history.findLast((attempt) => attempt.because || attempt.fault || attempt.why);
}

function why(call) {
  const attempt = failed(call);
  if (!attempt) return `${call.detail ?? OUTCOMES[call.outcome] ?? ""}.`.replace(/\.\.$/, ".");
  const what = attempt.because ?? attempt.fault ?? `${attempt.status}`;
  if (call.outcome === "success") return `${what}; ${amount_of(call.attempts, "attempt")}.`;
  return `${what}${attempt.why ? ` → ${attempt.why}` : ""}.`;
}
