cimport cython

from proxy.retry.admission cimport Admission, Payment
from proxy.retry.attempt_record cimport AttemptRecord
from proxy.retry.classification cimport classify
from proxy.retry.facts cimport Failure, Reply, Request
from proxy.retry.plans cimport Hedged, Next, Sequential, Standing, failure_of, first_no, goes_on
from proxy.retry.registry cimport ScopeState
from proxy.retry.states cimport Delivering, Flight, Flying


cdef class Call(Standing):
    cdef public bint _enforces
    cdef public ScopeState scope
    cdef public object env
    cdef public object state
    cdef public double started
    cdef public bint hedged
    cdef public bint resent
    cdef public Failure failure
    cdef public object first_byte
    cdef public bint _request_sent
    cdef public object fallbacks
    cdef public object _alarm
    cdef public object _picker
    cdef public object _plan
    cdef public Payment _payment
    cdef public Admission _admission
    cdef public Flight _flight
    cdef public object _keys
    cdef public bint _processed
    cdef public bint _shared
    cdef public object _paid
    cdef public object _app_paid

    cpdef tuple start(self, double now)
    cpdef flown(self, double since)
    cpdef tuple sent(self, long attempt, endpoint, protocol, double now)
    cpdef tuple request_sent(self, double now, body=*)
    cpdef tuple head(self, long attempt, Reply reply, double now)
    cpdef tuple ended(self, long attempt, double now, trailers=*)
    cpdef tuple woke(self, double now)
    cdef tuple _read_hints(self, double now)
    cdef tuple _start_plugin(self, double now)
    cdef Admission _gates(self)
    cdef Next _next(self)
    cdef Payment _payable(self)
    cdef Flight _in_flight(self, long attempt)
    cdef tuple _admit(self, Next next, double now)
    @cython.locals(failure=Failure, payment=Payment)
    cdef tuple _launch(self, double now)
    cdef bint _chosen(self, Payment payment, double now) except -1
    cdef _pass_gates_of(self, keys, double now)
    cdef bint _is_transparent(self, fault) except -1
    cdef tuple _answered(self, long attempt, Flight flight, Reply reply, verdict, double now)
    cdef _measure(self, double at, double now)
    cdef tuple _begun(self, long attempt, Flight flight, Reply reply, verdict, double now)
    cdef tuple _cancel_all_but(self, long attempt, double now, decision=*)
    cdef _planned(self)
    cdef bint _is_disabled(self) except -1
    @cython.locals(sequential=Sequential, next=Next, payment=Payment)
    cdef tuple _judge(self, Failure failure, Flight flight, double now)
    cdef _tell_of(self, Failure failure, Flight flight, bint on, double now)
    cdef _learn(self, bint throttled, double now)
    cdef _observe(self, Failure failure, bint on, double now)
    cdef _pay_for(self, Next next, double now)
    cdef tuple _decide(self, Payment payment, Next next, double now)
    cdef tuple _hedge(self, Next next, double now)
    cdef bint _is_within_extra(self, Payment payment, double now) except -1
    cdef tuple _pass_over(self, double now)
    cdef tuple _hedge_on(self, Failure failure, Flight flight, decided, bint on, double now)
    cdef tuple _keep(self, Failure failure)
    cdef tuple _discard(self)
    cdef tuple _wait(self, Next next, double now, place=*)
    cdef _plan_no_more(self, double now)
    cdef tuple _no_more(self, no, double now, why=*)
    cdef tuple _stop_waiting(self, no, double now, why=*)
    cdef tuple _give_up(self, no, double now, why=*)
    cdef tuple _leave(self, fallbacks, no, double now)
    cdef tuple _refuse(self, no, double now, why=*)
    cdef tuple _end_flight(self, Flying state, no, because, double now)
    cdef tuple _ended_by_trailers(self, long attempt, Reply reply, trailers, double now)
    cdef _succeeded(self, long attempt, double now)
    cdef _give_back(self, double now)
    cdef tuple _finish(self, outcome, double now)
    cdef _why_not(self, no, Failure failure, double now, bint delivered=*)
    cdef _note_no(self, Failure failure, Flight flight, no, double now, bint delivered=*)
    cdef _note_delivery(self, Delivering state, double now, decision, why=*, fault=*)
    cdef AttemptRecord _note(self, long attempt, Flight flight, double now, decision, Failure failure=*)


cdef _land(Flight flight, double now)
cdef _cancelled(Flight flight, double now)
