cimport cython

from proxy.wire.http1.body cimport ChunkedBody
from proxy.wire.http1.request cimport RequestHead
from proxy.wire.http1.response cimport ResponseHead
from proxy.wire.http1.scan cimport scan_answer, scan_request


cdef class HeadParser:
    cdef public Py_ssize_t header_bytes
    cdef public Py_ssize_t headers
    cdef public Py_ssize_t _roomy
    cdef public bytes rest
    cdef public Py_ssize_t _at
    cdef public object _partial
    cdef public Py_ssize_t _line_end
    cdef public bint _skipped

    cdef _hold_after(self, bytes data, Py_ssize_t end)
    cpdef tuple begin_body(self, ChunkedBody body)
    cpdef bytes leftover(self)


cdef class RequestParser(HeadParser):
    cdef bint _compiled
    cdef public RequestHead _last
    cdef public Py_ssize_t _fields_at

    @cython.locals(head=RequestHead, end=Py_ssize_t)
    cpdef RequestHead feed(self, bytes data)


cdef class ResponseParser(HeadParser):
    cdef bint _compiled
    cdef public ResponseHead _last

    cpdef ResponseHead feed(self, bytes data)
    @cython.locals(head=ResponseHead, text="const char *")
    cpdef tuple take(self, bytes data)
