cimport cython

from proxy.wire.http1.gather cimport gathered


cdef class LengthBody:
    cdef public long long remaining

    cpdef tuple feed(self, bytes data, Py_ssize_t at=*)


cdef class UntilCloseBody:
    cpdef tuple feed(self, bytes data, Py_ssize_t at=*)


cdef class ChunkedBody:
    cdef public int _state
    cdef public long long _left
    cdef public long long _plain
    cdef public bytearray _held
    cdef public Py_ssize_t _checked
    cdef public Py_ssize_t _extensions
    cdef public long long owed
    cdef public bint passes
    cdef public bytes payload
    cdef public bint reads
    cdef public bint _passing
    cdef public bytes trailers

    @cython.locals(spans=list, size=Py_ssize_t, step="long long", state=int)
    cpdef tuple feed(self, bytes data, Py_ssize_t at=*)
    @cython.locals(parts=list, read=list, at=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t, begun=Py_ssize_t, step="long long", payload="long long", state=int)
    cpdef tuple pass_on(self, bytes data)
    @cython.locals(at=Py_ssize_t, most=Py_ssize_t, begin=Py_ssize_t, end="long long", payload=Py_ssize_t)
    cpdef Py_ssize_t plain_chunks(self, bytes data) except -1
    cdef Py_ssize_t _begin_passing(self, bytes data, list parts) except -1
    @cython.locals(end=Py_ssize_t)
    cdef Py_ssize_t _plain_size_line(self, bytes data, Py_ssize_t at) except -1
    @cython.locals(size="long long", end=Py_ssize_t, last=Py_ssize_t, octet=int)
    cdef Py_ssize_t _plain_size(self, bytes data, Py_ssize_t at) except -1
    @cython.locals(most=Py_ssize_t, begin=Py_ssize_t, end="long long")
    cdef Py_ssize_t _whole_chunks(self, bytes data, Py_ssize_t at, list spans) except -1
    @cython.locals(end=Py_ssize_t)
    cdef Py_ssize_t _line_end(self, bytes data, Py_ssize_t at) except -1
