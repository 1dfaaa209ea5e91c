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
from proxy.forward.whole_look cimport look_at
from proxy.observe.call_record cimport CallRecord
from proxy.retry.actions cimport Ask, Deliver, Hold, Launch, Peek, WakeAt
from proxy.retry.facts cimport Reply, Request
from proxy.retry.machine cimport Call as Decider
from proxy.retry.scope_state cimport ScopeState
from proxy.transport.clock cimport monotonic
from proxy.transport.connection cimport Connection
from proxy.transport.origins cimport Destination, Origin
from proxy.wire.http1.response cimport ResponseHead as Answered


cdef class Exchange(AttemptOwner):
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
    cdef public ScopeState _scope
    cdef public object _verdict

    @cython.locals(direct=ConnectionStream, scope=ScopeState, undecided=Undecided, destination=Destination, origin=Origin, request=Request)
    cpdef start(self, Plan plan, double now, bytes body=*, bint done=*, trailers=*)
    @cython.locals(undecided=Undecided, first=Attempt)
    cpdef Decider decider(self)
    cpdef Decider _decide(self)
    cpdef notify(self, double now, event, tuple facts, Decider call=*)
    cpdef report_ended(self, long attempt, double now, trailers)
    cpdef carry_out(self, tuple actions, double now)
    @cython.locals(direct=ConnectionStream, connection=Connection)
    cpdef stream_on(self, Attempt attempt, double now)
    cdef _succeed(self, double now, bint looked=*)
    @cython.locals(attempt=Attempt, record=CallRecord)
    cpdef finish(self, outcome, double now)
    cdef _note_sent(self, Attempt attempt)
    cpdef app_data(self, bytes data)
    cpdef app_ended(self, trailers)
    @cython.locals(attempt=Attempt)
    cdef _pump(self, Upload upload)
    @cython.locals(attempt=Attempt)
    cpdef _settle(self, Upload upload)
    cpdef due_by(self, double at)
    cpdef wake_at(self, double at)
    cpdef _ring(self, double now)


@cython.locals(attempt=Attempt)
cpdef _launch(Exchange exchange, Launch action, double now)
@cython.locals(attempt=Attempt, call=Decider, delivery=Delivery, plan=Plan)
cpdef _deliver(Exchange exchange, Deliver action, double now)
@cython.locals(attempt=Attempt)
cpdef _hold(Exchange exchange, Hold action, double now)
@cython.locals(attempt=Attempt)
cpdef _drop(Exchange exchange, action, double now)
@cython.locals(attempt=Attempt)
cpdef _peek(Exchange exchange, Peek action, double now)
cpdef _ask(Exchange exchange, Ask action, double now)
cpdef _wake_at(Exchange exchange, WakeAt action, double now)
cpdef _send_dialled(Exchange exchange, Attempt attempt, stream, double now)
