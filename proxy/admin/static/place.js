// What the page shows, as the URL's fragment: `#calls?upstream=payments&call=17`. Choosing, opening or sorting makes a
// new entry in the browser's history; typing into a filter changes the current entry.

import { $ } from "./dom.js";

export const PANELS = ["upstreams", "calls", "config"];

/** Controls whose value is in the fragment, by their name there: the element's id, and the default, which is left out. */
const FIELDS = {
  upstreams: { q: ["upstream-filter", ""], trouble: ["only-trouble", false], span: ["span", "recent"] },
  calls: { q: ["call-filter", ""], kind: ["call-kind", "all"] },
  config: { q: ["key-filter", ""], written: ["only-written", false] },
};

export class Place {
  /** `parts` has the panels by name: `place()` gives what a panel adds to the fragment, and `go(query)` shows that again.
   * `show(name)` shows a panel. */
  constructor(parts, show) {
    this.parts = parts;
    this.show = show;
    this.reading = false;
    for (const fields of Object.values(FIELDS)) for (const [id] of Object.values(fields)) $(id)?.addEventListener("input", () => this.write());
    for (const name of ["popstate", "hashchange"]) window.addEventListener(name, () => location.hash !== this.written && this.read());
  }

  /** The fragment that describes what is shown. */
  now() {
    const panel = PANELS.find((id) => !$(id).hidden);
    const query = new URLSearchParams();
    for (const [name, [id, usual]] of Object.entries(FIELDS[panel])) {
      const field = $(id);
      const value = field?.type === "checkbox" ? field.checked : (field?.value ?? usual);
      if (value !== usual) query.set(name, value === true ? "1" : value);
    }
    for (const [name, value] of Object.entries(this.parts[panel].place())) if (value !== null && value !== undefined && value !== "") query.set(name, value);
    return fragment(panel, query);
  }

  /** Write what is shown into the address bar; with `step`, as an entry of its own in the browser's history. */
  write(step = false) {
    if (this.reading) return;
    const now = this.now();
    if (now === location.hash) return;
    history[step && this.written !== undefined ? "pushState" : "replaceState"](null, "", now);
    this.written = now;
  }

  /** Show what the address bar says; all that it does not mention gets its default. */
  read() {
    const [panel, query] = parse(location.hash);
    this.reading = true;
    try {
      for (const [name, [id, usual]] of Object.entries(FIELDS[panel])) {
        const field = $(id);
        if (!field) continue;
        if (field.type === "checkbox") field.checked = query.get(name) === "1";
        else field.value = query.get(name) ?? usual;
        if (field.tagName === "SELECT" && field.selectedIndex < 0) field.value = usual;
      }
      this.show(panel);
      this.parts[panel].go(query);
    } finally {
      this.reading = false;
    }
    this.written = location.hash;
  }
}

function fragment(panel, query) {
  const text = query.toString();
  return `#${panel}${text ? `?${text}` : ""}`;
}

function parse(hash) {
  const [panel, text] = hash.slice(1).split(/\?(.*)/s);
  return [PANELS.includes(panel) ? panel : PANELS[0], new URLSearchParams(PANELS.includes(panel) ? text : "")];
}

/** The whole URL of a call, without filters; its time tells it from the call that has this number in another process. */
export function link_to(call) {
  return new URL(fragment("calls", new URLSearchParams({ call: call.number, at: call.time })), location.href).href;
}

/** The fragment of a value in the configuration. */
export function key_link(upstream, route, key) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ upstream, route, q: key })) if (value) query.set(name, value);
  return fragment("config", query);
}
