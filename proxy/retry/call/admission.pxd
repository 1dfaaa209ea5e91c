from proxy.retry.weather.caller cimport Caller
from proxy.retry.scopes.scope_state cimport ScopeState
from proxy.retry.value_bases cimport PolicyBase


cdef class Admission:
    cdef public PolicyBase policy
    cdef public ScopeState scope
    cdef public object alarm
    cdef public Caller caller
    cdef public object _late
    cdef public object endpoints
    cdef public object held_by
    cdef public double held
    cdef public long held_attempt
    cdef public bint cooled
    cdef public tuple cooling
    cdef public bint found_no_place
    cdef public object estimate
    cdef public object _deadline
    cdef public object _held_since
    cdef public object _met_before
    cdef public tuple _own_delays
    cdef public object _cooled_since
    cdef public double _cooled_before
    cdef public double _patience

    cpdef hold(self, gate, double now)
    cpdef sent(self, flight, long attempt, double now)
    cpdef leave(self, double now)
    cdef _leave_lines(self, double now)
