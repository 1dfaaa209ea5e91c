from proxy.retry.backoff cimport WaitSeries
from proxy.retry.facts cimport Failure, Reply


cdef class Next:
    cdef public double due
    cdef public object price
    cdef public double until
    cdef public bint gated


cdef class Sequential(WaitSeries):
    cdef public double due

    cpdef after_failure(self, call, Failure failure, double now, bint goes_on, bint disabled)


cdef class Hedged:
    cdef public double due
    cdef public object stopped
    cdef public double _pushed_until

    cpdef after_launch(self, call, double now)
    cpdef after_failure(self, call, Failure failure, double now, bint goes_on, bint disabled)


cpdef bint goes_on(call, Failure failure) except -1
cpdef Failure failure_of(call, long attempt, Reply reply, verdict, double sent, double wall)
cdef _pushback_of(call, Reply reply, cls, double wall)
cpdef bint is_safe(verdict, fault, bint idempotent, unsafe_methods) except -1
cpdef double safe_until(Failure failure, double first_sent, bint idempotent, unsafe_methods) except? -1
cpdef first_no(call, Failure failure, bint goes_on, bint disabled, bint safe)
cpdef bint too_long(delay, policy) except -1
