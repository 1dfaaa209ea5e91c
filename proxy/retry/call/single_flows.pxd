from proxy.retry.call.flows cimport SequentialFlow


cdef class PassiveFlow(SequentialFlow):
    pass


cdef class ObservedFlow(PassiveFlow):
    pass
