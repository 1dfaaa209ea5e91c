cimport cython

from proxy.transport.connection cimport Connection
from proxy.transport.dial_times cimport DialTimes
from proxy.transport.origins cimport Origin
from proxy.transport.pool cimport Pool


cdef class DirectDial:
    cdef public Pool pool
    cdef public Origin origin
    cdef public long _cancels
    cdef public object _waits
    cdef public Connection _connection
    cdef public object _connecting
    cdef public tuple _peer

    @cython.locals(pool=Pool, origin=Origin, connection=Connection, times=DialTimes)
    cpdef bint begin(self, double within) except -1
    cpdef opened(self, connection)
    cpdef failed(self, error)
    cdef _wait(self, future)
    @cython.locals(pool=Pool, times=DialTimes)
    cpdef _end(self, error)
