from proxy.wire.http2.peer_limits cimport EndedStreams


cdef long long MOST


cdef class StreamIds:
    cdef public bint client
    cdef public long long highest, next
    cdef public EndedStreams ended

    cpdef bint is_new(self, long long number) except -1
    cpdef check_known(self, number)
