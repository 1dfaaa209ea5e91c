cimport cython

from proxy.transport.clock cimport monotonic
from proxy.transport.event_source cimport EventSource
from proxy.transport.origins cimport Origin
from proxy.transport.socket_calls cimport has_said, socket_of, write_at_once
from proxy.transport.socket_reads cimport leave_to_transport, read_directly
from proxy.transport.streams cimport Listener
from proxy.wire.head cimport PreparedRequest
from proxy.wire.http1.body cimport ChunkedBody
from proxy.wire.http1.parser cimport ResponseParser
from proxy.wire.http1.response cimport ResponseHead as Answer


cdef double JUST_USED


cdef class Keeper


cdef class Connection(EventSource):
    cdef public Keeper _keeper
    cdef public long long generation
    cdef public double expires
    cdef public Origin origin
    cdef public object transport
    cdef public int _fd
    cdef public object _socket
    cdef public bint _tls
    cdef public bint _tunnel
    cdef public bytes _early
    cdef public Listener _listener
    cdef public str _method
    cdef public bint _chunked
    cdef public bytes _upgrade
    cdef public bint _sent_all
    cdef public ResponseParser _reader
    cdef public object _body
    cdef public bint _answered
    cdef public bint _paused
    cdef public Py_ssize_t _interim
    cdef public bint _keep_alive
    cdef public Answer _usual
    cdef public Py_ssize_t _usual_size
    cdef public bint blocked
    cdef public long long exchanges
    cdef public list pinned
    cdef public double since

    cpdef send(self, Listener listener, PreparedRequest prepared, bytes body, bint end, trailers)
    cdef bytes _render(self, PreparedRequest prepared)
    cpdef bint is_sound(self, double rested) except -1
    cpdef abort(self)
    cpdef pass_chunks_on(self, bint reads)
    @cython.locals(chunked=ChunkedBody, size=Py_ssize_t)
    cpdef bint take_event(self, bytes data) except -1
    cpdef pause(self)
    cpdef resume(self)
    @cython.locals(text="const char *", usual=bytes)
    cdef bytes _usual_body(self, bytes data)
    @cython.locals(head=Answer, reader=ResponseParser, size=Py_ssize_t)
    cdef _read_head(self, bytes data, Listener listener)
    @cython.locals(chunked=ChunkedBody)
    cdef _read_body(self, bytes data, Listener listener, Answer head=*)
    @cython.locals(size=Py_ssize_t, done=bint, chunks=bytes)
    cdef _pass_on(self, ChunkedBody body, bytes data, Listener listener)
    cdef _over(self, bytes rest)


cdef class Keeper:
    cpdef bint conforms(self, connection) except -1
    cpdef rest(self, Connection connection)
