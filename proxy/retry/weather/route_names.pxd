# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cimport cython

from proxy.retry.facts cimport Request


cdef dict _NAMES


cdef class RouteNames:
    cdef public str route
    cdef public str key
    cdef public str timed
    cdef public bytes lost
    cdef public bint has_path

    cpdef bytes lost_path(self)


@cython.locals(timed=str, method=str, key=str, is_grpc=bint, names=RouteNames)
cpdef RouteNames names_of(str route, Request request)

cpdef bytes group_of(str what)


@cython.locals(path=str, method=str, end=Py_ssize_t, second=Py_ssize_t, third=Py_ssize_t)
cpdef str timed_route(str route, Request request)
