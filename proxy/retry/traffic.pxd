cdef class Traffic:
    cdef public long flying
    cdef public long long ended
    cdef public double answered_at
    cdef public bint is_watched
    cdef public double note_at

    cpdef bint went_well(self, double now) except -1
    cpdef failed(self)
    cpdef dropped(self)
