from proxy.forward.exchange cimport Exchange
from proxy.forward.request_plan cimport Plan
from proxy.transport.clock cimport monotonic
from proxy.transport.http2_protocol cimport Http2Protocol
from proxy.wire.http2.stream cimport Stream


cdef class Home(Http2Protocol):
    cdef public object acceptor, exposure, inside
    cdef public str client
    cdef public double connected
    cdef public bint surplus, watched

    cpdef Plan admit(self, Http2AppStream stream, head)
    cpdef bint takes_one_more(self) except -1


cdef class Http2AppStream(Stream):
    cdef public Exchange exchange
    cdef public object head
    cdef public Plan plan
    cdef Home _home
    cdef bint _has_continued

    cpdef respond(self, head, drop, bytes add, bytes data, bint end, trailers)
    cpdef write(self, bytes data)
    cpdef finish(self, trailers)
    cpdef done(self)
