from proxy.forward.context cimport Context
from proxy.forward.request_plan cimport Plan
from proxy.server.http2_stream cimport Home, Http2AppStream
from proxy.transport.clock cimport monotonic
from proxy.transport.http2_protocol cimport Http2Protocol


cdef class Http2Connection(Home):
    cdef public double since
    cdef int _fd
    cdef Context _context
    cdef long long _generation
    cdef object _timer
    cdef Plan _last
    cdef Py_ssize_t _places
    cdef dict _plans

    cdef _give_back(self, Py_ssize_t streams)
    cdef _close(self)
    cdef _wait(self)
