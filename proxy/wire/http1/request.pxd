from proxy.wire.http1.slow_path cimport Head
from proxy.wire.http1.splice cimport same_lines, splice


cdef class RequestHead(Head):
    cdef public str method
    cdef public bytes target
    cdef public str form
    cdef public str scheme
    cdef public str authority
    cdef public bytes path
    cdef public bytes _host
    cdef public tuple _kept

    cpdef _locate(self)
    cpdef bint has_lines_of(self, RequestHead other) except -1
    cpdef bytes message(self, bytes target, bytes host, bytes add, bytes body, frozenset drop)
    cpdef bytes _simple_fields(self, bytes host)
    cpdef bytes _fields_but(self, frozenset drop, bytes host)
    cpdef bytes _fields(self, bytes host, frozenset drop)
