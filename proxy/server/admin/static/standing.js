// How an upstream stands now, in words and figures: for its row in the table, and for its pane.

import { count, rate, seconds, tokens } from "./dom.js";

export function state(live, bucket) {
  const { calls, failed, attempts, retries, arrived } = live.recent;
  if (live.name === "") return calls ? "refused" : "quiet"; // no upstream: what no policy applied to
  if (live.cooldown > 0 && !some_keys_cool(live)) return "cooling";
  if (calls && failed * 2 >= calls) return "failing";
  if (bucket && drained(bucket)) return "drained";
  if (live.open?.length) return "open";
  if (live.aside?.length) return "aside";
  if (live.cooldown > 0) return "key_cooling";
  if (failed) return "errors";
  if (retries > (attempts - retries) * 0.1) return "retrying";
  if (arrived) return "taking_over";
  return calls ? "ok" : "quiet";
}

/** Whether the cooldown in force is that of some keys alone: calls go on with the others. */
export function some_keys_cool(live) {
  if (!live.cooling?.length || live.cooling.length >= live.keys) return false;
  return Math.max(...live.cooling.map(([, left]) => left)) > live.cooldown - 0.5;
}

/** Attempts for each call of which any was sent here; null where none was. */
export function attempts_per_call({ attempts, retries }) {
  return attempts > retries ? attempts / (attempts - retries) : null;
}

/** What the attempts for each call are made of. */
export function attempts_in_words({ calls, attempts, retries, arrived }) {
  const unsent = calls + arrived - (attempts - retries);
  return [
    `${amount(attempts, "attempt")}, ${count(retries)} of them retries`,
    arrived ? `${amount(arrived, "call")} came from other upstreams, as their fallback` : "",
    unsent > 0 ? `${amount(unsent, "call")} not counted here: nothing was sent for ${unsent === 1 ? "it" : "them"}` : "",
  ].filter(Boolean).join("\n");
}

export const amount = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Which endpoints' circuit breakers are open, and for how long. */
export function opened(live) {
  return (live.open ?? []).map(([endpoint, left]) => `${endpoint}: open, ${probe(left)}`).join("\n");
}

export const probe = (left) => (left ? `the next probe in ${seconds(left)}` : "a probe is due");

/** Which of its credentials are put aside or cool down, by number. */
export function keys_in_words(live) {
  const told = [];
  for (const [key, left] of live.aside ?? []) told.push(`key ${key}: put aside for another ${seconds(left)}`);
  for (const [key, left] of live.cooling ?? []) told.push(`key ${key}: cooling down for another ${seconds(left)}`);
  return told.join("\n");
}

/** The cooldown in a few signs. */
export function cooldown(live) {
  const broken = live.open?.length ?? 0;
  if (some_keys_cool(live)) return `${live.cooling.length}/${live.keys} keys`;
  if (live.cooldown) return seconds(live.cooldown);
  return broken ? `${count(broken)} open` : "–";
}

/** Whether a bucket hardly grants a retry any more; a throttle grants none from the half on (gRPC A6). */
export function drained({ kind, level, capacity }) {
  if (kind === "throttle") return level <= capacity / 2;
  if (kind === "budget") return level < 1;
  return kind !== "rate" && level < capacity * 0.1;
}

/** What there is, of what there may be; a budget grows with the calls, and has no most. */
export function filled({ kind, level, capacity }) {
  return kind === "budget" ? `${tokens(level)} left` : `${tokens(level)}/${tokens(capacity)}`;
}

export function lowest(buckets) {
  const found = buckets.filter(Boolean);
  return found.length ? found.reduce((a, b) => (b.level / (b.capacity || 1) < a.level / (a.capacity || 1) ? b : a)) : null;
}

/** What limits attempts: their pace, and how many are under way of those that may be. */
export function limit({ limiter, rated, about, live }) {
  const most = about?.concurrency;
  const placed = most ? `${count(live.under_way)}/${count(most)}` : live.under_way ? `${count(live.under_way)} under way` : "";
  const paced = pace({ limiter, rated, about });
  return placed ? (paced === "–" ? placed : `${paced}, ${placed}`) : paced;
}

function pace({ limiter, rated, about }) {
  if (limiter) return limiter.enabled ? `${rate(limiter.fill_rate)}/s` : "open";
  if (rated) return `${tokens(rated.level)} left`;
  return about?.limiter || about?.rate ? "open" : "–";
}
