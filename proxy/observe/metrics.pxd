cimport cython

from proxy.observe.call_record cimport CallRecord


cdef class Durations:
    cdef public list slots
    cdef public double total

    cpdef add(self, double seconds)


cdef class Series:
    cdef public str upstream
    cdef public str route
    cdef public list at_once
    cdef public object outcomes
    cdef public object results
    cdef public object reasons
    cdef public object denied
    cdef public object grpc
    cdef public object fallbacks
    cdef public list ge
    cdef public long long retries_failed
    cdef public long long hedges
    cdef public long long transparent
    cdef public long long app_retries
    cdef public long long likely_app_retries
    cdef public long long stream_errors
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

    @cython.locals(call=CallRecord, seconds=double, slot=Py_ssize_t, histogram=Durations, series=Series)
    cpdef add(self, calls)
