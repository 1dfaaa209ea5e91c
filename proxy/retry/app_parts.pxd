cdef class AppParts:
    cdef public object capacity
    cdef public list sizes
    cdef public dict _indices
    cdef public list _spent
    cdef public list _lent
    cdef public list _seen

    cpdef came(self, Py_ssize_t index, double now)
    cpdef own(self, Py_ssize_t index)
    cpdef earned(self, Py_ssize_t index, tokens, level)
    cpdef refilled(self, before, level)
    cpdef _fill(self, level)
    cpdef _unreserved(self, level)
    cpdef list _loans(self, Py_ssize_t index, double now)
