cimport cython

from proxy.observe.call_record cimport CallRecord


cdef class Pace:
    cdef public long calls
    cdef public list own
    cdef public list others

    cpdef add(self, own, other, double ended)
    cpdef sort(self)


cdef class UsualCalls:
    cdef public double _seconds
    cdef public dict _paces
    cdef public Pace _all

    @cython.locals(call=CallRecord, opened=dict, own=dict, others=dict, hosts=dict, key=tuple, here=tuple, started=double,
                   newest=double, oldest=double, pace=Pace, each=Pace, client=str, host=str)
    cpdef _add_all(self, list latest)


cdef str _host(str client)
