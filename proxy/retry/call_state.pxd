from proxy.retry.attempt_record cimport AttemptRecord
from proxy.retry.call_history cimport note
from proxy.retry.facts cimport Failure, Reply
from proxy.retry.next_attempt cimport NextAttempt
from proxy.retry.plans cimport Next, CallView
from proxy.retry.states cimport Flight


cdef class CallState(CallView):
    cdef public object env
    cdef public object state
    cdef public Failure failure
    cdef public object fallbacks
    cdef public Flight delivered
    cdef public object plan
    cdef public NextAttempt upcoming

    cpdef tuple launch(self, double now)
    cpdef tuple admit(self, Next planned, double now)
    cpdef tuple end(self, no, double now, why=*)
    cpdef tuple withdraw(self, no, double now, why=*)
    cpdef Flight in_flight(self, long attempt)
    cpdef bint flies(self) except -1
    cpdef Next expected(self)
    cpdef tuple cancel_all_but(self, long attempt, double now, decision=*)
    cpdef tuple keep(self, Failure failure)
    cpdef tuple discard(self)
    cpdef tuple wait(self, Next planned, double now, place=*)
    cpdef AttemptRecord note(self, Flight flight, double now, decision, Failure failure=*, Reply reply=*)
    cpdef plan_no_more(self, double now)
    cpdef why_not(self, no, Failure failure, double now, bint delivered=*)
    cpdef note_no(self, Failure failure, Flight flight, no, double now, bint delivered=*)
