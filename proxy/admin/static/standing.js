// The figures of an upstream in words, for its row in the table and for its pane. Its state comes with the board.

import { count, rate, seconds, tokens } from "./dom.js";

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
  if (live.only_keys_cool) return `${live.cooling.length}/${live.keys} keys`;
  if (live.cooldown) return seconds(live.cooldown);
  return broken ? `${count(broken)} open` : "–";
}

/** What there is, of what there may be; a budget grows with the calls, and has no most. */
export function filled({ kind, level, capacity }) {
  return kind === "budget" ? `${tokens(level)} left` : `${tokens(level)}/${tokens(capacity)}`;
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
