cimport cython

from proxy.retry.budgets.buckets cimport Bucket
from proxy.retry.call.attempt_record cimport AttemptRecord
from proxy.retry.call.call_state cimport CallState
from proxy.retry.call.repeat_checks cimport first_no, safe_until
from proxy.retry.call.states cimport Next
from proxy.retry.facts cimport Failure
from proxy.retry.strategies.backoff cimport WaitSeries
from proxy.retry.value_bases cimport StrategyBase


cdef double EPSILON


cdef class Sequential(WaitSeries):
    cdef public double due
    cdef public object plugin

    cpdef start(self, StrategyBase strategy, rng)
    @cython.locals(each=AttemptRecord, bucket=Bucket, at_once=bint, until=double, first_sent=double, wait=double, due=double, last=double,
                   planned=Next)
    cpdef after_failure(self, CallState call, Failure failure, double now, bint disabled)


cdef tuple _named_wait(CallState call, Failure failure, double now)
