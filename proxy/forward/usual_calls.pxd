cimport cython

from proxy.observe.call_record cimport CallRecord

cdef double UNSEEN_CALLS
cdef double UNSEEN_SECONDS
cdef double _WEIGHT


cdef class Pace:
    cdef public long calls
    cdef public list own
    cdef public list others
    cdef list _ends

    @cython.locals(end=double)
    cdef add(self, CallRecord call, bint succeeded, bint opens)
    cpdef sort(self)
    @cython.locals(times=list, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, at=double)
    cdef long followed(self, double gap, bint own) except -1


cdef class AppCalls:
    cdef CallRecord call
    cdef Pace pace
    cdef bint succeeded
    cdef str host
    cdef dict before

    @cython.locals(last=CallRecord)
    cdef bint has_same_url(self, CallRecord call) except -1
    @cython.locals(last=CallRecord)
    cdef turn_to(self, Pace pace)


cdef class UsualCalls:
    cdef public double _seconds
    cdef public dict _paces
    cdef public Pace _all

    @cython.locals(call=CallRecord, connections=dict, connection=AppCalls, newest=double, oldest=double, pace=Pace)
    @cython.locals(opens=bint, succeeded=bint)
    cdef _add_all(self, list calls)
    @cython.locals(key=tuple, pace=Pace)
    cdef Pace _pace(self, str host, CallRecord call)
    @cython.locals(pace=Pace, everywhere=double, calls=double)
    cpdef double chance(self, CallRecord call, double gap, bint own) except -1


cpdef str host_of(str client)
