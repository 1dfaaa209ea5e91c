# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

from proxy.retry.facts cimport Request


cdef class Caller:
    cdef public Request request
    cdef public object fields
    cdef public str route
    cdef public str endpoint
    cdef public str _timed_route
    cdef public bytes _credential
    cdef public bytes _lost_route
    cdef public bint cools
    cdef public bint limits
    cdef public bint outages
    cdef public bint retries

    cpdef move(self, fields)
