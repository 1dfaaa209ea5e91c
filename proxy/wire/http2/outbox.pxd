cimport cython

from proxy.wire.http2.flow cimport StreamLane
from proxy.wire.http2.frames cimport data_header, header_block
from proxy.wire.http2.octets cimport FrameHeader
from proxy.wire.http2.stream cimport Stream, StreamOutbox


cdef int DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADER_SIZE, HEADERS
cdef Py_ssize_t HIGH_WATER, LOW_WATER, SMALLEST_LIMIT, FIRST_WINDOW
cdef bytes NO_TABLE
cdef FrameHeader HEADER


cdef class Outbox(StreamOutbox):
    cdef public bint blocked
    cdef public long long window
    cdef public Py_ssize_t frame_limit
    cdef list _out, _writable, _resumed
    cdef Py_ssize_t _size
    cdef int _replies
    cdef bint _begun
    cdef dict _waiting

    cpdef put(self, bytes data)
    cpdef reply(self, bytes data)
    cpdef bytes take(self)
    cpdef notify_streams(self)
    cpdef drained(self)
    cdef _frame(self, Stream stream, bytes data, bint end)
    cpdef grant(self, Stream stream, long long increment)
    cpdef leave(self, Stream stream)
    cpdef clear(self)
    @cython.locals(lane=StreamLane, stream=Stream, room=Py_ssize_t, data=bytes, last=bint)
    cpdef pump(self)
    @cython.locals(head=Py_ssize_t, size=Py_ssize_t, tail=Py_ssize_t, number=cython.longlong)
    cpdef message(self, Stream stream, bytes block, bytes data, bytes trailers)
    @cython.locals(lane=StreamLane, size=Py_ssize_t)
    cpdef data(self, Stream stream, bytes data, bint end)
