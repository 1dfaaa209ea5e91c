from proxy.wire.http1.request cimport RequestHead, scanned_request
from proxy.wire.http1.response cimport ResponseHead, scanned_answer


cdef class HeadParser:
    cdef public Py_ssize_t header_bytes
    cdef public Py_ssize_t headers
    cdef public Py_ssize_t _roomy
    cdef public bytes _rest
    cdef public Py_ssize_t _at
    cdef public object _partial
    cdef public Py_ssize_t _line_end
    cdef public bint _skipped

    cdef bytes _hold_behind(self, bytes data, Py_ssize_t end)
    cpdef bytes leftover(self)


cdef class RequestParser(HeadParser):
    cdef public object _scan
    cdef public RequestHead _last

    cpdef RequestHead feed(self, bytes data)


cdef class ResponseParser(HeadParser):
    cdef public object _scan
    cdef public ResponseHead _last

    cpdef ResponseHead feed(self, bytes data)
    cpdef tuple take(self, bytes data)
