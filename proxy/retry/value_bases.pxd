# A field that a dataclass here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cdef class BackoffBase:
    cdef public object base
    cdef public object max
    cdef public object multiplier
    cdef public str jitter
    cdef public object throttling_base


cdef class StrategyBase:
    cdef public object kind
    cdef public object name
    cdef public object max_attempts
    cdef public BackoffBase backoff
    cdef public object own_bucket
    cdef public object exact_pushback
    cdef public object pushback_clamp
    cdef public object paced
    cdef public object delay_first
    cdef public object hedging_delay
    cdef public object hedging_percentile
    cdef public object extra
    cdef public object non_fatal
    cdef public object safe_methods
    cdef public object custom
    cdef public object remake


cdef class TimeoutsBase:
    cdef public object connect
    cdef public object attempt
    cdef public object first_byte
    cdef public object total
    cdef public object idle


cdef class HeaderEditsBase:
    cdef public object set
    cdef public object remove


cdef class PushbackPolicyBase:
    cdef public object max_delay
    cdef public str cooldown
    cdef public object hold
    cdef public str of
    cdef public object ahead


cdef class ClassifyBase:
    cdef public object statuses
    cdef public object grpc
    cdef public object faults
    cdef public object rules
    cdef public object dialects
    cdef public object service_codes
    cdef public str unsafe_methods
    cdef public object service_retries
    cdef public object own_dialects
    cdef public str key_header
    cdef public object keys_injected
    cdef public object credentials
    cdef public object service_timeout
    cdef public object service_unnamed
    cdef public object hosts
    cdef public object plain_below_400
    cdef public object looks_below_400
    cdef public object empty_events
    cdef public object grpc_dialect
    cdef public object resets
    cdef public object delays_in_bodies
    cdef public object stop_fields
    cdef public object repeats
    cdef public object out_of_quota
    cdef public object reads
    cdef public object inside
    cdef public object stream_ends
    cdef public object known
    cdef public object ruleset
    cdef public object sought


cdef class PolicyBase:
    cdef public str upstream
    cdef public str route
    cdef public StrategyBase strategy
    cdef public object bucket
    cdef public object rate
    cdef public object scope
    cdef public TimeoutsBase timeouts
    cdef public ClassifyBase classify
    cdef public object attempt_headers
    cdef public object idempotency_key
    cdef public PushbackPolicyBase pushback
    cdef public str mode
    cdef public HeaderEditsBase request_headers
    cdef public HeaderEditsBase response_headers
    cdef public object target
    cdef public object fallback
    cdef public object concurrency
    cdef public object limit
    cdef public str outage
    cdef public object circuit_breaker
    cdef public object endpoints
    cdef public str balance
    cdef public object credentials
    cdef public object via
    cdef public object answers
    cdef public str unfinished
    cdef public object resume
    cdef public object more_rates
    cdef public object tokens
    cdef public object undecided
    cdef public object course


cdef class NamedAppBase:
    cdef public str name
    cdef public object weight
    cdef public int rank
    cdef public str who


cdef class VerdictBase:
    cdef public object cls
    cdef public str because
    cdef public object unprocessed
    cdef public str repeated_by
    cdef public object repeated_within
    cdef public str dialect
    cdef public object counts_as


cdef class PushbackBase:
    cdef public object delay
    cdef public object stop
    cdef public object retry
    cdef public object cooldown
    cdef public str source


cdef class FaultBase:
    cdef public object kind
    cdef public object progress
    cdef public object reused
    cdef public object detail
    cdef public object error
    cdef public object code
    cdef public object ours
    cdef public object by_attempt
