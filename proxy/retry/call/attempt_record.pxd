cdef class AttemptRecord:
    cdef public long attempt
    cdef public double started
    cdef public object ended
    cdef public object status
    cdef public object grpc_status
    cdef public object fault
    cdef public object detail
    cdef public object cls
    cdef public object because
    cdef public object decision
    cdef public object why
    cdef public object delay
    cdef public object pushback
    cdef public object pushback_delay
    cdef public object price
    cdef public double held
    cdef public object held_by
    cdef public object endpoint
    cdef public object rst_code
    cdef public object protocol
    cdef public object upstream
    cdef public object route
    cdef public object first_byte
    cdef public object key
    cdef public object key_why
    cdef public bint aside
    cdef public object range
    cdef public object error

    cpdef record_fault(self, fault)
