# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cimport cython

from proxy.retry.facts cimport Request
from proxy.retry.usual_times cimport timed_route


cdef dict _NAMES


cdef class RouteNames:
    cdef public str route
    cdef public str timed
    cdef public bytes lost
    cdef public bint has_path

    cpdef bytes lost_path(self)


@cython.locals(timed=str, method=str, key=str, is_grpc=bint, names=RouteNames)
cpdef RouteNames names_of(str route, Request request)

cpdef bytes group_of(str what)
