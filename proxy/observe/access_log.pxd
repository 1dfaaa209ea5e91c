cimport cython

from proxy.observe.call_record cimport CallRecord


cdef class AccessLog:
    cdef public object _sink
    cdef public object _later
    cdef public dict _repeated
    cdef public double _last
    cdef public object also
    cdef public object hidden
    cdef public object catch_up
    cdef public str _level
    cdef public bint _console

    @cython.locals(call=CallRecord, wanted=list)
    cpdef add(self, calls, bint at_once=*)
    @cython.locals(count=list)
    cdef bint _is_wanted(self, CallRecord call) except -1
