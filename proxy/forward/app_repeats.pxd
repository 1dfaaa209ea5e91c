from proxy.retry.facts cimport Request


cdef class AppRepeats:
    cdef public dict _given_up
    cdef public double _newest
    cdef public set _paths

    cpdef ended(self, str client, Request request, body, bint given_up, double now)
    cdef bint _is_repeat(self, str client, Request request, tuple body, double now) except -1


cdef tuple _key(str client, Request request)
cdef bytes _digest(tuple body)
