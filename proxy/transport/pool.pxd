cimport cython

from proxy.transport.clock cimport monotonic
from proxy.transport.connection cimport Connection, Keeper
from proxy.transport.origins cimport Origin


cdef double FRESH_ENOUGH


cdef class Pool(Keeper):
    cdef public object _loop
    cdef public object dialer
    cdef public double idle
    cdef public object max_idle
    cdef public dict _origins
    cdef public dict _fixed
    cdef public dict _asked_for
    cdef public long long generation
    cdef public object _reaches
    cdef public object renewal
    cdef public set _resting
    cdef public object _timer
    cdef public set connections
    cdef public object flusher
    cdef public object http2_errors
    cdef public object http2_limits
    cdef public object http2_idle
    cdef public object most
    cdef public Py_ssize_t _dialling
    cdef public object _emptied

    cpdef bint conforms(self, connection) except -1
    @cython.locals(resting=Connection, rested=double)
    cpdef lease(self, Origin origin, double now, bint idempotent, not_on=*, bint queued=*)
    cpdef rest(self, Connection connection)
    cpdef bint begin_dial(self, Origin origin) except -1
    cpdef end_dial(self, Origin origin, bint reached, bint timed_out)
