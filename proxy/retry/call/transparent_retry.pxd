from proxy.retry.call.call_state cimport CallState
from proxy.retry.call.flows cimport SequentialFlow
from proxy.retry.call.states cimport Flight


cdef class TransparentRetry:
    cdef str _state

    cdef bint follows(self, CallState call, SequentialFlow flow, Flight flight, fault, double now) except -1
    cdef bint _is_free(self, CallState call, SequentialFlow flow, fault) except -1
    cdef tuple send(self, CallState call, Flight flight, fault, double now)


cdef bint _is_turned_away(CallState call, Flight flight, fault, double now) except -1
