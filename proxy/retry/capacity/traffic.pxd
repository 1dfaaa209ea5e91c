cimport cython


cdef class Traffic:
    cdef public long flying
    cdef public long long ended
    cdef public double answered_at
    cdef public double served_at
    cdef public bint is_watched
    cdef public object others
    cdef long long* _word
    cdef public double note_at
    cdef public double rate
    cdef public long long _rated
    cdef public double _rated_at

    @cython.locals(ended=cython.longlong)
    cpdef bint went_well(self, double now) except -1
    cpdef bint measure(self, double now) except -1
    cpdef skip(self, double now)
    @cython.locals(ended=cython.longlong)
    cpdef failed(self)
    cpdef long long all_ended(self) except? -1
    cpdef dropped(self)
