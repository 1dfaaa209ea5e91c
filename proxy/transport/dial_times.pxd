cimport cython

from proxy.transport.clock cimport monotonic


cdef double _NEVER


cdef class DialTimes:
    cdef object _loop
    cdef public dict _due
    cdef object _timer
    cdef double _at

    @cython.locals(due=double)
    cpdef begin(self, dial, double within)
    cpdef bint end(self, dial) except -1
    cdef _set(self, double at)
