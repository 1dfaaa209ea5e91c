# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cimport cython


cdef double _NEVER
cdef double _SHARE
cdef double _STEP_FIRST
cdef double _STEP


cdef class RouteTime:
    cdef public double estimate
    cdef public long long answers
    cdef public double last

    @cython.locals(estimate=double, step=double)
    cpdef learn(self, double seconds, double now)


cdef class UsualTimes:
    cdef public long long count
    cdef public dict _of
    cdef public dict _first

    @cython.locals(known=RouteTime)
    cpdef learn(self, str route, double seconds, double now)
    @cython.locals(first=dict, key=str, known=RouteTime)
    cpdef _learn_first(self, str route, double seconds, double now)
    @cython.locals(known=RouteTime)
    cpdef bint answered(self, str route, double seconds, double now, bint timed) except -1
    @cython.locals(known=RouteTime)
    cpdef double of(self, str route) except -1
    @cython.locals(known=RouteTime)
    cpdef double last(self, str route) except? -2


cpdef str _method_of(str route)
