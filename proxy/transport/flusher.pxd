cdef class Flusher:
    cdef dict _gathered
    cdef object _loop
    cdef bint _reading

    cpdef gathered(self, connection)
    cpdef reads(self)
    cpdef flush(self)
