cimport cython


cdef class LineSink:
    cdef public object _turn
    cdef public bint _has_turn
    cdef public object _later
    cdef public object _lost
    cdef public object _trouble
    cdef public bint _is_in_trouble
    cdef public list _lines
    cdef public bytearray _rest
    cdef public long long _dropped
    cdef public bint _set
    cdef public bint _broken
    cdef public bint _within
    cdef public object _own
    cdef public object _poll
    cdef public bint _may_block
    cdef public Py_ssize_t _chunk
    cdef public object _put

    cpdef add(self, str lines)
    cpdef add_now(self, str lines)
    cdef _write_gathered(self)
    cdef bint _may_write(self) except -1
    cdef _give_turn(self)
    cdef _lose(self, Py_ssize_t lines)
    cdef _report(self, str why)
    @cython.locals(lines=str, lost=Py_ssize_t)
    cdef bint _gather(self) except -1
    @cython.locals(rest=bytearray, sent=Py_ssize_t)
    cdef bint _write(self) except -1
    cdef Py_ssize_t _upto(self, Py_ssize_t sent) except -1
