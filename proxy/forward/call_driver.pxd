cimport cython

from proxy.forward.attempt cimport Attempt, AttemptOwner
from proxy.forward.call_report cimport look_for_repeat, report_of_decided
from proxy.forward.context cimport Context
from proxy.forward.delivery cimport Delivery
from proxy.forward.headers cimport gave_up
from proxy.forward.request_plan cimport Plan
from proxy.forward.sending cimport Sender
from proxy.forward.streams cimport ConnectionStream
from proxy.forward.timers cimport Alarm
from proxy.forward.undecided cimport Undecided
from proxy.forward.upload cimport Upload
from proxy.observe.call_record cimport CallRecord
from proxy.retry.call.actions cimport Ask, Deliver, Discard, Finish, Hold, Launch, Peek, WakeAt
from proxy.retry.call.call_state cimport CallState
from proxy.retry.facts cimport Reply
from proxy.retry.call.machine cimport Call as Decider
from proxy.retry.call.states cimport Flight
from proxy.transport.clock cimport monotonic
from proxy.transport.connection cimport Connection


cdef class CallDriver(AttemptOwner):
    cdef public Context context
    cdef public Delivery delivery
    cdef public Sender sender
    cdef public object _make_sender
    cdef public Decider call
    cdef public Plan plan
    cdef public Upload upload
    cdef public object journey
    cdef public bint over
    cdef public double due
    cdef public double started
    cdef public Undecided _undecided
    cdef public Alarm _alarm
    cdef public object _verdict
    cdef public object _wakes

    @cython.locals(undecided=Undecided, first=Attempt)
    cpdef Decider decider(self)
    cpdef Decider _decide(self)
    cpdef notify(self, double now, event, tuple facts, Decider call=*)
    cpdef report_ended(self, long attempt, double now, trailers)
    @cython.locals(ending=Finish, discarded=Discard)
    cpdef carry_out(self, tuple actions, double now)
    @cython.locals(direct=ConnectionStream, connection=Connection)
    cpdef stream_on(self, Attempt attempt, double now)
    @cython.locals(last=Attempt, record=CallRecord, delivery=Delivery, so_far=CallState)
    cpdef finish(self, outcome, double now)
    @cython.locals(attempt=Attempt)
    cdef _drop_attempts(self)
    @cython.locals(plan=Plan, delivered=Flight, delivery=Delivery, is_simple=bint, is_first=bint)
    cdef _forget_call(self, CallState so_far, outcome, Attempt last)
    @cython.locals(direct=ConnectionStream)
    cdef release_app(self)
    cpdef retire(self)
    cdef _note_sent(self, Attempt attempt)
    cpdef _settle(self, Upload upload)
    cpdef due_by(self, double at)
    cpdef wake_at(self, double at)
    cpdef _wake(self, double now)


cpdef _rung(CallDriver driver, double now)
@cython.locals(attempt=Attempt)
cpdef _launch(CallDriver driver, Launch action, double now)
@cython.locals(attempt=Attempt, call=Decider, delivery=Delivery, plan=Plan)
cpdef _deliver(CallDriver driver, Deliver action, double now)
@cython.locals(attempt=Attempt)
cpdef _hold(CallDriver driver, Hold action, double now)
cpdef _cancel(CallDriver driver, action, double now)
@cython.locals(attempt=Attempt)
cdef _end(CallDriver driver, long number)
@cython.locals(attempt=Attempt)
cpdef _peek(CallDriver driver, Peek action, double now)
cpdef _ask(CallDriver driver, Ask action, double now)
cpdef _wake_at(CallDriver driver, WakeAt action, double now)
