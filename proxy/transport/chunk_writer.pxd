from proxy.transport.socket_calls cimport write_at_once


cpdef write_chunk(transport, bytes data, bytes end=*)
cpdef write_framed(transport, bytes head, bytes data, bint chunked, bint end, trailers)


cdef class ChunkWriter:
    cdef object _transport
    cdef object _socket
    cdef long long _owed
    cdef bytes _last

    cpdef write(self, bytes data)
    cpdef pass_on(self, bytes chunks, long long owed)
    cpdef bint finish(self, bytes trailers) except -1
    cdef bytes _fill(self, bytes data)
