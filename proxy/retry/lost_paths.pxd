# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cimport cython


cdef class LostPath:
    cdef public long count
    cdef public double since
    cdef public list endings


cdef class LostPaths:
    cdef public dict rows
    cdef public double answered_at
    cdef public double _latest

    @cython.locals(row=LostPath)
    cpdef LostPath lost(self, str path, str how, double now)
    cpdef answered(self, str path, double now)
