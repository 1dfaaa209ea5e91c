cdef class Observers:
    cdef public object metrics
    cdef public object recent
    cdef public object log
    cdef public object _later
    cdef public object _tell
    cdef public object _told
    cdef public bint _set
    cdef public list _gathered

    cpdef call_ended(self, call)
    cpdef catch_up(self)
