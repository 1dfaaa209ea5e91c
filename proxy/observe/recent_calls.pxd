cimport cython

from proxy.observe.call_record cimport CallRecord


cdef class RecentCalls:
    cdef public object _plain
    cdef public object _notable
    cdef public long long _seen
    cdef public object catch_up

    @cython.locals(call=CallRecord, kept=CallRecord, number=cython.longlong)
    cpdef add(self, calls)
