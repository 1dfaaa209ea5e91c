from proxy.wire.http1.slow_path cimport Head
from proxy.wire.http1.splice cimport splice


cdef class ResponseHead(Head):
    cdef public int status
    cdef public bytes _kept
    cdef public bytes _length_line

    cpdef bint says_same(self, ResponseHead other)
    cpdef Py_ssize_t body_size(self, str method)
    cpdef trailers_to_forward(self, trailers)
    cdef bint _has_any(self, frozenset names) except -1
    cpdef bytes message(self, bytes add, bytes body, frozenset drop)
    cpdef bytes _keep(self)
    cpdef bytes _lines(self, frozenset drop)
