cdef class LineSink:
    cdef public object _turn
    cdef public bint _has_turn
    cdef public object _later
    cdef public object _lost
    cdef public object _trouble
    cdef public bint _is_in_trouble
    cdef public list _lines
    cdef public object _rest
    cdef public long long _dropped
    cdef public bint _set
    cdef public bint _broken
    cdef public bint _within
    cdef public object _own
    cdef public object _poll
    cdef public Py_ssize_t _chunk
    cdef public object _put

    cpdef add(self, str lines)
