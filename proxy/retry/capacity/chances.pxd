cimport cython


@cython.locals(below=double, k=cython.long)
cpdef double tail(long count, long least, double share) except -1
