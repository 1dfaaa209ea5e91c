cimport cython


cdef int HEADERS


cdef class UnfinishedFrame:
    cdef public bytearray rest
    cdef public Py_ssize_t need
    cdef public double since

    @cython.locals(rest=bytearray)
    cpdef bytes joined(self, bytes data)
    cpdef keep(self, bytes data, Py_ssize_t at, double now)
