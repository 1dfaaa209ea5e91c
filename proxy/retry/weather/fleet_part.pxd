cdef class FleetPart:
    cdef public object link
    cdef public double share
    cdef public bint elsewhere
    cdef public double limit_share
    cdef public bint limited_elsewhere
    cdef public bint may_probe

    cpdef double places(self, bint returns) except? -1
    cpdef cooldown_began(self)
    cpdef limit_over(self)
