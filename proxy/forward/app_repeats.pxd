cimport cython

from proxy.forward.usual_calls cimport UsualCalls, host_of
from proxy.observe.call_record cimport CallRecord
from proxy.retry.facts cimport Request


cdef double CHANCE, _WINDOW, _SHORT
cdef double _USUAL_FOR
cdef double _COST
cdef double _FIRST
cdef double _LEAST


cdef class GivenUp:
    cdef public str client
    cdef public str prefix
    cdef public object agent
    cdef public str method
    cdef public str authority
    cdef public str path
    cdef public bytes digest
    cdef public double at
    cdef public double connected
    cdef public bint is_usual
    cdef public bint is_usual_elsewhere

    cdef ended(self, CallRecord record, agent, bytes digest, double connected)
    cdef bint is_by(self, str client, str method, str authority) except -1


cdef class AppRepeats:
    cdef public object _last
    cdef public UsualCalls _usual
    cdef public double _usual_at
    cdef public dict _counts
    cdef public dict given_up
    cdef public double _until
    cdef public dict _latest

    cpdef bint ended(self, CallRecord record, Request request, body, bint given_up, double connected, bytes agent=*) except -1
    @cython.locals(forgotten=GivenUp)
    cdef _forget(self, tuple key)
    @cython.locals(found=GivenUp, gap=double, usual=UsualCalls, same=bint)
    cdef bint _is_repeat(self, GivenUp latest, CallRecord record, Request request, tuple body, double connected) except -1
    @cython.locals(before=double, count=double, report=bint)
    cdef bint _count(self, tuple app, bint repeated, bint given_up) except -1
    @cython.locals(key=tuple, latest=dict, made=GivenUp)
    cdef _remember(self, CallRecord record, Request request, agent, tuple body, double connected)


cdef tuple _key(str client, Request request)
cdef bytes _digest(tuple body)
