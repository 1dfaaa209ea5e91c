cimport cython

from proxy.observe.access_log cimport AccessLog
from proxy.observe.call_record cimport CallRecord, Observer
from proxy.observe.metrics cimport Metrics, Series
from proxy.retry.value_bases cimport PolicyBase


cdef class Observers(Observer):
    cdef public Metrics metrics
    cdef public object recent
    cdef public AccessLog log
    cdef public object _later
    cdef public object soon
    cdef public object _notify
    cdef public object _reported
    cdef public bint _set
    cdef public list _gathered

    cpdef call_ended(self, CallRecord call)
    @cython.locals(series=Series)
    cpdef app_repeated(self, PolicyBase policy)
    cpdef catch_up(self)
    cdef _pass_on(self, bint at_once)
