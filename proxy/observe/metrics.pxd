cimport cython

from proxy.observe.call_record cimport CallRecord
from proxy.retry.attempt_record cimport AttemptRecord


cdef class Durations:
    cdef public list slots
    cdef public double total

    cpdef add(self, double seconds)


cdef class Metrics:
    cdef public dict _series
    cdef public dict _by_policy
    cdef public object catch_up
    cdef public long long lines_lost
    cdef public dict reloads

    @cython.locals(call=CallRecord, seconds=double, slot=Py_ssize_t, histogram=Durations)
    cpdef add(self, calls)


@cython.locals(record=AttemptRecord, last=AttemptRecord, before=long, ended=long)
cdef _count_history(series, CallRecord call, records, bint is_over=*)
cdef _count_first_byte(series, AttemptRecord record)
@cython.locals(other=AttemptRecord)
cdef _count_retry(series, AttemptRecord record, AttemptRecord before, records)
cdef _count(series, AttemptRecord record, reason)
cpdef result(AttemptRecord record)
