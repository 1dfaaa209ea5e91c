# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cimport cython


cdef class RouteIndex:
    cdef public dict _beginnings
    cdef public long _deepest
    cdef public dict _whole

    @cython.locals(known=_ByMethod, beginnings=dict, found=tuple, more=tuple, end=Py_ssize_t)
    cpdef tuple candidates(self, str method, str path)


cdef class _ByMethod:
    cdef public tuple _any
    cdef public dict _of

    cpdef tuple of(self, str method)
