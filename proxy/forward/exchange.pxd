cimport cython

from proxy.forward.attempt cimport Attempt
from proxy.forward.context cimport Context
from proxy.forward.request_plan cimport Plan
from proxy.observe.call_record cimport CallRecord
from proxy.retry.registry cimport ScopeState
from proxy.wire.http1.response cimport ResponseHead as Answered


cdef class Exchange:
    cdef public Context means
    cdef public object app
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
    cdef public object _alarm
    cdef public object _key
    cdef public object _keys
    cdef public object _verdict
    cdef public object call
    cdef public Plan plan
    cdef public object policy
    cdef public object request
    cdef public double started
    cdef public double moved
    cdef public ScopeState _scope

    cpdef start(self, Plan plan, double now, bytes body=*, bint done=*, trailers=*)
    cpdef bint hand_on_success(self, Attempt attempt, Answered head, bytes data, bint end) except -1
    cpdef hand_on(self, Attempt attempt, bytes data)
    cdef bint _is_plain(self, Answered head) except -1
    cdef _succeed(self, double now)
    @cython.locals(record=CallRecord)
    cpdef _tell_of(
        self, outcome, double now, long attempts, long long bytes_in, str endpoint, history, bint app_retry, bint once,
        str sent_by, fallbacks
    )
    cpdef carry_out(self, tuple actions, double now)
    cpdef due_by(self, double at)
