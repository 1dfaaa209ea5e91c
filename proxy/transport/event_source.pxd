cdef int EVENTS


cdef class EventSource:
    cdef public int events
    cdef public Py_ssize_t place
    cdef public object reads

    cpdef another_body(self)
    cpdef bint another_event(self) except -1
    cpdef bint take_event(self, bytes data) except -1
