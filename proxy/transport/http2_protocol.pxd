cimport cython

from proxy.transport.clock cimport monotonic
from proxy.transport.flusher cimport Flusher
from proxy.wire.http2.outbox cimport Outbox
from proxy.wire.http2.session cimport Session
from proxy.wire.http2.stream cimport SessionOwner


cdef class Http2Protocol(SessionOwner):
    cdef public Session session
    cdef public object transport
    cdef Flusher _flusher
    cdef object _loop
    cdef double _came, _looked, _rests_until
    cdef int _idle_turns

    @cython.locals(begun=double, took=double, session=Session, flusher=Flusher)
    cpdef _read(self, bytes data, double begun)
    @cython.locals(outbox=Outbox)
    cpdef flush(self)
    cpdef send_soon(self)
