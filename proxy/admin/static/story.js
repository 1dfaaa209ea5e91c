// The history of a call: the result of each attempt, in a line and as a waterfall with the reason for every decision.

import { h, s, say, seconds } from "./dom.js";
import { copied, curl } from "./copy.js";
import { explain } from "./explain.js";
import { link_to } from "./place.js";
import { DECISIONS, GATES, GRPC, OUTCOMES, result, tone } from "./words.js";

/** A chip for the result of each attempt; equal results in a row are one chip, with their number. `call` is needed only for
 * a call without attempts, to say whether it was held until its end. */
export function chips(history, call = null) {
  const runs = [];
  let at = history[0]?.upstream;
  for (const attempt of history) {
    if (attempt.upstream !== at) runs.push({ text: `→ ${(at = attempt.upstream)}`, tone: "none", times: 1 }); // the attempts from here on went to a fallback
    const last = runs[runs.length - 1];
    if (last?.text === result(attempt)) last.times++;
    else runs.push({ text: result(attempt), tone: tone(attempt), times: 1 });
  }
  if (!runs.length) runs.push(unsent(call));
  const shown = runs.length > 5 ? [...runs.slice(0, 4), { text: `+${runs.length - 4}`, tone: "none", times: 1 }] : runs;
  return shown.map((run) => h("i", { class: `chip ${run.tone}` }, run.times > 1 ? `${run.text} ×${run.times}` : run.text));
}

/** The chip of a call without attempts: it was held until its end, or answered at once. */
function unsent(call) {
  const held = HOLDING.has(call?.outcome) && call.duration >= 0.001;
  return held ? { text: `held ${seconds(call.duration)}`, tone: "wait", times: 1 } : { text: "not sent", tone: "none", times: 1 };
}

/** The outcomes of calls that may have waited for a cooldown, an outage, a rate, a limiter or a place before they ended. */
const HOLDING = new Set(["cooling", "outage", "rate_limited", "overloaded", "deadline", "client_gone"]);

/** The whole history of a call: its attempts on a time axis, then why it ended as it did. */
export function story(call, page) {
  const whole = Math.max(call.duration ?? 0, ...call.history.map((a) => a.start + (a.duration ?? 0)), 1e-6);
  const sent = [...call.history].sort((a, b) => a.start - b.start); // the history lists hedges by the time of their end
  return h(
    "div",
    { class: "story" },
    sent.length ? null : h("p", { class: "quiet" }, unsent(call).text === "not sent" ? "No attempt was made." : `No attempt was made: the call was held for ${seconds(call.duration)}, and ended before it could be sent.`),
    sent.length ? h("ol", { class: "waterfall" }, sent.map((attempt, at) => stretch(attempt, sent[at + 1], whole))) : null,
    call.history.length > 1 ? h("p", { class: "axis", "aria-hidden": "true" }, h("span", {}, "0"), h("span", {}, seconds(whole / 2)), h("span", {}, seconds(whole))) : null,
    h("p", { class: "verdict" }, h("span", { class: `outcome ${call.outcome}` }, call.outcome), " ", OUTCOMES[call.outcome] ?? "", call.detail ? h("span", { class: "quiet" }, ` Detail: ${call.detail}.`) : null, call.app_retry ? h("span", { class: "quiet" }, " The app itself was retrying here.") : null),
    call.remedy ? h("p", { class: "remedy" }, h("b", {}, "What helps: "), `${call.remedy}.`) : null,
    (call.fallbacks ?? []).map((each) => h("p", { class: "verdict" }, each.skipped ? `Not taken over by ${each.to} (${each.outcome}): ${each.skipped}.` : `Taken over by ${each.to} (${each.outcome}).`)),
    h("dl", { class: "facts" }, facts(call, page)),
    actions(call, page),
  );
}

/** The buttons of a call: copy it in several forms, explain it. */
function actions(call, page) {
  const said = h("span", { role: "status", class: "quiet" });
  const below = h("div", { class: "below" });
  const button = (text, title, act) => h("button", { type: "button", title, onclick: act }, text);
  const take = (name, make) => async () => {
    const text = make();
    below.replaceChildren();
    if (await copied(text)) return say(said, `Copied: ${name}.`);
    const field = h("textarea", { readonly: true, rows: "6", "aria-label": name });
    field.value = text;
    below.replaceChildren(field);
    field.select();
    say(said, "The browser does not allow this page to copy. Here is the text.");
  };
  const json = () => `${JSON.stringify(call, null, 2)}\n`;
  return h(
    "div",
    { class: "actions" },
    h(
      "p",
      { class: "buttons" },
      button("Explain this call", "What the configuration in force says about it (redrive explain)", () => explain(call, page, below, said)),
      page.named.has(call.upstream) ? button("What if…", "Edit the upstream's policy, and see how its last calls would have gone", () => page.show_what_if(call.upstream)) : null,
      button("Copy as curl", "A curl command; masked values stay masked", take("a curl command", () => curl(call, page.about.get(call.upstream), page.ready?.listen ?? []))),
      button("Copy as JSON", "The call as /requests returns it", take("JSON", json)),
      button("Copy link", "A link to this call, as long as it is recorded", take("a link to this call", () => link_to(call))),
      said,
    ),
    below,
  );
}

function facts(call, page) {
  const about = page.about.get(call.upstream);
  const route = about?.routes.find((each) => each.route === call.route) ?? about;
  const pairs = [
    ["upstream", [call.upstream, call.route].filter(Boolean).join(" › ")],
    ["strategy", call.strategy ? `${call.strategy}${route ? `, at most ${route.max_attempts} attempt${route.max_attempts === 1 ? "" : "s"}` : ""}` : ""],
    ["bucket", route?.bucket ?? ""],
    ["host", call.host],
    ["path", call.path],
    ["app", [call.app ?? call.agent, call.client].filter(Boolean).join(" at ")],
    ["protocol", call.protocol ?? ""],
    ["gRPC status", call.grpc_status === undefined ? "" : `${call.grpc_status} ${GRPC[call.grpc_status] ?? ""}`],
    ["began", call.time],
    ["took", seconds(call.duration ?? 0)],
  ];
  return pairs.filter(([, text]) => text).map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text)));
}

/** An attempt: its bar, the wait after it, and the reason for the decision that followed. */
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
  if (attempt.range) said.push(`for ${attempt.range}`);
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
