cimport cython

from proxy.forward.attempt cimport Attempt
from proxy.forward.call_driver cimport CallDriver
from proxy.forward.delivery cimport Delivery
from proxy.forward.request_plan cimport Plan
from proxy.forward.streams cimport ConnectionStream
from proxy.forward.upload cimport Upload
from proxy.forward.whole_look cimport look_at
from proxy.retry.facts cimport Request
from proxy.retry.scopes.scope_state cimport ScopeState
from proxy.transport.clock cimport monotonic
from proxy.wire.http1.response cimport ResponseHead as Answered


cdef class Exchange(CallDriver):
    @cython.locals(direct=ConnectionStream, scope=ScopeState, first=Attempt)
    cpdef start(self, Plan plan, double now, bytes body=*, bint done=*, trailers=*)
    @cython.locals(delivery=Delivery, direct=ConnectionStream)
    cdef _succeed(self, double now, bint looked=*)
    @cython.locals(delivery=Delivery, direct=ConnectionStream)
    cpdef bint forward_success(self, Attempt attempt, Answered head, bytes data, bint end, trailers) except -1
    cpdef app_data(self, bytes data)
    cpdef app_ended(self, trailers)
    cpdef app_rest(self, bytes data, trailers)
    cdef _end_body(self, Upload upload, trailers)
    @cython.locals(attempt=Attempt)
    cdef _pump(self, Upload upload)


cpdef _send_dialled(Exchange exchange, Attempt attempt, stream, double now)
