cimport cython

from proxy.retry.call.call_state cimport CallState
from proxy.retry.call.endings cimport end_here, finish, go_elsewhere, way_elsewhere
from proxy.retry.facts cimport Failure
from proxy.retry.call.feedback cimport learn
from proxy.retry.call.next_attempt cimport NextAttempt
from proxy.retry.call.payment cimport Payment
from proxy.retry.call.refusals cimport note_no
from proxy.retry.call.sequential_plan cimport Sequential
from proxy.retry.call.states cimport Flight, Flying, Next
from proxy.retry.value_bases cimport VerdictBase


cdef double EPSILON
cdef list _DELIVERING, _DELIVER, _HELD, _AGAIN


cdef class SequentialFlow:
    cpdef bint is_disabled(self, CallState call) except -1
    cpdef bint needs_no_buffer(self, CallState call) except -1
    cpdef bint shares_body(self, CallState call) except -1
    cpdef bint shared_body(self, CallState call) except -1
    cpdef bint holds_answer(self, CallState call) except -1
    @cython.locals(failure=Failure, held=cython.long, attempt=cython.long, flying=Flying, alone=bint, is_simple=bint)
    cpdef tuple launched(self, CallState call, Flight flight, double now)
    cpdef bint may_go_alone(self, CallState call, VerdictBase verdict) except -1
    @cython.locals(next_attempt=NextAttempt)
    cpdef tuple begin(self, CallState call, double now)
    @cython.locals(payment=Payment)
    cpdef tuple settle(self, CallState call, Next expected, double now)
    cpdef tuple due(self, CallState call, Next planned, double now)
    cpdef tuple granted_early(self, CallState call, Next planned, double now)
    cpdef tuple succeeded(self, CallState call, long attempt, double now)
    @cython.locals(plan=Sequential)
    cpdef Sequential sequential(self, CallState call)
    cpdef decide(self, CallState call, Failure failure, double now)
    @cython.locals(payment=Payment, next_attempt=NextAttempt, planned=Next, attempt=cython.long)
    cpdef tuple failed(self, CallState call, Failure failure, Flight flight, began, double now)
    cdef _change_key(self, CallState call, Failure failure, Next decided, began, double now)
    cpdef tuple no_more(self, CallState call, no, double now, why=*)
    cpdef tuple launch(self, CallState call, double now)
    @cython.locals(next_attempt=NextAttempt, kept=Failure, left=double)
    cpdef tuple admit(self, CallState call, Next planned, double now)
    cdef tuple _put_off(self, CallState call, Next planned, double left, double now)
    @cython.locals(payment=Payment)
    cpdef tuple wait(self, CallState call, Next planned, double now, reason=*)
    cpdef tuple withdraw(self, CallState call, no, double now, why=*)
    cpdef tuple end(self, CallState call, no, double now, why=*)
    cpdef tuple break_off(self, CallState call, no, because, double now)


cdef class PluginFlow(SequentialFlow):
    pass
