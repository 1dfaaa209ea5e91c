from proxy.retry.call.payment cimport Payment
from proxy.retry.facts cimport Reply
from proxy.retry.capacity.traffic cimport Traffic


cdef class Next:
    cdef public double due
    cdef public object price
    cdef public double until
    cdef public bint gated


cdef class Flight:
    cdef public long attempt
    cdef public double since
    cdef public Payment payment
    cdef public Reply reply
    cdef public object endpoint
    cdef public object body_wait
    cdef public object key
    cdef public object key_why
    cdef public str sent_to
    cdef public str protocol
    cdef public str held_by
    cdef public double held
    cdef public bint aside
    cdef public object note
    cdef public bint reported
    cdef public str range
    cdef public Traffic traffic

    cdef begin(self, long attempt, double since, Payment payment)
    cpdef land(self, double now)
    cpdef cancel(self, double now)


cdef class New:
    pass


cdef class Flying:
    cdef public dict flights
    cdef public Next planned




cdef class Delivering:
    cdef public long attempt
    cdef public object outcome


cdef class Done:
    cdef public object outcome
