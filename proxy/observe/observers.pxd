cimport cython

from proxy.observe.call_record cimport CallRecord, Observer
from proxy.observe.metrics cimport Metrics, Series


cdef class Observers(Observer):
    cdef public Metrics metrics
    cdef public object recent
    cdef public object log
    cdef public object _later
    cdef public object _notify
    cdef public object _reported
    cdef public bint _set
    cdef public list _gathered

    cpdef call_ended(self, CallRecord call)
    @cython.locals(series=Series)
    cpdef app_repeated(self, policy)
    cpdef catch_up(self)
