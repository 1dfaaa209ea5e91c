cimport cython

from proxy.wire.http1.slow_path cimport Head


cdef class ResponseHead(Head):
    cdef public int status
    cdef public bytes _kept
    cdef public bytes _length_line

    cpdef bint is_same(self, ResponseHead other)
    cpdef Py_ssize_t body_size(self, str method)
    cpdef trailers_to_hand_on(self, trailers)
    cpdef bytes _simple_lines(self)
    cpdef bytes _lines(self, frozenset drop)


@cython.locals(head=ResponseHead)
cpdef ResponseHead scanned_answer(bytes raw, tuple found)
