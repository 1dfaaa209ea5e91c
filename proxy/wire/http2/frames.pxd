from proxy.wire.http2.octets cimport FrameHeader


cdef FrameHeader HEADER

cpdef flaw(int kind, int flags, long long stream, Py_ssize_t size)
cpdef bytes frame(int kind, int flags, long long stream, bytes payload=*)
cpdef bytes window_update(long long stream, long long increment)
cpdef bytes rst_stream(long long stream, long long code)
cpdef bytes data_header(long long stream, Py_ssize_t size, bint end)
cpdef bytes header_block(long long stream, bytes block, bint end, Py_ssize_t limit)
