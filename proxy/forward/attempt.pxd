cimport cython

from proxy.retry.facts cimport Reply
from proxy.transport.clock cimport monotonic
from proxy.transport.origins cimport Origin
from proxy.transport.replay_buffer cimport Replay
from proxy.transport.streams cimport Listener
from proxy.wire.http1.response cimport ResponseHead as Answer


cdef list _NOT_TELLING


cdef class Attempt


cdef class AttemptOwner:
    cdef public double moved
    cdef public dict flights
    cdef public bint decided

    cpdef begun(self, Attempt attempt)
    cpdef bint forward_success(self, Attempt attempt, Answer head, bytes data, bint end, trailers) except -1
    cpdef answered(self, Attempt attempt, Reply reply, stream)
    cpdef forward(self, Attempt attempt, bytes data)
    cpdef forward_chunks(self, Attempt attempt, bytes chunks, Py_ssize_t size, long long owed, bytes payload)
    cpdef answer_ended(self, Attempt attempt)


cdef class Attempt(Listener):
    cdef public AttemptOwner owner
    cdef public long number
    cdef public Origin origin
    cdef public object key
    cdef public object state
    cdef public object body_wait
    cdef public object watch
    cdef public object stream
    cdef public str protocol
    cdef public object task
    cdef public Replay replay
    cdef public long long cursor
    cdef public object sent_at
    cdef public object sent_on
    cdef public object kept
    cdef public Py_ssize_t kept_size
    cdef public bint ended
    cdef public object trailers
    cdef public object fault
    cdef public Answer head
    cdef public double arrived
    cdef public Py_ssize_t limit

    cdef begin(self, AttemptOwner owner, long number, Origin origin)
    @cython.locals(replay=Replay, piece=bytes, last=bytes)
    cpdef pump(self)
    @cython.locals(owner=AttemptOwner, reply=Reply)
    cpdef on_head(self, Answer head, bytes data, bint end, trailers)
    cpdef bint on_whole(self, Answer head, bytes data, trailers) except -1
    cpdef on_data(self, bytes data)
    cpdef on_chunks(self, bytes chunks, Py_ssize_t size, long long owed, bytes payload)
    cpdef on_end(self, trailers)
    cdef _take_data(self, bytes data)
    cdef _take_end(self, trailers)
    cpdef bytes take(self)
    cpdef drop(self)


cdef bint _tells_nothing(dict specials) except -1
