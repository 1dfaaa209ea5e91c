cimport cython

from proxy.retry.admission cimport Payment
from proxy.retry.call_state cimport CallState
from proxy.retry.facts cimport Failure
from proxy.retry.feedback cimport learn
from proxy.retry.next_attempt cimport NextAttempt
from proxy.retry.plans cimport Hedged, Next, Sequential
from proxy.retry.states cimport Flight


cdef class SequentialFlow:
    cpdef bint is_disabled(self, CallState call) except -1
    cpdef bint cools(self, CallState call) except -1
    cpdef bint needs_no_buffer(self, CallState call) except -1
    cpdef bint shares_body(self, CallState call) except -1
    cpdef bint shared_body(self, CallState call) except -1
    cpdef bint holds_answer(self, CallState call) except -1
    @cython.locals(failure=Failure)
    cpdef tuple launched(self, CallState call, Flight flight, double now)
    cpdef bint may_go_alone(self, CallState call, verdict) except -1
    cpdef tuple start_plugin(self, CallState call, double now)
    @cython.locals(payment=Payment)
    cpdef tuple settle(self, CallState call, Next expected, double now)
    cpdef tuple due(self, CallState call, Next planned, double now)
    cpdef tuple granted_early(self, CallState call, Next planned, double now)
    cpdef tuple succeeded(self, CallState call, long attempt, double now)
    cpdef Sequential sequential(self, CallState call)
    cpdef decide(self, CallState call, Failure failure, bint on, double now)
    @cython.locals(payment=Payment, upcoming=NextAttempt)
    cpdef tuple failed(self, CallState call, Failure failure, Flight flight, began, bint on, double now)
    cpdef tuple no_more(self, CallState call, no, double now, why=*)
    cpdef tuple break_off(self, CallState call, no, because, double now)


cdef class PassiveFlow(SequentialFlow):
    pass


cdef class ObservedFlow(PassiveFlow):
    pass


cdef class HedgedFlow(SequentialFlow):
    cpdef Hedged hedges(self, CallState call)
    @cython.locals(payment=Payment, upcoming=NextAttempt)
    cdef tuple _send(self, CallState call, Next planned, double now)
    cdef tuple _pay(self, CallState call, Payment payment, Next planned, double now)
    cdef tuple _pass_over(self, CallState call, double now)
