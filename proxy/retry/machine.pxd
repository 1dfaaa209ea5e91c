cimport cython

from proxy.retry.admission cimport Payment
from proxy.retry.call_state cimport CallState
from proxy.retry.classification cimport classify
from proxy.retry.facts cimport Failure, Reply, Request
from proxy.retry.feedback cimport learn, report_answer, report_failure, report_start, report_success, report_to_endpoint
from proxy.retry.flows cimport SequentialFlow
from proxy.retry.next_attempt cimport NextAttempt
from proxy.retry.plans cimport Next, Sequential, failure_of, first_no, goes_on
from proxy.retry.registry cimport ScopeState
from proxy.retry.states cimport Delivering, Flight, Flying


cdef class Call(CallState):
    cdef public object _first_byte
    cdef public SequentialFlow _flow
    cdef public int _transparent

    @cython.locals(upcoming=NextAttempt, scope=ScopeState)
    cpdef tuple start(self, double now)
    cpdef flown(self, double since)
    cpdef tuple sent(self, long attempt, endpoint, protocol, double now)
    cpdef tuple request_sent(self, double now, body=*)
    cpdef tuple head(self, long attempt, Reply reply, double now)
    cpdef tuple peeked(self, long attempt, bytes body, double now)
    cpdef tuple ended(self, long attempt, double now, trailers=*)
    cpdef tuple failed(self, long attempt, fault, double now)
    cpdef tuple woke(self, double now)
    cdef tuple _read_hints(self, double now)
    @cython.locals(upcoming=NextAttempt)
    cpdef tuple admit(self, Next planned, double now)
    cpdef tuple launch(self, double now)
    cdef bint _is_transparent(self, fault) except -1
    cdef tuple _send_again(self, Flight flight, fault, double now)
    cdef tuple _begun(self, Flight flight, Reply reply, verdict, double now)
    @cython.locals(upcoming=NextAttempt)
    cdef tuple _answered(self, Flight flight, Reply reply, verdict, double now)
    cdef tuple _judge(self, Failure failure, Flight flight, double now)
    cdef tuple _ended_by_trailers(self, Reply reply, trailers, double now)
    cpdef tuple withdraw(self, no, double now, why=*)
    cpdef tuple end(self, no, double now, why=*)
    cdef _way_elsewhere(self, no, double now)
    cdef tuple _go_elsewhere(self, entry, no, double now)
    cdef tuple _deliver_held(self, Failure failure, no)
    cdef tuple _answer(self, no, double now, why)
    cdef tuple _break_delivery(self, Delivering state, no, double now, why=*, fault=*)
    @cython.locals(upcoming=NextAttempt, flight=Flight)
    cdef _succeeded(self, double now)
    @cython.locals(upcoming=NextAttempt, delivered=Flight)
    cdef tuple _finish(self, outcome, double now)


cdef bint _may_hedge(Call call) except -1
