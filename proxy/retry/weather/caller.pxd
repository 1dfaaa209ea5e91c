# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is
# compiled").

from proxy.retry.facts cimport Request
from proxy.retry.weather.route_names cimport RouteNames, names_of


cdef dict _CREDENTIALS

cdef class Caller:
    cdef public Request request
    cdef public object fields
    cdef public RouteNames names
    cdef public str endpoint
    cdef public bytes _credential
    cdef public bint ahead
    cdef public object ousted
    cdef public bint was_probe
    cdef public bint cools
    cdef public bint limits
    cdef public bint outages
    cdef public bint retries
    cdef public bint whole
    cdef public double held_before

    cpdef bytes credential(self)
    cpdef move(self, fields)
