cimport cython

from proxy.observe.call_record cimport CallRecord, Course
from proxy.retry.call.attempt_record cimport AttemptRecord
from proxy.retry.value_bases cimport PolicyBase


cdef tuple _GE_OF


cdef class Durations:
    cdef public long long[20] _slots  # one for each of BOUNDS, and one more
    cdef public double total

    cpdef add(self, double seconds)


cdef class Series:
    cdef public object upstream
    cdef public object route
    cdef public long long[10] at_once  # one for each hundred of status codes
    cdef public long long[10] after_retries  # the same
    cdef public dict endings
    cdef public dict results
    cdef public dict reasons
    cdef public dict denied
    cdef public dict faults
    cdef public object grpc
    cdef public object fallbacks
    cdef public list ge
    cdef public dict apps
    cdef public str _latest_app
    cdef public Series _of_latest_app
    cdef public long long retries_failed
    cdef public long long hedges
    cdef public long long transparent
    cdef public long long app_retries
    cdef public long long likely_app_retries
    cdef public long long stream_errors
    cdef public long long streams_unfinished
    cdef public long long resumed_bytes
    cdef public object resumes
    cdef public object tokens
    cdef public object estimate_ratios
    cdef public double estimate_ratio_sum
    cdef public double backoff_seconds
    cdef public Durations call_seconds
    cdef public Durations attempt_seconds
    cdef public Durations first_byte_seconds


cdef class Metrics:
    cdef public dict _series
    cdef public dict _by_policy
    cdef public object catch_up
    cdef public long long lines_lost
    cdef public dict reloads

    @cython.locals(found=Series)
    cpdef Series series(self, PolicyBase policy)
    @cython.locals(call=CallRecord, course=Course, policy=PolicyBase, latest=PolicyBase, series=Series, own=Series,
                   seconds=double, at=Py_ssize_t, histogram=Durations, code_class=long, app=str)
    cpdef add(self, calls)
    cdef bint _count_decided(self, Series series, Series own, CallRecord call, Course course) except -1


@cython.locals(bound=double, slot=Py_ssize_t)
cdef Py_ssize_t _slot(double seconds) except -1


cpdef count_outcome(Series series, outcome, long hundred)
@cython.locals(own=Series)
cdef Series _of_app(Series series, str app)
@cython.locals(record=AttemptRecord, last=AttemptRecord, before=long, ended=long, decision=object, what=object,
               over=double, waited=double, opening=AttemptRecord)
cdef _count_history(Series series, Series own, CallRecord call, records, bint is_over=*)
cdef _count_result(Series series, AttemptRecord record)
cdef _count_first_byte(Series series, AttemptRecord record)
@cython.locals(other=AttemptRecord)
cdef _reason(Series series, AttemptRecord record, records)
@cython.locals(retry=long, at=Py_ssize_t)
cdef _count(Series series, AttemptRecord record, reason)
cpdef result(AttemptRecord record)
