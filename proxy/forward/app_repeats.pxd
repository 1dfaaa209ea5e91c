cimport cython

from proxy.retry.facts cimport Request


cdef class GivenUp:
    cdef public str prefix
    cdef public object method
    cdef public object authority
    cdef public object path
    cdef public bytes digest
    cdef public double at

    cdef bint is_by(self, str client, method, authority) except -1


cdef class AppRepeats:
    cdef public dict _given_up
    cdef public double _until
    cdef public dict _latest

    cpdef bint ended(self, str client, Request request, body, bint given_up, double now) except -1
    @cython.locals(found=GivenUp)
    cdef bint _is_repeat(self, GivenUp latest, str client, Request request, tuple body, double now) except -1


cdef tuple _key(str client, Request request)
cdef bytes _digest(tuple body)
