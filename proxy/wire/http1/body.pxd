cdef class LengthBody:
    cdef public long long remaining

    cpdef tuple feed(self, bytes data)


cdef class UntilCloseBody:
    cpdef tuple feed(self, bytes data)


cdef class ChunkedBody:
    cdef public int _state
    cdef public long long _left
    cdef public object _held
    cdef public Py_ssize_t _checked
    cdef public Py_ssize_t _extensions
    cdef public bytes trailers

    cpdef tuple feed(self, bytes data)
    cdef Py_ssize_t _whole_chunks(self, bytes data, Py_ssize_t at, list parts) except -1
