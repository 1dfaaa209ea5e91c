cdef class AppRepeats:
    cdef public dict _given_up
