cimport cython


cdef class FieldBlock:
    cdef public bytes raw
    cdef public bytes _lowered

    cpdef bytes text(self)
    @cython.locals(value=bytes, mark=bytes, lowered=bytes, found=list, at=cython.Py_ssize_t)
    cpdef get_all(self, name)
    @cython.locals(mark=bytes, lowered=bytes, raw=bytes, at=cython.Py_ssize_t)
    cpdef bytes get(self, bytes name)
    cpdef list values(self, bytes mark)
    @cython.locals(raw=bytes, lowered=bytes, found=list, end=cython.Py_ssize_t, after=cython.Py_ssize_t)
    cdef list _values(self, bytes mark, Py_ssize_t at)
    cpdef present(self, names)


cdef class Trailers(FieldBlock):
    cpdef without(self, names)
