from proxy.transport.chunk_writer cimport ChunkWriter
from proxy.wire.http1.response cimport ResponseHead as Answer


cdef class ConnectionStream:
    cdef public bint blocked
    cdef public ChunkWriter chunks
    cdef public double connected
    cdef public bint has_pinned
    cdef public bint watched

    cpdef respond(self, Answer head, frozenset drop, bytes add, bytes data, bint end, trailers)
    cpdef write(self, bytes data)
    cpdef done(self)
