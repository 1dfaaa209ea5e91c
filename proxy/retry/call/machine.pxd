cimport cython

from proxy.retry.call.attempt_failure cimport failure_by, failure_of
from proxy.retry.call.payment cimport Payment
from proxy.retry.call.call_state cimport CallState
from proxy.retry.answers.classification cimport classify
from proxy.retry.call.endings cimport finish
from proxy.retry.facts cimport Failure, Reply, Request
from proxy.retry.call.feedback cimport learn, report_answer, report_failure, report_start, report_success, report_to_endpoint
from proxy.retry.call.flows cimport SequentialFlow
from proxy.retry.call.refusals cimport note_no
from proxy.retry.call.repeat_checks cimport first_no
from proxy.retry.call.sequential_plan cimport Sequential
from proxy.retry.call.hedged_flow cimport flow_of
from proxy.retry.call.next_attempt cimport NextAttempt
from proxy.retry.scopes.scope_state cimport ScopeState
from proxy.retry.call.states cimport Delivering, Flight, Flying, Next
from proxy.retry.capacity.traffic cimport Traffic
from proxy.retry.call.transparent_retry cimport TransparentRetry
from proxy.retry.value_bases cimport PolicyBase, VerdictBase


cdef double EPSILON
cdef double NEVER


cdef class Call:
    cdef public CallState so_far
    cdef public object _first_byte
    cdef public SequentialFlow _flow
    cdef public TransparentRetry _transparent

    @cython.locals(call=CallState, next_attempt=NextAttempt, scope=ScopeState)
    cpdef tuple start(self, double now, double since=*)
    @cython.locals(call=CallState, flight=Flight, next_attempt=NextAttempt, planned=Next, policy=PolicyBase, state=Flying)
    cpdef tuple flown(self, double since, str endpoint, str protocol, Traffic traffic, choice=*, bint answered=*)
    @cython.locals(flight=Flight, flying=Flying)
    cpdef tuple sent(self, long attempt, endpoint, protocol, double now)
    @cython.locals(call=CallState)
    cpdef tuple request_sent(self, double now, body=*)
    @cython.locals(call=CallState, flight=Flight, flying=Flying)
    cpdef tuple head(self, long attempt, Reply reply, double now)
    @cython.locals(call=CallState, flight=Flight, reply=Reply)
    cpdef tuple peeked(self, long attempt, bytes body, double now)
    @cython.locals(call=CallState, delivering=Delivering)
    cpdef tuple ended(self, long attempt, double now, trailers=*)
    @cython.locals(call=CallState, flight=Flight)
    cpdef tuple failed(self, long attempt, fault, double now)
    @cython.locals(call=CallState, flight=Flight)
    cpdef tuple broke(self, long attempt, fault, long long progress, double since, double now)
    @cython.locals(call=CallState, flight=Flight)
    cpdef tuple resumed(self, long attempt, bint accepted, double now)
    @cython.locals(call=CallState, expected=Next, payment=Payment, flight=Flight)
    cpdef tuple woke(self, double now)
    @cython.locals(call=CallState)
    cdef tuple _read_hints(self, double now)
    @cython.locals(call=CallState)
    cdef tuple _begun(self, Flight flight, Reply reply, verdict, double now)
    @cython.locals(next_attempt=NextAttempt, state=Flying)
    cdef _report_answer(self, Flight flight, double now)
    @cython.locals(call=CallState)
    cdef tuple _answered(self, Flight flight, Reply reply, VerdictBase verdict, double now)
    @cython.locals(call=CallState, state=Flying)
    cdef tuple _judge(self, Failure failure, Flight flight, double now)
    @cython.locals(call=CallState, flight=Flight)
    cdef tuple _ended_by_trailers(self, Reply reply, trailers, double now)
    @cython.locals(call=CallState, next_attempt=NextAttempt, flight=Flight, plan=Sequential)
    cdef _succeeded(self, double now)


cdef bint _may_be_cooled(CallState call) except -1
