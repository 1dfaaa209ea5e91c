// Where somebody is in this page, as the URL's fragment: `#calls?upstream=payments&call=17`. What is chosen, opened or
// sorted makes an entry of the browser's history, what is typed into a filter changes the entry that is there.

import { $ } from "./dom.js";

export const PANELS = ["upstreams", "calls", "config"];

/** Controls that keep their own value, by the name that they have in the fragment, with the value that is left out. */
const FIELDS = {
  upstreams: { q: ["upstream-filter", ""], trouble: ["only-trouble", false], span: ["span", "recent"] },
  calls: { q: ["call-filter", ""], kind: ["call-kind", "all"] },
  config: { q: ["key-filter", ""], written: ["only-written", false] },
};

export class Place {
  /** `parts` has for each panel `place()`, what the panel itself adds to the fragment, and `go(query)`, which takes it up;
   * `show(name)` shows a panel. */
  constructor(parts, show) {
    this.parts = parts;
    this.show = show;
    this.reading = false;
    for (const fields of Object.values(FIELDS)) for (const [id] of Object.values(fields)) $(id)?.addEventListener("input", () => this.write());
    for (const name of ["popstate", "hashchange"]) window.addEventListener(name, () => location.hash !== this.written && this.read());
  }

  /** The fragment of what is shown. */
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

  /** Say in the address bar what is shown; `step`: it is one that the browser's back button takes back. */
  write(step = false) {
    if (this.reading) return;
    const now = this.now();
    if (now === location.hash) return;
    history[step && this.written !== undefined ? "pushState" : "replaceState"](null, "", now);
    this.written = now;
  }

  /** Show what the address bar says; what it says nothing of is as at the beginning. */
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

/** The whole URL of a call, whatever filters are set; `time` tells it from a call of this number of another process. */
export function link_to(call) {
  return new URL(fragment("calls", new URLSearchParams({ call: call.number, at: call.time })), location.href).href;
}

/** The fragment of a value in the configuration. */
export function key_link(upstream, route, key) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ upstream, route, q: key })) if (value) query.set(name, value);
  return fragment("config", query);
}
