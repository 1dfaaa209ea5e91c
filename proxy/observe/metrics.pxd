cimport cython

from proxy.observe.call_record cimport CallRecord


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
