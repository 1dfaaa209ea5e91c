cimport cython

from proxy.retry.facts cimport Reply, first


cdef class SseReader:
    cdef public bint _after_cr
    cdef public list _data
    cdef public Py_ssize_t _held
    cdef public str _name
    cdef public list _pieces
    cdef public Py_ssize_t _size
    cdef public bint _started
    cdef public bint _too_long

    @cython.locals(line=bytes, rest=bytes, lines=list, events=list)
    cpdef list feed(self, bytes data)
    cpdef bint is_at_event(self) except -1
    cdef _hold(self, bytes rest)
    cdef _read(self, bytes line)
    cdef _dispatch(self, list events)


cpdef bint is_event_stream(Reply reply) except -1
@cython.locals(media=str, text=str)
cpdef str media_type(Reply reply)
