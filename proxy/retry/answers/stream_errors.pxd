cimport cython

from proxy.retry.answers.event_stream cimport SseReader
from proxy.retry.answers.octet_search cimport holds_any
from proxy.retry.answers.stream_ends cimport EndReader


cdef class StreamWatch:
    cdef public object _decoder
    cdef public tuple _marks
    cdef public set _names
    cdef public SseReader _reader
    cdef public list _rules
    cdef public tuple _texts
    cdef public EndReader ends

    @cython.locals(events=list, found=list)
    cpdef list feed(self, bytes data)
    @cython.locals(end=Py_ssize_t, text="const char *")
    cpdef bint passes_over(self, bytes chunks, Py_ssize_t size) except -1
    @cython.locals(size=Py_ssize_t, text="const char *")
    cdef bint _says_nothing(self, bytes data) except -1
    @cython.locals(ends=EndReader)
    cdef bint _holds_nothing(self, bytes data) except -1
    @cython.locals(data=bytes, mark=bytes)
    cdef _error(self, event)
