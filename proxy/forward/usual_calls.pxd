cimport cython

from proxy.observe.call_record cimport CallRecord


cdef class Pace:
    cdef public long calls
    cdef public list own
    cdef public list others
    cdef dict _next
    cdef object _next_opened

    @cython.locals(client=str)
    cpdef add(self, CallRecord call, bint opens)
    cpdef sort(self)
    cpdef long followed(self, double gap, bint own) except -1


cdef class UsualCalls:
    cdef public double _seconds
    cdef public dict _paces
    cdef public Pace _all

    @cython.locals(call=CallRecord, opened=dict, hosts=dict, key=tuple, newest=double, oldest=double, pace=Pace, client=str)
    cpdef _add_all(self, list latest)
    @cython.locals(pace=Pace, everywhere=double)
    cpdef double chance(self, CallRecord call, double gap, bint own) except -1


cdef str _host(str client)
