from proxy.wire.http2.outbox cimport Outbox


cdef class GracefulShutdown:
    cdef Outbox _outbox
    cdef public double due
    cdef public bint named

    cpdef begin(self, double now)
    cpdef bint is_answered(self, bytes payload) except -1
    cpdef name_last(self, long long number)
