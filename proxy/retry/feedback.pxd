from proxy.retry.facts cimport Failure
from proxy.retry.next_attempt cimport NextAttempt
from proxy.retry.plans cimport CallView
from proxy.retry.registry cimport ScopeState
from proxy.retry.states cimport Flight, Flying


cdef class Feedback:
    cdef public object paid
    cdef public object app_paid

    cpdef began(self, CallView call, NextAttempt upcoming, double now)
    cpdef failed(self, CallView call, NextAttempt upcoming, Failure failure, Flight flight, bint on, double now)
    cpdef succeeded(self, NextAttempt upcoming, bint is_first, double now)


cpdef learn(NextAttempt upcoming, bint throttled, double now)
cpdef report_to_endpoint(NextAttempt upcoming, Flight flight, Failure failure, double now)
cpdef report_answer(NextAttempt upcoming, Flying state, Flight flight, double now)
