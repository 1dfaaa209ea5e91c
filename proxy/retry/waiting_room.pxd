cdef class WaitingRoom:
    cdef public object capacity
    cdef public long waiting
    cdef public dict _held

    cpdef bint enter(self, upstream, bint held=*) except -1
    cpdef leave(self, upstream, bint held=*)
    cpdef bint _enter(self, upstream, bint held, long waiting, long holding) except -1
