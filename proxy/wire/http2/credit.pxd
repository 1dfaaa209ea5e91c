cimport cython

from proxy.wire.http2.outbox cimport Outbox
from proxy.wire.http2.peer_limits cimport PeerLimits
from proxy.wire.http2.stream cimport Stream


cdef int FIRST_WINDOW, _LEAST_CREDIT


cdef class Credit:
    cdef public PeerLimits limits
    cdef Outbox _outbox
    cdef long long _left, _owed, _withheld
    cdef bint _closed
    cdef public bint acknowledged
    cdef public long long held

    cpdef spend(self, Py_ssize_t size)
    @cython.locals(owed=cython.longlong)
    cpdef read(self, Stream stream, Py_ssize_t size, bint end)
    cpdef hold(self, Stream stream, Py_ssize_t size, Py_ssize_t kept)
    cpdef release(self, Stream stream, Py_ssize_t size)
    @cython.locals(owed=cython.longlong, window=cython.longlong)
    cpdef give_stream(self, Stream stream, Py_ssize_t size)
    @cython.locals(owed=cython.longlong)
    cpdef give(self, Py_ssize_t size)
    cpdef close(self)
