# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cimport cython

from proxy.retry.facts cimport Request
from proxy.retry.usual_times cimport timed_route


cdef dict _NAMES
cdef dict _CREDENTIALS

cpdef bytes _name_of_route(str route, str what)


cdef class Caller:
    cdef public Request request
    cdef public object fields
    cdef public str route
    cdef public str endpoint
    cdef public str _timed_route
    cdef public bytes _credential
    cdef public bytes _lost_route
    cdef public bint ahead
    cdef public object ousted
    cdef public bint was_probe
    cdef public bint cools
    cdef public bint limits
    cdef public bint outages
    cdef public bint retries

    @cython.locals(request=Request, method=str)
    cpdef bytes lost_route(self)
    cpdef bytes lost_path(self)
    @cython.locals(request=Request, path=str)
    cpdef bint has_path(self) except -1
    cpdef str timed_route(self)
    cpdef bytes credential(self)
    cpdef move(self, fields)
