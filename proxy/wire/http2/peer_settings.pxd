cdef class PeerSettings:
    cdef long long _most
    cdef public bint came
    cdef public long long frame_limit, streams, window

    cpdef read(self, bytes payload, bint client)
