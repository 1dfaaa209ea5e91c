// What holds calls now, below a short table of upstreams: outages, limits and cooldowns, since when, and what made them.

import { $, h, mark, seconds } from "./dom.js";
import { held_in_words, weather_in_words } from "./standing.js";

export class Holding {
  constructor(open) {
    this.open = open;
    this.element = $("holding");
    this.told = "";
  }

  /** Show it, if calls of any of the items (rows of the table) are held or would be, and the table leaves room for it. */
  draw(items, has_room) {
    const held = has_room ? items.map(({ name, live }) => ({ name, said: holding(live) })).filter(({ said }) => said.length) : [];
    mark(this.element, "hidden", held.length ? null : "");
    const told = JSON.stringify(held);
    if (told === this.told) return;
    this.told = told;
    this.element.replaceChildren(h("h3", {}, "What holds calls now"), h("ul", {}, held.map((each) => this.line(each))));
  }

  line({ name, said }) {
    return h("li", {},
      h("button", { type: "button", title: "More about this upstream", onclick: () => this.open(name) },
        h("b", { class: "of" }, name),
        h("span", { class: "why" }, said.map((text) => h("span", {}, text)))));
  }
}

/** Sentences about what holds an upstream's calls, and how many of them; none while nothing does. */
function holding(live) {
  const cools = live.cooldown ? `The upstream asked its callers to wait: for another ${seconds(live.cooldown)}.` : "";
  return [held_in_words(live), cools, ...weather_in_words(live)].filter(Boolean);
}
