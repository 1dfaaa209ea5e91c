from proxy.forward.app_repeats cimport AppRepeats
from proxy.forward.timers cimport Watch
from proxy.observe.call_record cimport Observer
from proxy.retry.call.environment cimport Env
from proxy.retry.scopes.registry cimport Registry
from proxy.transport.pool cimport Pool


cdef class Context:
    cdef public object loop
    cdef public Pool pool
    cdef public object store
    cdef public Registry registry
    cdef public Env env
    cdef public Observer observer
    cdef public str via
    cdef public Watch watch
    cdef public AppRepeats app_repeats
    cdef public long long generation
    cdef public object keys
    cdef public object router
    cdef public bint draining
    cdef public bint refusing
