cdef class AppParts:
    cdef public object capacity
    cdef public list sizes
    cdef public dict _places
    cdef public list _spent
    cdef public list _lent
    cdef public list _seen

    cpdef came(self, Py_ssize_t place, double now)
    cpdef own(self, Py_ssize_t place)
    cpdef earned(self, Py_ssize_t place, tokens, level)
    cpdef refilled(self, before, level)
    cpdef _fill(self, level)
    cpdef _unreserved(self, level)
    cpdef list _loans(self, Py_ssize_t place, double now)
