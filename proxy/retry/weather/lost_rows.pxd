# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is
# compiled").

cimport cython

from proxy.retry.weather.route_names cimport RouteNames


cdef double _NEVER


cdef class LostRow:
    cdef public long count
    cdef public double since
    cdef public list endings
    cdef public double answered_at

    cpdef add(self, str how)


cdef class LostRows:
    cdef public dict endpoints
    cdef public dict rows
    cdef public tuple lone
    cdef public double answered_at
    cdef public double _latest

    cpdef bint is_suspected(self, str endpoint) except -1
    cpdef LostRow lost_endpoint(self, str endpoint, str how, double answered_at, double now)
    cpdef bint endpoint_answered(self, str endpoint) except -1
    cpdef LostRow lost_route(self, str endpoint, RouteNames names, str how, bint again, double now)
    @cython.locals(row=LostRow)
    cpdef LostRow lost_path(self, str endpoint, RouteNames names, str how, double answered_at, double now)
    @cython.locals(rows=dict, had=bint)
    cpdef bint answered(self, str endpoint, RouteNames names, double now) except -1
    cpdef double route_answered_at(self, RouteNames names) except? -1
    cpdef double path_answered_at(self, RouteNames names) except? -1


@cython.locals(row=LostRow)
cdef LostRow _add(dict rows, key, str how, double answered_at, double now)
