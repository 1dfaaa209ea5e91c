cimport cython

from proxy.wire.http1.slow_path cimport Head


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
    cpdef bytes _simple_fields(self, bytes host)
    cpdef bytes _fields(self, bytes host, frozenset drop)


@cython.locals(head=RequestHead)
cpdef RequestHead scanned_request(bytes raw, tuple found)
