from proxy.transport.clock cimport monotonic


cdef class Alarm:
    cdef public object _loop
    cdef public object _owner
    cdef public object _ring
    cdef public object _handle
    cdef public double at

    cpdef set(self, double at)
    cpdef stop(self)


cdef class Watch:
    cdef public object _loop
    cdef public object _timer
    cdef public double next_tick
    cdef public set busy
    cdef public dict alarms
    cdef public dict _glanced

    cpdef enter(self, connection, double now)
    cpdef sooner(self, call)
    cpdef remove(self, call)
