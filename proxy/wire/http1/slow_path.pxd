from proxy.wire.fields cimport FieldBlock
from proxy.wire.http1.splice cimport Edges


cdef class Head(FieldBlock):
    cdef public object slow_path  # a named tuple
    cdef public bint scanned
    cdef Edges edges
    cdef public str version
    cdef public dict specials
    cdef public object content_length
    cdef public bint chunked
    cdef public bint keep_alive
    cdef public bint simple

    cpdef trailers_to_send(self, trailers)
    cpdef bint _is_plainly_framed(self, dict specials)
