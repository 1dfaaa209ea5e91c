cimport cython

from proxy.retry.call.attempt_record cimport AttemptRecord
from proxy.retry.facts cimport Failure, Reply, Request
from proxy.retry.call.next_attempt cimport NextAttempt
from proxy.retry.call.states cimport Flight, Flying, Next
from proxy.retry.value_bases cimport PolicyBase, PushbackBase, VerdictBase


cdef class CallState:
    cdef public Request request
    cdef public PolicyBase policy
    cdef public NextAttempt next_attempt
    cdef public object fallbacks
    cdef public object state
    cdef public long attempts
    cdef public long earlier
    cdef public long spared
    cdef public object deadline
    cdef public bint committed
    cdef public bint ambiguous
    cdef public object hints
    cdef public tuple history
    cdef public Failure failure
    cdef public Reply reply
    cdef public Flight delivered
    cdef public object ends
    cdef public object plan
    cdef public object resumption

    cdef begin(self, Request request, PolicyBase policy, NextAttempt next_attempt, fallbacks)
    cpdef bint is_idempotent(self) except -1
    cpdef bint may_be_hedged(self) except -1
    cpdef bint has_key(self) except -1
    cpdef stream_ends(self, Reply reply)
    cpdef hedging_delay(self, double now)
    @cython.locals(flying=Flying)
    cpdef Flight in_flight(self, long attempt)
    cpdef bint flies(self) except -1
    cpdef Next expected(self)
    cpdef tuple cancel_all_but(self, long attempt, double now, decision=*)
    cpdef tuple keep(self, Failure failure)
    cpdef tuple discard(self)
    cpdef plan_no_more(self, double now)
    @cython.locals(record=AttemptRecord, verdict=VerdictBase, pushback=PushbackBase)
    cpdef AttemptRecord note(self, Flight flight, double now, decision, Failure failure=*, Reply reply=*)
