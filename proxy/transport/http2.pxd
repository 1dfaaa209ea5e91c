cimport cython

from proxy.transport.clock cimport monotonic
from proxy.transport.http2_protocol cimport Http2Protocol
from proxy.transport.origins cimport Origin
from proxy.transport.streams cimport Listener
from proxy.wire.head cimport PreparedRequest
from proxy.wire.http2.stream cimport Stream


cdef class UpstreamConnection(Http2Protocol):
    cdef public long long generation
    cdef public double expires
    cdef public Origin origin
    cdef public object pinned
    cdef public double since
    cdef object _keeper, _settled

    cpdef stream(self)


cdef class Http2UpstreamStream(Stream):
    cdef UpstreamConnection _connection
    cdef Listener _listener
    cdef bint _reused

    @cython.locals(connection=UpstreamConnection, block=bytes)
    cpdef send(self, Listener listener, PreparedRequest prepared, bytes body, bint end, trailers)
    cpdef write(self, bytes data)
    cpdef finish(self, trailers, bytes data=*)
    cdef _over(self)
