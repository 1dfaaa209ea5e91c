// The connection to the admin port: requests, with the token if one is needed, and the stream of events.
//
// It uses fetch, because EventSource can't send a token. The stream is opened again whenever it ends or is silent, sooner
// at first; while the page is hidden, it is closed.

const TOKEN = "redrive-admin-token";
const SILENT = 12_000; // ms of silence after which a connection counts as dead; a board is sent every few seconds
const HIDDEN = 60_000; // ms in the background after which the stream is closed until the page is visible again

function kept() {
  try {
    return sessionStorage.getItem(TOKEN) ?? "";
  } catch {
    return "";
  }
}

let token = kept();

export function setToken(value) {
  token = value;
  try {
    sessionStorage.setItem(TOKEN, value);
  } catch {
    // without storage, the token is kept until the page is closed
  }
}

export const hasToken = () => token !== "";

export class Unauthorized extends Error {}

/** Make a request; throws Unauthorized if the token is missing or wrong. */
export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(path, { cache: "no-store", ...options, headers });
  if (answer.status === 401) throw new Unauthorized(path);
  return answer;
}

export const json = async (path) => {
  const answer = await ask(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${(await answer.text()).trim()}`);
  return answer.json();
};

/** A reader of /events that reconnects for ever. `tell` has: event(name, data), state("live" | "lost" | "token" | "asleep", seconds?). */
export class Stream {
  constructor(path, tell) {
    this.path = path;
    this.tell = tell;
    this.last = null;
    this.tries = 0;
    this.wake = null;
    document.addEventListener("visibilitychange", () => this.seen());
    window.addEventListener("online", () => this.again());
    this.run();
  }

  /** Reconnect at once. */
  again() {
    this.wake?.();
  }

  seen() {
    clearTimeout(this.sleep);
    if (document.hidden) {
      this.sleep = setTimeout(() => {
        this.asleep = true;
        this.abort?.abort();
      }, HIDDEN);
    } else if (this.asleep) {
      this.asleep = false;
      this.again();
    }
  }

  async run() {
    for (;;) {
      try {
        await this.follow();
      } catch (error) {
        if (error instanceof Unauthorized) {
          this.tell.state("token");
          await this.pause(null);
          continue;
        }
      }
      if (this.asleep) {
        this.tell.state("asleep");
        await this.pause(null);
        continue;
      }
      const wait = Math.min(500 * 2 ** this.tries++, 5000);
      this.tell.state("lost", wait / 1000);
      await this.pause(wait);
    }
  }

  pause(wait) {
    return new Promise((resolve) => {
      const timer = wait === null ? 0 : setTimeout(resolve, wait);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async follow() {
    this.abort = new AbortController();
    const headers = { Accept: "text/event-stream" };
    if (this.last !== null) headers["Last-Event-ID"] = this.last;
    let watchdog = setTimeout(() => this.abort.abort(), SILENT);
    try {
      const answer = await ask(this.path, { headers, signal: this.abort.signal });
      if (!answer.ok) throw new Error(`${answer.status}`);
      this.tries = 0;
      this.tell.state("live");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(watchdog);
        watchdog = setTimeout(() => this.abort.abort(), SILENT);
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) this.take(block);
      }
    } finally {
      clearTimeout(watchdog);
    }
  }

  take(block) {
    let name = "message";
    let data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("id: ")) this.last = line.slice(4);
      else if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (data) this.tell.event(name, JSON.parse(data));
  }
}
