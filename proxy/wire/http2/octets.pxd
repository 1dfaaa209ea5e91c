cdef class FrameHeader:
    cpdef bytes pack(self, int high, int low, int kind, int flags, long long stream)
    cpdef (int, int, int, int, long long) unpack_from(self, bytes data, Py_ssize_t at) except *


cdef class Slicer:
    cpdef bytes cut(self, bytes data, Py_ssize_t start, Py_ssize_t end)
