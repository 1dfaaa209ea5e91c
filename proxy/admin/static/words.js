// The meaning of each word of the log and the metrics, in a sentence (docs/reference/classification.md).

export const OUTCOMES = {
  success: "An answer that is not a failure was passed to the app.",
  not_retryable: "Nothing names this failure as one to retry, or the request may have been carried out and its method must not be repeated. The attempt says which.",
  attempts_exhausted: "Every attempt that the policy allows was made.",
  bucket_empty: "The bucket has too few tokens left to pay for another attempt: retries are held back so that they do not add to the load.",
  pushback_stop: "The upstream said that this must not be retried.",
  pushback_too_long: "The upstream asked for a longer wait than pushback.max_delay allows.",
  deadline: "The call ran out of time, or the next wait would not have fitted into the time left (timeouts.total, or what the app allowed).",
  committed: "The answer had already begun to go to the app, or the request outgrew its buffer: no other attempt was possible.",
  disabled: "Retries are off for this call (mode, or X-Retry-Disable).",
  rate_limited: "The rate bucket rejected the call.",
  cooling: "The upstream asked everyone to wait for longer than this call may be held, or its policy answers at once (cooldown: reject).",
  circuit_open: "Every endpoint has failed so often lately that its circuit breaker is open: calls are answered at once until a probe succeeds.",
  outage: "Attempts to the upstream end without an answer, and the outage did not end while this call could be held.",
  overloaded: "No room: no place among the attempts under way became free in time (concurrency), limits.waiting or limits.connections is used up, or the process is draining.",
  denied: "The destination is not allowed.",
  bad_request: "The request could not be read, or must not be forwarded.",
  client_gone: "The app went away before its answer came.",
};

export const DECISIONS = {
  delivered: "passed to the app",
  retried: "retried",
  resumed: "it broke on its way to the app: the rest was asked for",
  "key renewed": "made once more with the key's new value",
  probed: "a probe of the outage that was not processed: the call was held again",
  transparent: "sent again at once, for free: the upstream cannot have seen it",
  cancelled: "cancelled: another attempt ended the call",
  "hedged on": "the next attempt did not wait",
  "fell back": "the call went on at another upstream",
  client_gone: "the app went away",
  denied: "not sent: denied",
};

export const FAULTS = {
  connect_failure: "no connection",
  refused_stream: "refused before it was processed",
  reset: "connection broke",
  attempt_timeout: "no answer in time",
};

/** The gates that can hold an attempt before it is sent (a copy of proxy/retry/call/gates.py). */
export const GATES = {
  cooldown: "the upstream's cooldown",
  ahead: "what the upstream said is left of its limits",
  limit: "the limit that redrive found for an upstream in trouble",
  outage: "the upstream's outage",
  rate: "the upstream's rate bucket",
  limiter: "the adaptive limiter",
  concurrency: "the upstream's concurrency limit",
};

/** What holds calls of an upstream, by its name in the board's counts: a cooldown has another name there, and a rate and
 *  the limiter one.
 */
export function holder(cause, { cooldown }) {
  if (cause === "cooling") return cooldown ? GATES.cooldown : `the slow start after ${GATES.cooldown}`;
  return cause === "rate" ? `${GATES.rate} or ${GATES.limiter}` : GATES[cause];
}

/** The result of an attempt in a few characters. */
export function result(attempt) {
  if (attempt.fault) return FAULTS[attempt.fault] ?? attempt.fault;
  if (attempt.grpc_status) return `grpc ${attempt.grpc_status}`;
  return attempt.status ? String(attempt.status) : attempt.decision === "cancelled" ? "cancelled" : "no answer";
}

/** The colour of an attempt: good, wait, bad or none. */
export function tone(attempt) {
  if (attempt.decision === "cancelled") return "none";
  if (attempt.class === "success") return "good";
  if (attempt.class === "throttling") return "wait";
  return attempt.class || attempt.fault ? "bad" : "none";
}

/** gRPC's status names, by number. */
export const GRPC = ["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"];
