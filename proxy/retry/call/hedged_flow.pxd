cimport cython

from proxy.retry.budgets.buckets cimport Bucket
from proxy.retry.call.call_state cimport CallState
from proxy.retry.facts cimport Failure
from proxy.retry.call.flows cimport SequentialFlow
from proxy.retry.call.refusals cimport note_no, why_not
from proxy.retry.call.repeat_checks cimport first_no
from proxy.retry.call.next_attempt cimport NextAttempt
from proxy.retry.call.payment cimport Payment
from proxy.retry.call.states cimport Flight, Next
from proxy.retry.value_bases cimport PolicyBase, StrategyBase


cdef double EPSILON
cdef double NEVER


cdef class Hedged:
    cdef public double due
    cdef public object stopped
    cdef public bint shared
    cdef public double _pushed_until

    @cython.locals(bucket=Bucket)
    cpdef after_launch(self, CallState call, double now)
    @cython.locals(bucket=Bucket)
    cpdef after_failure(self, CallState call, Failure failure, double now, bint disabled)


cdef class HedgedFlow(SequentialFlow):
    cpdef Hedged hedges(self, CallState call)
    @cython.locals(payment=Payment)
    cpdef tuple due(self, CallState call, Next planned, double now)
    cpdef tuple admit(self, CallState call, Next planned, double now)
    @cython.locals(payment=Payment, next_attempt=NextAttempt)
    cdef tuple _send(self, CallState call, Next planned, double now)
    @cython.locals(next_attempt=NextAttempt)
    cdef tuple _pass_gates(self, CallState call, Payment payment, Next planned, bint is_paid, double now)
    cdef tuple _pay(self, CallState call, Payment payment, Next planned, double now)
    cdef tuple _pass_over(self, CallState call, double now)


cpdef SequentialFlow flow_of(CallState call, PolicyBase policy)
cdef bint _may_be_hedged(CallState call, StrategyBase strategy) except -1
