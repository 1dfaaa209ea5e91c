from proxy.wire.http1.request cimport RequestHead as Asking


cdef class PreparedRequest:
    cdef public Asking head
    cdef public bytes authority
    cdef public bytes target
    cdef public frozenset drop
    cdef public bytes add
    cdef public bytes text
    cdef public bytes block
