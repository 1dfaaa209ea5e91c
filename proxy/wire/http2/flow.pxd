cdef class StreamLane:
    cdef public Py_ssize_t queued
    cdef object _pieces
    cdef Py_ssize_t _at

    cpdef put(self, bytes data)
    cpdef bytes cut(self, Py_ssize_t most)
