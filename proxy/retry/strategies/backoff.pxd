from proxy.retry.value_bases cimport BackoffBase, StrategyBase


cdef class WaitSeries:
    cdef public StrategyBase strategy
    cdef public object rng
    cdef public long n
    cdef public object previous

    cpdef next_wait(self, pushback, bint throttled)
    cpdef backoff(self, long n, bint throttled)


cpdef delay(BackoffBase backoff, n, double r, bint throttling=*, previous=*)
cpdef bint needs_draw(BackoffBase backoff) except -1
cdef double _times(double left, double right) except? -1
cdef double _power(double multiplier, exponent) except? -1
