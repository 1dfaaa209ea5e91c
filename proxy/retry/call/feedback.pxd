cimport cython

from proxy.retry.budgets.buckets cimport Bucket
from proxy.retry.weather.ending cimport AttemptEnding
from proxy.retry.facts cimport Failure
from proxy.retry.call.next_attempt cimport NextAttempt
from proxy.retry.weather.route_names cimport RouteNames, names_of
from proxy.retry.call.call_state cimport CallState
from proxy.retry.scopes.scope_state cimport ScopeState
from proxy.retry.call.states cimport Flight, Flying
from proxy.retry.value_bases cimport FaultBase


cdef dict _ANSWERED


@cython.locals(bucket=Bucket)
cpdef report_start(hints, NextAttempt next_attempt, double now)
cpdef report_failure(CallState call, NextAttempt next_attempt, Failure failure, Flight flight, bint on, double now)
@cython.locals(bucket=Bucket)
cpdef report_success(NextAttempt next_attempt, double now)
@cython.locals(scope=ScopeState)
cpdef learn(NextAttempt next_attempt, bint throttled, double now)
cpdef report_to_endpoint(NextAttempt next_attempt, Flight flight, Failure failure, double now)
@cython.locals(names=RouteNames)
cpdef report_to_governor(NextAttempt next_attempt, Failure failure, Flight flight, double now, bint again)
@cython.locals(names=RouteNames, endpoint=str, free=bint)
cpdef report_answer(NextAttempt next_attempt, Flying state, Flight flight, double now)
cdef AttemptEnding _ending_of(Failure failure)
cdef AttemptEnding _of_answer(Failure failure)
cdef bint _fails_again(CallState call, FaultBase fault) except -1
