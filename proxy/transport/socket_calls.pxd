cpdef bint has_said(int descriptor) except -1
cpdef object socket_of(object transport)
cpdef write_at_once(object transport, object socket, bytes data)
cdef int descriptor_of(object transport, object socket) except -2
