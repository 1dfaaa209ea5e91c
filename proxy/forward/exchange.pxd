cimport cython

from proxy.forward.attempt cimport Attempt, AttemptOwner
from proxy.forward.context cimport Context
from proxy.forward.headers cimport gave_up, handed_on
from proxy.forward.request_plan cimport Plan
from proxy.forward.streams cimport ConnectionStream
from proxy.forward.timers cimport Alarm
from proxy.observe.call_record cimport CallRecord
from proxy.retry.actions cimport Deliver, Hold, Launch, WakeAt
from proxy.retry.facts cimport Reply, Request
from proxy.retry.machine cimport Call as Decider
from proxy.retry.registry cimport ScopeState
from proxy.transport.clock cimport monotonic
from proxy.transport.connection cimport Connection
from proxy.transport.origins cimport Origin
from proxy.wire.head cimport Asked
from proxy.wire.http1.response cimport ResponseHead as Answered


cdef class Exchange(AttemptOwner):
    cdef public Context means
    cdef public object app
    cdef ConnectionStream _direct
    cdef public str client
    cdef public bint decided
    cdef public dict flights
    cdef public object upload
    cdef public object journey
    cdef public object pipe
    cdef public bint over
    cdef public double due
    cdef public int status
    cdef public object grpc_status
    cdef public long long bytes_in
    cdef public long long bytes_out
    cdef public str detail
    cdef public str endpoint
    cdef public Attempt _first
    cdef public bytes _body
    cdef public list _failed
    cdef public list _avoided
    cdef public Alarm _alarm
    cdef public object _key
    cdef public object _keys
    cdef public object _verdict
    cdef public Decider call
    cdef public Plan plan
    cdef public object policy
    cdef public Request request
    cdef public double started
    cdef public ScopeState _scope

    @cython.locals(asked=Asked, connection=Connection, lane=ScopeState, origin=Origin, request=Request)
    cpdef start(self, Plan plan, double now, bytes body=*, bint done=*, trailers=*)
    cpdef bint hand_on_success(self, Attempt attempt, Answered head, bytes data, bint end) except -1
    cpdef bint hand_on_whole(self, Attempt attempt, Answered head, bytes data, trailers) except -1
    cpdef answer_ended(self, Attempt attempt)
    cpdef hand_on(self, Attempt attempt, bytes data)
    cdef bint _is_plain(self, Answered head) except -1
    cdef _succeed(self, double now)
    @cython.locals(record=CallRecord)
    cpdef _tell_of(
        self, outcome, double now, long attempts, long long bytes_in, str endpoint, history, bint app_retry, bint once,
        str sent_by, fallbacks
    )
    cpdef answered(self, Attempt attempt, Reply reply, stream)
    @cython.locals(launch=Launch, deliver=Deliver, wake=WakeAt, hold=Hold, attempt=Attempt)
    cpdef carry_out(self, tuple actions, double now)
    cpdef Decider decider(self)
    cpdef Decider _decide(self)
    cpdef _launch(self, Launch action, double now)
    cdef _send(self, Attempt attempt, stream, double now)
    cpdef _begin(self, Attempt attempt, stream, double now)
    cdef _has_sent(self, Attempt attempt)
    cpdef _resting(self, Origin origin, double now)
    cdef _avoid(self, Attempt attempt)
    cdef list _connections(self)
    cpdef _request_for(self, Attempt attempt, stream, double now)
    @cython.locals(head=Answered, call=Decider)
    cpdef _deliver(self, Attempt attempt, outcome, double now)
    cpdef _stream_on(self, Attempt attempt, double now)
    @cython.locals(call=Decider, attempt=Attempt)
    cpdef _finish(self, outcome, double now)
    cpdef _let_go(self, Attempt attempt)
    cpdef _end_well(self, long number, trailers, double now)
    cpdef wake_at(self, double at)
    cpdef _ring(self, double now)
    cdef _look_for_a_repeat(self, bint given_up, double now)
    cpdef due_by(self, double at)
