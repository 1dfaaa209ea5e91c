# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is
# compiled").

cimport cython

from proxy.retry.weather.lane cimport Lane
from proxy.retry.weather.limit cimport Limit
from proxy.retry.weather.outage cimport Outage


cdef double _NEVER


cdef class _Known:
    cdef public double limit_since
    cdef public double outage_since
    cdef public double least


cdef class WeatherWatch:
    cdef public object _report
    cdef public str _scope
    cdef public str _upstream
    cdef public dict _known
    cdef public bint _observes

    @cython.locals(known=_Known, limit=double, outage=Outage)
    cpdef look(self, Lane lane, double now)
    cpdef forget(self, Lane lane)


@cython.locals(limit=Limit)
cpdef double limit_of(Lane lane) except -1
