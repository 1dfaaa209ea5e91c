cimport cython

from proxy.retry.call.call_state cimport CallState
from proxy.retry.facts cimport Failure
from proxy.retry.call.next_attempt cimport NextAttempt
from proxy.retry.call.states cimport Flight


@cython.locals(next_attempt=NextAttempt, delivered=Flight)
cpdef tuple finish(CallState call, outcome, double now)
cpdef way_elsewhere(CallState call, no, double now)
@cython.locals(failure=Failure)
cpdef tuple go_elsewhere(CallState call, entry, no, double now, bint is_held)
@cython.locals(failure=Failure)
cpdef tuple end_here(CallState call, no, double now, why)
cdef tuple _deliver_held(CallState call, Failure failure, no)
cdef tuple _answer(CallState call, no, double now, why)
