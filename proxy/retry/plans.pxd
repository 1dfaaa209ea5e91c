cimport cython

from proxy.retry.attempt_record cimport AttemptRecord
from proxy.retry.backoff cimport WaitSeries
from proxy.retry.buckets cimport Bucket
from proxy.retry.call_state cimport CallState
from proxy.retry.facts cimport Failure, Reply
from proxy.retry.states cimport Next
from proxy.retry.value_bases cimport FaultBase, PolicyBase, VerdictBase


cdef double EPSILON
cdef double NEVER


cdef class Sequential(WaitSeries):
    cdef public double due
    cdef public object plugin

    @cython.locals(each=AttemptRecord, bucket=Bucket, until=double, first_sent=double)
    cpdef after_failure(self, CallState call, Failure failure, double now, bint goes_on, bint disabled)
    cpdef succeeded(self)


cdef class Hedged:
    cdef public double due
    cdef public object stopped
    cdef public bint shared
    cdef public double _pushed_until

    @cython.locals(bucket=Bucket)
    cpdef after_launch(self, CallState call, double now)
    @cython.locals(bucket=Bucket)
    cpdef after_failure(self, CallState call, Failure failure, double now, bint goes_on, bint disabled)


cpdef bint goes_on(CallState call, Failure failure) except -1
cpdef Failure failure_of(CallState call, long attempt, Reply reply, VerdictBase verdict, double sent, double wall)
cdef _pushback_of(CallState call, Reply reply, cls, double wall)
cpdef bint is_safe(VerdictBase verdict, FaultBase fault, bint idempotent, unsafe_methods) except -1
cpdef double safe_until(Failure failure, double first_sent, bint idempotent, unsafe_methods) except? -1
cpdef first_no(CallState call, Failure failure, bint goes_on, bint disabled, bint safe)
cpdef bint too_long(delay, PolicyBase policy) except -1
