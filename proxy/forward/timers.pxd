cimport cython

from proxy.transport.clock cimport monotonic


cdef double _NEVER


cdef class Alarm:
    cdef public object _loop
    cdef public object _owner
    cdef public object _ring
    cdef public object _handle
    cdef public double at

    cpdef set(self, double at)
    cpdef stop(self)


@cython.locals(due=double, passed=double)
cdef double _until(double at, double now) except -1


cdef class Watch:
    cdef public object _loop
    cdef public object _timer
    cdef public double next_tick
    cdef public set busy
    cdef public dict alarms
    cdef public dict _glanced
    cdef public list _waiting

    cpdef enter(self, connection, double now)
    cdef _begin(self, double now)
    cpdef sooner(self, call)
    cpdef remove(self, call)
