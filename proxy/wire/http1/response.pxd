from proxy.wire.http1.slow_path cimport Head
from proxy.wire.http1.splice cimport splice


cdef class ResponseHead(Head):
    cdef public int status
    cdef public bytes _kept
    cdef public bytes _length_line

    cpdef bint says_same(self, ResponseHead other)
    cpdef Py_ssize_t body_size(self, str method)
    cpdef trailers_to_forward(self, trailers)
    cpdef bytes message(self, bytes add, bytes body)
    cpdef bytes _keep(self)
    cpdef bytes _lines(self, frozenset drop)
