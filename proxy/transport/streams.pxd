from proxy.wire.http1.response cimport ResponseHead as Answer


cdef class Listener:
    cpdef on_head(self, Answer head, bytes data, bint end, trailers)
    cpdef bint on_whole(self, Answer head, bytes data, trailers) except -1
    cpdef on_data(self, bytes data)
    cpdef on_chunks(self, bytes chunks, Py_ssize_t size, long long owed, bytes payload)
    cpdef on_end(self, trailers)
