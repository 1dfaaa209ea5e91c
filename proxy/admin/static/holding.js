// What holds calls now, below a short table of upstreams: outages, limits and cooldowns, since when, and what made them.

import { $, h, mark, plain, say, seconds } from "./dom.js";
import { held_in_words, weather_in_words } from "./standing.js";

export class Holding {
  constructor(open) {
    this.open = open;
    this.element = $("holding");
    this.lines = new Map(); // by the upstream's name
  }

  /** Show it, if calls of any of the items (rows of the table) are held or would be, and the table leaves room for it. */
  draw(items, has_room) {
    const held = has_room ? items.map(({ name, live }) => ({ name, said: holding(live) })).filter(({ said }) => said.length) : [];
    mark(this.element, "hidden", held.length ? null : "");
    const before = [...this.lines.keys()];
    if (held.length !== before.length || held.some(({ name }, at) => name !== before[at])) {
      this.lines = new Map(held.map(({ name }) => [name, this.lines.get(name) ?? this.line(name)]));
      this.element.replaceChildren(h("h3", {}, "What holds calls now"), h("ul", {}, [...this.lines.values()].map(({ item }) => item)));
    }
    for (const { name, said } of held) tell(this.lines.get(name), said);
  }

  /** A line, without what is said in it: that changes each second, while the line's button keeps the focus. */
  line(name) {
    const why = h("span", { class: "why" });
    const button = h("button", { type: "button", title: "More about this upstream", onclick: () => this.open(name) }, h("b", { class: "of" }, name), why);
    return { item: h("li", {}, button), why };
  }
}

function tell({ why }, said) {
  if (why.childElementCount !== said.length) why.replaceChildren(...said.map((text) => h("span", {}, text)));
  else said.forEach((text, at) => say(why.children[at], text));
}

/** A sentence about the cooldown: since when, which answer began it, and what is left of it. */
function cooldown_in_words({ began, cooldown }) {
  if (!began) return `The upstream asked its callers to wait: for another ${seconds(cooldown)}.`;
  const at = new Date(began.began * 1000).toLocaleTimeString("en-GB");
  const where = began.elsewhere ? " to another sidecar" : "";
  return `Since ${at}: an answer ${began.status}${where} asked callers to wait for ${plain(seconds(began.seconds))}, of which ${seconds(cooldown)} are left.`;
}

/** Sentences about what holds an upstream's calls, and how many of them; none while nothing does. */
function holding(live) {
  const cools = live.cooldown ? cooldown_in_words(live) : "";
  return [held_in_words(live), cools, ...weather_in_words(live)].filter(Boolean);
}
