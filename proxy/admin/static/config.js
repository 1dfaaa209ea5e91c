// The panel of the effective configuration: its problems, and for each value the file and line that sets it.

import { $, count, h, mark, say } from "./dom.js";
import { VirtualList } from "./virtual.js";
import { WhatIf } from "./whatif.js";

export class Config {
  constructor(page) {
    this.page = page;
    this.chosen = { upstream: "", route: "" };
    this.values = null;
    this.trying = false;
    this.what_if = new WhatIf(page, $("values"));
    this.list = new VirtualList($("places"), {
      label: "What to show the configuration of",
      make: () => h("div", { class: "row place", role: "row" }, h("div", { role: "gridcell" })),
      fill: (row, item) => {
        say(row.firstChild, item.route ? `› ${item.route}` : item.upstream || "the process");
        row.classList.toggle("route", item.route !== "");
      },
      key: (item) => `${item.upstream}\n${item.route}`,
      open: (item) => {
        this.load(item);
        page.moved_on();
      },
      height: () => 30,
    });
    this.list.chosen = "\n";
    for (const id of ["key-filter", "only-written"]) $(id).addEventListener("input", () => this.draw_values());
    $("place-filter").addEventListener("input", () => this.draw());
    $("reload").addEventListener("click", () => this.reload());
  }

  draw() {
    const { page } = this;
    const ready = page.ready;
    const errors = ready?.reload_errors ?? [];
    const warnings = ready?.warnings ?? [];
    say($("count-config"), errors.length + warnings.length ? count(errors.length + warnings.length) : "");
    mark($("count-config"), "data-tone", errors.length ? "bad" : warnings.length ? "wait" : null);
    mark($("count-config"), "title", `${errors.length} errors, ${warnings.length} warnings`);
    this.problems(errors, warnings);
    const wanted = $("place-filter").value.trim().toLowerCase();
    const places = [{ upstream: "", route: "" }];
    for (const { name, routes } of page.about.values()) {
      if (name === "unmatched" && !page.named.has(name)) continue;
      places.push({ upstream: name, route: "" }, ...routes.map(({ route }) => ({ upstream: name, route })));
    }
    this.list.show(places.filter(({ upstream, route }) => `${upstream} ${route}`.toLowerCase().includes(wanted)), h("p", { "data-about": "none" }, "No upstream matches."));
    if (page.about !== this.about && page.learned && !$("config").hidden) {
      this.about = page.about;
      const { upstream, route } = this.chosen;
      const there = !upstream || places.some((place) => place.upstream === upstream && place.route === route);
      this.load(there ? this.chosen : places[0], this.trying);
    }
  }

  problems(errors, warnings) {
    const text = JSON.stringify([errors, warnings]);
    if (this.told === text) return;
    this.told = text;
    const lines = (title, cls, list) => (list.length ? h("details", { class: `problems ${cls}`, open: cls === "bad" || (list.length < 4 && innerWidth > 760) }, h("summary", {}, title), h("ul", {}, list.map((line) => h("li", {}, line)))) : null);
    $("problems").replaceChildren(
      ...[
        lines("The file was refused when it was loaded again; the earlier configuration stays in force", "bad", errors),
        lines(`${warnings.length} warning${warnings.length === 1 ? "" : "s"} in the configuration in force`, "wait", warnings),
      ].filter(Boolean),
    );
  }

  /** Show the values of an upstream, a route or the process; with `trying`, an upstream's policy to edit. */
  async load(place, trying = false) {
    const again = this.trying && place.upstream === this.chosen.upstream;
    this.chosen = place;
    this.trying = trying && place.upstream !== "" && place.route === "";
    if (!this.trying) this.what_if.close();
    else if (!again) this.what_if.open(place.upstream);
    this.list.chosen = `${place.upstream}\n${place.route}`;
    this.list.draw();
    const query = new URLSearchParams(place);
    try {
      const { values } = await this.page.json(`config/places?${query}`);
      if (this.chosen !== place) return;
      this.values = values;
    } catch {
      this.values = [];
    }
    this.draw_values();
  }

  draw_values() {
    if (this.trying) return;
    const wanted = $("key-filter").value.trim().toLowerCase();
    const written = $("only-written").checked;
    const folder = (this.page.ready?.config_file ?? "").replace(/[^/]*$/, "");
    const shown = (this.values ?? []).filter((each) => (!written || each.from !== "default") && `${each.path} ${each.value} ${each.from}`.toLowerCase().includes(wanted));
    const title = this.chosen.upstream ? [this.chosen.upstream, this.chosen.route].filter(Boolean).join(" › ") : "the process";
    const row = ({ path, value, from }) => {
      const short = folder && from.startsWith(folder) ? from.slice(folder.length) : from;
      return h("tr", { class: from === "default" ? "default" : null }, h("th", { scope: "row" }, path), h("td", { class: "value" }, value || h("span", { class: "quiet" }, "(empty)")), h("td", { class: "from", title: from }, short));
    };
    const table = h("table", { class: "values" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Key"), h("th", { scope: "col" }, "Value"), h("th", { scope: "col" }, "From"))), h("tbody", {}, shown.map(row)));
    const nothing = written && !wanted ? "Everything here has its default value." : "No key matches the filter.";
    const { upstream, route } = this.chosen;
    const edit = upstream && !route && this.page.named.has(upstream) ? h("button", { type: "button", title: "Edit its policy, and see how its last calls would have gone; nothing is written", onclick: () => this.try_out(upstream) }, "What if…") : null;
    $("values").replaceChildren(h("div", { class: "buttons" }, h("h2", {}, title), edit), shown.length ? table : h("p", { class: "quiet" }, this.values === null ? "…" : nothing));
  }

  show(upstream) {
    $("place-filter").value = "";
    this.load({ upstream, route: "" });
    this.page.moved_on();
  }

  /** Open an upstream's policy for editing, to see what would have happened to its calls. */
  try_out(upstream) {
    this.load({ upstream, route: "" }, true);
    this.page.moved_on();
  }

  /** This panel's part of the page's URL (place.js). */
  place() {
    return { upstream: this.chosen.upstream, route: this.chosen.route, try: this.trying ? "1" : null };
  }

  /** Show what a URL says. */
  go(query) {
    const place = { upstream: query.get("upstream") ?? "", route: query.get("route") ?? "" };
    const trying = query.get("try") === "1";
    if (place.upstream === this.chosen.upstream && place.route === this.chosen.route && trying === this.trying) this.draw_values();
    else this.load(place, trying);
  }

  async reload() {
    const button = $("reload");
    button.disabled = true;
    say($("reload-result"), "loading…");
    try {
      const answer = await this.page.post("reload");
      const { reloaded, errors } = await answer.json();
      say($("reload-result"), reloaded ? "Loaded: it is in force." : `Refused: ${errors.length} error${errors.length === 1 ? "" : "s"}, shown above. The earlier configuration stays in force.`);
      mark($("reload-result"), "data-tone", reloaded ? "good" : "bad");
    } catch (error) {
      say($("reload-result"), `That did not work: ${error.message}`);
    }
    button.disabled = false;
  }
}
