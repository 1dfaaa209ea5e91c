from proxy.transport.http2_protocol cimport Http2Protocol
from proxy.wire.http2.stream cimport Stream


cdef class UpstreamConnection(Http2Protocol):
    cdef public long long generation
    cdef public object origin, pinned
    cdef public double since
    cdef object _keeper, _settled

    cpdef stream(self)


cdef class Http2UpstreamStream(Stream):
    cdef UpstreamConnection _connection
    cdef object _listener
    cdef bint _reused

    cpdef send(self, listener, asked, bytes body, bint end, trailers)
    cpdef write(self, bytes data)
    cpdef finish(self, trailers)
    cdef _over(self)
