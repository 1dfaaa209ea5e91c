cimport cython


cdef class ReplayStore:
    cdef public long long per_request
    cdef public long long total
    cdef public long long used
    cdef public long long held


cdef class Replay:
    cdef public ReplayStore _store
    cdef public list _chunks
    cdef public long long _base
    cdef public long long _taken
    cdef public bint _waits
    cdef public bint done
    cdef public long long end
    cdef public bint lost
    cdef public object trailers

    @cython.locals(size=Py_ssize_t, fits=bint)
    cpdef bint append(self, bytes data) except -1
    cdef _charge(self, long long size)
    cpdef wait(self, bint waits)
    cpdef bint has_room_held(self, long long size) except -1
    cpdef bint has_room(self, long long size) except -1
    @cython.locals(skip="long long", size=Py_ssize_t, pieces=list, chunk=bytes)
    cpdef bytes read(self, long long cursor)
    cpdef lose(self)
    @cython.locals(sent=Py_ssize_t, chunk=bytes)
    cpdef forget(self, long long cursor)
