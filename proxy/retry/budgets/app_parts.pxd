cimport cython

cdef double _ROUNDING


cdef class AppParts:
    cdef public double capacity
    cdef public list sizes
    cdef public dict _indices
    cdef public list _spent
    cdef public list _lent
    cdef public list _seen

    cpdef came(self, Py_ssize_t index, double now)
    cpdef double seen(self, Py_ssize_t index) except? -1
    @cython.locals(size=double, spent=double, lent=double)
    cpdef double own(self, Py_ssize_t index) except? -1
    cpdef bint affords(self, Py_ssize_t index, bint low, double price, double level, double now) except -1
    @cython.locals(beyond=double)
    cpdef double available(self, Py_ssize_t index, bint low, double level, double now) except? -1
    @cython.locals(left=double, own=double, beyond=double)
    cpdef took(self, Py_ssize_t index, double price, double level, double now)
    @cython.locals(own=double, spent=double)
    cpdef earned(self, Py_ssize_t index, double tokens, double level)
    @cython.locals(own=double, left=double, owed=double)
    cpdef _pay_back(self, Py_ssize_t index, double tokens)
    @cython.locals(left=double)
    cpdef refilled(self, double before, double level)
    @cython.locals(index=Py_ssize_t)
    cpdef _fill(self)
    @cython.locals(unreserved=double, index=Py_ssize_t)
    cpdef double _unreserved(self, double level) except? -1
    cpdef list _loans(self, Py_ssize_t index, double now)
