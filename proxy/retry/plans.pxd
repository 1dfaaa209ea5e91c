cimport cython

from proxy.retry.attempt_record cimport AttemptRecord
from proxy.retry.backoff cimport WaitSeries
from proxy.retry.buckets cimport Bucket
from proxy.retry.facts cimport Failure, Reply, Request


cdef class Next:
    cdef public double due
    cdef public object price
    cdef public double until
    cdef public bint gated


cdef class CallView:
    cdef public object policy
    cdef public Request request
    cdef public object hints
    cdef public long attempts
    cdef public long earlier
    cdef public object deadline
    cdef public bint committed
    cdef public list history
    cdef public Reply reply

    cpdef bint is_idempotent(self) except -1
    cpdef bint may_be_hedged(self) except -1
    cpdef hedging_delay(self, double now)
    cpdef tuple named_wait(self, Failure failure, double now)


cdef class Sequential(WaitSeries):
    cdef public double due
    cdef public object plugin

    @cython.locals(each=AttemptRecord, bucket=Bucket, until=double, first_sent=double)
    cpdef after_failure(self, CallView call, Failure failure, double now, bint goes_on, bint disabled)


cdef class Hedged:
    cdef public double due
    cdef public object stopped
    cdef public bint shared
    cdef public double _pushed_until

    cpdef after_launch(self, CallView call, double now)
    @cython.locals(bucket=Bucket)
    cpdef after_failure(self, CallView call, Failure failure, double now, bint goes_on, bint disabled)


cpdef bint goes_on(CallView call, Failure failure) except -1
cpdef Failure failure_of(CallView call, long attempt, Reply reply, verdict, double sent, double wall)
cdef _pushback_of(CallView call, Reply reply, cls, double wall)
cpdef bint is_safe(verdict, fault, bint idempotent, unsafe_methods) except -1
cpdef double safe_until(Failure failure, double first_sent, bint idempotent, unsafe_methods) except? -1
cpdef first_no(CallView call, Failure failure, bint goes_on, bint disabled, bint safe)
cpdef bint too_long(delay, policy) except -1
