// A long list that has elements for visible rows only: rows of equal height, positioned in a box as high as all of them.
//
// For a screen reader it is a grid of rows. The tab key stops once at the list, and the arrow keys move in it.

import { h } from "./dom.js";

const BEYOND = 6; // rows kept ready above and below

export class VirtualList {
  /** `make()` makes a row element, `fill(element, item)` shows an item in it; `key(item)` identifies an item. */
  constructor(box, { label, make, fill, key, open, head = null, height }) {
    Object.assign(this, { box, make, fill, key, open, height });
    this.items = [];
    this.rows = new Map(); // by place
    this.spare = [];
    this.chosen = null;
    this.sheet = h("div", { class: "sheet", role: "rowgroup" });
    this.scroll = h("div", { class: "scroll", tabindex: "0", role: "grid", "aria-label": label }, head, this.sheet);
    this.empty = h("div", { class: "empty", hidden: true });
    box.append(this.scroll, this.empty);
    this.scroll.addEventListener("scroll", () => this.draw(), { passive: true });
    this.scroll.addEventListener("keydown", (event) => this.key_pressed(event));
    this.sheet.addEventListener("click", (event) => this.clicked(event));
    new ResizeObserver(() => this.draw()).observe(this.scroll);
  }

  /** Show these items; `empty` is the node to show if there are none. */
  show(items, empty = null) {
    this.items = items;
    const nothing = items.length === 0 && empty !== null;
    this.empty.hidden = !nothing;
    this.scroll.hidden = nothing;
    if (nothing) {
      // The node is kept: its advice does not change every second, and the user may be about to click it.
      if (this.empty.firstChild?.dataset?.about !== empty.dataset.about) this.empty.replaceChildren(empty);
      return;
    }
    this.empty.replaceChildren();
    this.scroll.setAttribute("aria-rowcount", String(items.length));
    this.draw();
  }

  draw() {
    if (this.scroll.clientHeight === 0) return;
    const height = this.height();
    this.sheet.style.height = `${this.items.length * height}px`;
    const above = this.sheet.offsetTop;
    const top = Math.max(this.scroll.scrollTop - above, 0);
    const first = Math.max(Math.floor(top / height) - BEYOND, 0);
    const last = Math.min(Math.ceil((top + this.scroll.clientHeight) / height) + BEYOND, this.items.length);
    for (const [at, row] of this.rows) {
      if (at < first || at >= last) {
        row.remove();
        this.spare.push(row);
        this.rows.delete(at);
      }
    }
    for (let at = first; at < last; at++) this.draw_row(at, height);
    const chosen = this.items.findIndex((item) => this.key(item) === this.chosen);
    const row = this.rows.get(chosen);
    if (row) this.scroll.setAttribute("aria-activedescendant", row.id);
    else this.scroll.removeAttribute("aria-activedescendant");
  }

  draw_row(at, height) {
    let row = this.rows.get(at);
    if (!row) {
      row = this.spare.pop() ?? this.make();
      row.id ||= `row-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
      this.rows.set(at, row);
      this.sheet.append(row);
    }
    row.at = at;
    row.style.transform = `translateY(${at * height}px)`;
    row.setAttribute("aria-rowindex", String(at + 1));
    const chosen = this.key(this.items[at]) === this.chosen;
    row.classList.toggle("chosen", chosen);
    row.setAttribute("aria-selected", String(chosen));
    this.fill(row, this.items[at]);
  }

  clicked(event) {
    const row = event.target.closest("[role=row]");
    const item = row && this.items[row.at];
    if (!item) return;
    this.chosen = this.key(item);
    this.draw();
    this.open(item);
  }

  key_pressed(event) {
    if (event.target !== this.scroll || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(Math.floor(this.scroll.clientHeight / this.height()) - 1, 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      event.preventDefault();
      this.choose(moves[event.key]);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      const item = this.items.find((each) => this.key(each) === this.chosen);
      if (item) this.open(item);
    }
  }

  /** Move by this many rows from the chosen one. */
  choose(step) {
    if (!this.items.length) return;
    const now = this.items.findIndex((item) => this.key(item) === this.chosen);
    const to = now < 0 ? (step < 0 && step !== -Infinity ? this.items.length - 1 : step === Infinity ? this.items.length - 1 : 0) : now + step;
    const at = Math.min(Math.max(to, 0), this.items.length - 1);
    this.chosen = this.key(this.items[at]);
    const height = this.height();
    const above = this.sheet.offsetTop;
    const top = at * height;
    const seen = this.scroll.clientHeight - above;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (top + height > this.scroll.scrollTop + seen) this.scroll.scrollTop = top + height - seen;
    this.draw();
  }
}
