cdef class WaitSeries:
    cdef public object strategy
    cdef public object rng
    cdef public long n
    cdef public object previous

    cpdef next_wait(self, pushback, bint throttled)
    cpdef backoff(self, long n, bint throttled)


cpdef delay(backoff, n, double r, bint throttling=*, previous=*)
cpdef bint needs_draw(backoff) except -1
cdef _times(left, right)
