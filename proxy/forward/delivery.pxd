cimport cython

from proxy.forward.attempt cimport Attempt
from proxy.forward.context cimport Context
from proxy.forward.headers cimport gave_up, forwarded_changes
from proxy.forward.request_plan cimport Plan
from proxy.forward.streams cimport ConnectionStream
from proxy.retry.facts cimport Reply
from proxy.retry.call.call_state cimport CallState
from proxy.retry.answers.stream_errors cimport StreamWatch
from proxy.retry.value_bases cimport PolicyBase
from proxy.wire.http1.response cimport ResponseHead as Answered


cdef class Delivery:
    cdef public Context context
    cdef public object app
    cdef public ConnectionStream direct
    cdef public str client
    cdef public int status
    cdef public object grpc_status
    cdef public long long bytes_out
    cdef public str detail
    cdef public object pipe
    cdef public object resumer

    cpdef serve(self, app)
    cpdef release(self)
    @cython.locals(direct=ConnectionStream)
    cpdef respond(self, Answered head, frozenset drop, bytes add, bytes data, bint end, trailers)
    @cython.locals(head=Answered)
    cpdef deliver(self, Attempt attempt, Plan plan, CallState call, journey, outcome, double now)
    cpdef forward(self, Attempt attempt, bytes data, PolicyBase policy)
    @cython.locals(direct=ConnectionStream)
    cpdef forward_chunks(self, Attempt attempt, bytes chunks, Py_ssize_t size, long long owed)
    @cython.locals(watch=StreamWatch)
    cpdef read_chunks(self, Attempt attempt, bytes chunks, Py_ssize_t size, PolicyBase policy)
    @cython.locals(watch=StreamWatch, found=list)
    cpdef read_along(self, Attempt attempt, bytes data, PolicyBase policy)
    cpdef note_grpc_status(self, Answered head, trailers)
