cdef class _Value:
    pass


cdef class Launch(_Value):
    cdef public bint alone
    cdef public long attempt
    cdef public bint fresh
    cdef public object endpoint
    cdef public object key


cdef class WakeAt(_Value):
    cdef public object at


cdef class Ask(_Value):
    cdef public object price
    cdef public object due


cdef class Peek(_Value):
    cdef public long attempt
    cdef public object limit
    cdef public object body_wait


cdef class Hold(_Value):
    cdef public long attempt


cdef class Discard(_Value):
    cdef public long attempt


cdef class Cancel(_Value):
    cdef public long attempt


cdef class Deliver(_Value):
    cdef public long attempt
    cdef public object outcome


cdef class Answer(_Value):
    cdef public object status
    cdef public object title
    cdef public object detail
    cdef public object outcome
    cdef public object retry_after
    cdef public object error
    cdef public object grpc_status


cdef class FallBack(_Value):
    cdef public object entry


cdef class Finish(_Value):
    cdef public object outcome
