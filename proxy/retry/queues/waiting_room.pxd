cdef class WaitingRoom:
    cdef public object capacity
    cdef public long waiting
    cdef public dict _held
    cdef public dict _guests

    cpdef bint enter(self, upstream, bint held=*, guest=*) except -1
    cpdef leave(self, upstream, bint held=*, guest=*)
    cpdef bint _enter(self, upstream, bint held, long waiting, long holding) except -1
