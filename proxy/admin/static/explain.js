// The output of `redrive explain` for a call, under the configuration in force.

import { h, say, seconds } from "./dom.js";
import { key_link } from "./place.js";
import { OUTCOMES } from "./words.js";

/** Fetch the explanation of a call, and show it in `below`; `said` is the element that shows the progress. */
export async function explain(call, page, below, said) {
  say(said, "asking…");
  try {
    const told = await page.json(`requests/${call.number}/explain`);
    say(said, "Under the configuration in force:");
    below.replaceChildren(explanation(told, call));
    below.scrollIntoView({ block: "nearest" });
  } catch (error) {
    say(said, /: 404/.test(error.message) ? "This call is no longer kept." : `That did not work: ${error.message}`);
  }
}

function explanation(told, call) {
  const rows = Object.entries(told.applies);
  return h(
    "div",
    { class: "explanation", role: "region", "aria-label": "Explanation", tabindex: "-1" },
    told.refused ? h("p", { class: "verdict" }, h("span", { class: `outcome ${told.refused.outcome}` }, told.refused.outcome), ` redrive answers this request itself with ${told.refused.status}: ${told.refused.why}.`) : null,
    told.notes.length ? h("ul", { class: "notes" }, told.notes.map((note) => h("li", {}, sentence(note)))) : null,
    told.now.length ? h("p", { class: "quiet" }, `Now: ${told.now.join("; ")}.`) : null,
    told.ends.map(end),
    rows.length ? h("details", { open: !told.ends.length }, h("summary", {}, "What applies to it"), h("table", { class: "plain" }, rows.map(([name, text]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, text))))) : null,
    told.values.length ? h("details", {}, h("summary", {}, "Where each value comes from"), values(told.values, call)) : null,
  );
}

function end(each) {
  const waits = each.schedule.slice(1).map((row) => (row.latest === null ? `attempt ${row.attempt} after ${seconds(row.earliest)}, or never` : `attempt ${row.attempt} after ${between(row.earliest, row.latest)}`));
  const got = each.own_answer ? `redrive's own answer, “${each.own_answer}”` : "that answer";
  return h(
    "section",
    {},
    h("h3", {}, `If every attempt ends with ${each.end}`),
    each.class ? h("p", {}, h("b", {}, each.class), each.because ? ` (${each.because})` : "") : h("p", {}, "Its class depends on the body."),
    h("ol", { class: "judgements" }, each.judgements.map((one) => h("li", {}, h("span", { class: "quiet" }, `attempt ${one.attempt} `), one.decision))),
    waits.length ? h("p", { class: "quiet" }, `${waits.join(", ")}, counted from the beginning of the call.`) : null,
    h("p", {}, `The app gets ${each.status} after ${between(each.earliest, each.latest)}: ${got}, outcome `, h("span", { class: `outcome ${each.outcome}`, title: OUTCOMES[each.outcome] }, each.outcome), "."),
    each.cooldown ? h("p", { class: "quiet" }, `Cooldown: ${each.cooldown}.`) : null,
  );
}

function values(rows, call) {
  const row = ({ key, value, from }) => h("tr", { class: from === "default" ? "default" : null }, h("th", { scope: "row" }, h("a", { href: key_link(call.upstream, call.route, key), title: "Show it in the configuration" }, key)), h("td", { class: "value" }, value || "(empty)"), h("td", { class: "from" }, from));
  return h("table", { class: "values" }, h("tbody", {}, rows.map(row)));
}

const between = (least, most) => (seconds(least) === seconds(most) ? seconds(least) : `${seconds(least)} to ${seconds(most)}`);

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
