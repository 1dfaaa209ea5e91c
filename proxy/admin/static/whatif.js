// The editor "What if": a draft of one upstream's policy, the problems that `redrive check` finds in it, and how the last
// calls would have gone under it. The configuration file is never changed.

import { h, mark, say, seconds } from "./dom.js";
import { OUTCOMES } from "./words.js";

const TYPED = 400; // ms without a key after which a draft is checked
const CALLS = 100;

export class WhatIf {
  constructor(page, place) {
    this.page = page;
    this.place = place;
    this.upstream = null;
  }

  /** Show the policy of an upstream as the file has it. */
  async open(upstream) {
    this.upstream = upstream;
    clearTimeout(this.timer);
    this.place.replaceChildren(h("p", { class: "quiet" }, "…"));
    try {
      const answer = await this.page.ask(`what-if?upstream=${encodeURIComponent(upstream)}`);
      if (this.upstream !== upstream) return;
      if (answer.ok) this.build(await answer.json());
      else this.place.replaceChildren(h("p", {}, answer.status === 404 ? "Only an upstream that the configuration file names can be tried." : `That did not work: ${answer.status}`));
    } catch (error) {
      this.place.replaceChildren(h("p", {}, `That did not work: ${error.message}`));
    }
  }

  close() {
    this.upstream = null;
    clearTimeout(this.timer);
  }

  build({ upstream, yaml, locked, from }) {
    this.written = yaml;
    this.field = h("textarea", { id: "draft", rows: String(Math.min(Math.max(yaml.split("\n").length + 3, 10), 26)), spellcheck: "false", autocomplete: "off", autocapitalize: "off", "aria-label": `The policy of ${upstream}, as YAML`, "aria-describedby": "draft-says" });
    this.field.value = yaml;
    this.says = h("div", { id: "draft-says", role: "status" });
    this.result = h("div", { class: "tried" });
    this.button = h("button", { type: "button", class: "primary", onclick: () => this.ask(CALLS) }, "Play the last calls");
    this.field.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.ask(0), TYPED);
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.ask(CALLS);
    });
    const back = () => {
      this.field.value = this.written;
      this.ask(0);
      this.field.focus();
    };
    this.place.replaceChildren(
      h("h2", {}, `What if ${upstream} had another policy?`),
      h("p", { class: "quiet" }, `Edit what ${from} says, and see how the last calls would have gone. Nothing is written, and nothing is sent. Keys that are not written here have their defaults. ${locked.length ? `Not shown here, and unchanged: ${locked.join(", ")}. ` : ""}*** stands for a secret in the file.`),
      this.field,
      h("p", { class: "buttons" }, this.button, h("button", { type: "button", onclick: back }, "As the file has it"), h("button", { type: "button", onclick: () => this.page.show_config(upstream) }, "Back to its values"), h("span", { class: "quiet" }, "Ctrl+Enter works too")),
      this.says,
      this.result,
    );
  }

  /** Have the draft checked, and this many calls played under it. While a request is open, only one further request waits. */
  async ask(calls) {
    clearTimeout(this.timer);
    if (this.asking) {
      this.next = Math.max(calls, this.next ?? 0);
      return;
    }
    this.asking = true;
    const upstream = this.upstream;
    if (calls) say(this.says, "playing…");
    try {
      const answer = await this.page.post("what-if", { upstream, yaml: this.field.value, calls });
      if (answer.status === 503) this.next = Math.max(calls, this.next ?? 0); // another user's draft is being played
      else if (!answer.ok) this.tell([(await answer.text()).trim()], []);
      else if (this.upstream === upstream) this.show(await answer.json(), calls);
      if (answer.status === 503) await new Promise((resolve) => setTimeout(resolve, 1000));
    } catch (error) {
      this.tell([`That did not work: ${error.message}`], []);
    }
    this.asking = false;
    if (this.next !== undefined && this.upstream === upstream) {
      const next = this.next;
      this.next = undefined;
      this.ask(next);
    }
  }

  tell(errors, warnings) {
    mark(this.field, "aria-invalid", errors.length ? "true" : null);
    const lines = [...errors.map((line) => ["bad", line]), ...warnings.map((line) => ["wait", line])];
    this.says.replaceChildren(lines.length ? h("ul", { class: "lines" }, lines.map(([cls, line]) => h("li", { class: cls }, this.line(line)))) : h("p", { class: "fine" }, "No errors."));
  }

  /** A problem in the draft; a click on its line and column moves the cursor there. */
  line(text) {
    const place = /^edit:(\d+):(\d+): /.exec(text);
    if (!place) return text;
    const go = () => {
      const before = this.field.value.split("\n").slice(0, Number(place[1]) - 1);
      const at = before.reduce((sum, each) => sum + each.length + 1, 0) + Number(place[2]) - 1;
      this.field.focus();
      this.field.setSelectionRange(at, at);
    };
    return [h("button", { type: "button", class: "plainly", onclick: go, title: "Go there" }, `line ${place[1]}, column ${place[2]}`), ` ${text.slice(place[0].length)}`];
  }

  show({ errors, warnings, played }, calls) {
    this.tell(errors, warnings);
    if (errors.length) this.result.replaceChildren();
    else if (played) this.result.replaceChildren(...this.played(played));
    else if (calls) this.result.replaceChildren(h("p", {}, "No call of this upstream is recorded, so there is nothing to play."));
    else this.result.replaceChildren();
  }

  played(found) {
    const told = [
      ["calls played", found.played],
      ["would end differently", found.otherwise],
      ["end not known", found.unknown],
      ["attempts", more(found.attempts_after - found.attempts_before, String), `${found.attempts_before} before, ${found.attempts_after} with the edit`],
      ["waiting", more(Math.round((found.waited_after - found.waited_before) * 1000) / 1000, seconds), `${seconds(found.waited_before)} before, ${seconds(found.waited_after)} with the edit: seconds in which calls had no attempt under way`],
    ];
    const rows = found.calls.filter((row) => !row.left_out);
    const left = found.calls.filter((row) => row.left_out);
    const changed = rows.filter((row) => row.after.unknown || row.after.outcome !== row.before.outcome || row.after.attempts !== row.before.attempts || Math.abs(row.after.took - row.before.took) > 0.0015);
    return [
      h("dl", { class: "sums" }, told.map(([name, text, title]) => h("div", { title }, h("dt", {}, name), h("dd", {}, String(text))))),
      found.unknown ? h("p", { class: "quiet" }, "Where the edit would make an attempt that was never made, its result is not known. Attempts and waiting are counted up to there.") : null,
      found.buckets === "empty" ? h("p", { class: "quiet" }, "Buckets start empty here, as most of these calls found them.") : null,
      changed.length
        ? h("table", { class: "trial" }, h("thead", {}, h("tr", {}, ["Call", "In force", "With the edit"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, changed.map((row) => this.row(row))))
        : h("p", {}, rows.length ? "Every call would have gone the same way." : "None of these calls can be played."),
      left.length ? h("details", {}, h("summary", {}, `${left.length} call${left.length === 1 ? " is" : "s are"} left out: played under the configuration in force, ${left.length === 1 ? "it comes" : "they come"} out differently from what happened`), h("p", { class: "quiet" }, "redrive does not keep request headers, bodies, and the levels of buckets at that time. Here all buckets start full, or empty if more calls then come out as they did, no cooldown is in force, and every jitter is the middle of its range."), h("ul", { class: "lines" }, left.map((row) => h("li", {}, h("b", {}, `${row.method} ${row.path} `), row.left_out)))) : null,
    ].filter(Boolean);
  }

  row({ number, time, method, path, before, after }) {
    const end = (each) => [each.outcome === null ? h("span", { class: "unknown" }, each.unknown) : h("span", { class: `outcome ${each.outcome}`, title: OUTCOMES[each.outcome] }, each.outcome), h("small", {}, ` ${each.attempts} attempt${each.attempts === 1 ? "" : "s"}, ${each.outcome === null ? "at least " : ""}${seconds(each.took)}${each.waited > 0.0005 ? `, ${seconds(each.waited)} of it waiting` : ""}`)];
    return h("tr", {}, h("th", { scope: "row" }, h("a", { href: `#calls?${new URLSearchParams({ call: number, at: time })}` }, time.slice(11, 23)), ` ${method} `, h("span", { class: "path" }, path)), h("td", {}, end(before)), h("td", {}, end(after)));
  }
}

function more(number, text) {
  if (number === 0) return "unchanged";
  return number > 0 ? `${text(number)} more` : `${text(-number)} less`;
}
