// The figures of an upstream in words, for its row in the table and for its pane. Its state is sent with the board.

import { amount_of as amount, count, plain, rate, seconds, tokens } from "./dom.js";
import { GATES, holder } from "./words.js";

/** Attempts per call, counting only calls that sent one to this upstream; null if there were none. */
export function attempts_per_call({ attempts, retries }) {
  return attempts > retries ? attempts / (attempts - retries) : null;
}

/** How the number of attempts per call is made up: retries, fallbacks, and calls that sent nothing. */
export function attempts_in_words({ calls, attempts, retries, arrived }) {
  const unsent = calls + arrived - (attempts - retries);
  return [
    `${amount(attempts, "attempt")}, ${count(retries)} of them retries`,
    arrived ? `${amount(arrived, "call")} came from other upstreams, as their fallback` : "",
    unsent > 0 ? `${amount(unsent, "call")} not counted here: nothing was sent for ${unsent === 1 ? "it" : "them"}` : "",
  ].filter(Boolean).join("\n");
}

export { amount };

/** The endpoints whose circuit breakers are open, and the time to their next probes. */
export function opened(live) {
  return (live.open ?? []).map(([endpoint, left]) => `${endpoint}: open, ${probe(left)}`).join("\n");
}

export const probe = (left) => (left ? `the next probe in ${seconds(left)}` : "a probe is due");

/** The upstream's credentials that are put aside or cool down, by number. */
export function keys_in_words(live) {
  const told = [];
  for (const [key, left] of live.aside ?? []) told.push(`key ${key}: put aside for another ${seconds(left)}`);
  for (const [key, left] of live.cooling ?? []) told.push(`key ${key}: cooling down for another ${seconds(left)}`);
  return told.join("\n");
}

/** The limits and outages in words, a line each: where, for how long and why; and, if several hold calls, how many each
 *  of them holds. The number in all, `held_in_words` says.
 */
export function weather_in_words(live) {
  const lanes = live.weather ?? [];
  const several = lanes.filter(({ held_calls }) => held_calls).length > 1;
  return lanes.map((lane) => lane_in_words(lane, several)).filter(Boolean);
}

function lane_in_words(lane, several) {
  const { endpoint, callers, outage, limit, held_by, held_calls, left_says } = lane;
  const held = several && held_calls ? `; ${amount(held_calls, "call")} ${held_calls === 1 ? "is" : "are"} held` : "";
  const where = [endpoint, callers === "everybody" ? "" : endpoint ? `(${callers})` : callers].filter(Boolean).join(" ");
  const placed = (what) => capital(where ? `${where}: ${what}` : what);
  if (!outage && !limit) return held_by === "ahead" && left_says ? `${placed(`${GATES.ahead}: ${left_says}`)}${held}.` : "";
  const lasts = ({ since, seconds: long }) => `since ${new Date(since * 1000).toLocaleTimeString("en-GB")}, for ${plain(seconds(long))}`;
  const what = outage
    ? `an outage ${lasts(outage)}: one probe at a time is sent`
    : `at most ${[limit.attempts && `${amount(limit.attempts, "attempt")} at a time`, limit.per_second && `${rate(limit.per_second)} a second`].filter(Boolean).join(", ")}, ${lasts(limit)}`;
  const why = (outage ?? limit).why;
  return `${placed(what)}${held}${why ? `. ${capital(why)}` : ""}.`;
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** How many calls are held, and by what; "" for none. */
export function held_in_words(live) {
  if (!live.held) return "";
  const by = Object.entries(live.held_by ?? {});
  const why = by.length === 1 ? ` by ${holder(by[0][0], live)}` : by.length ? `: ${by.map(([cause, number]) => `${count(number)} by ${holder(cause, live)}`).join(", ")}` : "";
  return `${amount(live.held, "call")} ${live.held === 1 ? "is" : "are"} held now${why}.`;
}

/** The cooldown or the outage in a few characters. */
export function cooldown(live) {
  const broken = live.open?.length ?? 0;
  const out = (live.weather ?? []).filter(({ outage }) => outage);
  if (out.length) return `out ${plain(seconds(Math.max(...out.map(({ outage }) => outage.seconds))))}`;
  if (live.only_keys_cool) return `${live.cooling.length}/${live.keys} keys`;
  if (live.cooldown) return seconds(live.cooldown);
  return broken ? `${count(broken)} open` : "–";
}

/** A bucket's level and capacity; a budget has no fixed capacity, since it grows with the calls. */
export function filled({ kind, level, capacity }) {
  return kind === "budget" ? `${tokens(level)} left` : `${tokens(level)}/${tokens(capacity)}`;
}

/** The limits on attempts: their rate, and how many of those that may be under way are. A limit that was found because
 *  the upstream is in trouble is shown rather than a fixed one.
 */
export function limit({ limiter, rated, about, live }) {
  const found = (live.weather ?? []).filter((lane) => lane.limit?.attempts).sort((a, b) => a.limit.attempts - b.limit.attempts)[0];
  const most = typeof about?.concurrency === "number" ? about.concurrency : 0;
  const placed = found ? `${count(found.limit.under_way)}/${count(found.limit.attempts)}` : most ? `${count(live.under_way)}/${count(most)}` : live.under_way ? `${count(live.under_way)} under way` : "";
  const paced = pace({ limiter, rated, about });
  return placed ? (paced === "–" ? placed : `${paced}, ${placed}`) : paced;
}

function pace({ limiter, rated, about }) {
  if (limiter) return limiter.enabled ? `${rate(limiter.fill_rate)}/s` : "open";
  if (rated) return `${count(Math.floor(rated.level))}${(rated.unit ?? "attempts") === "attempts" ? "" : " tokens"} left`;
  return about?.limiter || about?.rate ? "open" : "–";
}
