# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

from proxy.retry.caller cimport Caller
from proxy.retry.facts cimport Request
from proxy.retry.lane cimport Lane
from proxy.retry.traffic cimport Traffic
from proxy.retry.usual_times cimport UsualTimes


cdef class Governor:
    cdef public double quiet_from
    cdef public bint holds_none
    cdef public object fleet
    cdef public UsualTimes usual
    cdef public object patience
    cdef public Traffic traffic
    cdef public dict _traffics
    cdef public Lane first
    cdef public object _lanes
    cdef public object _ends
    cdef public set _holding
    cdef public double _latest
    cdef public dict _in
    cdef public object watch
    cdef public long suspects

    cpdef bint holds(self, double now) except -1
    cpdef Lane lane(self, str endpoint)
    cpdef Traffic traffic_of(self, str endpoint)
    cpdef answered_well(self, attempt, Caller caller, double sent, double now)
    cpdef answered_undecided(self, str route, Request request, fields, double sent, double now)
    cpdef _note_time(self, str route, double sent, double now)
    cpdef freed(self, attempt, double sent, double now)
    cpdef dropped(self, attempt, double sent, double now)
    cpdef bint _is_lost(self, Caller caller) except -1
    cpdef bint probe_lost(self, attempt, double now) except -1
    cpdef bint is_probe(self, attempt) except -1
    cpdef list _lanes_of(self, Caller caller)
    cpdef _refresh(self, Caller caller, double now)
    cpdef list _names_of(self, Caller caller)
    cpdef Lane _lane(self, tuple name)
    cpdef Lane _find(self, tuple name)
    cpdef Lane _keep(self, tuple name, Lane lane)
    cpdef Lane _make(self, tuple name)
    cpdef _look(self, changed, double now)
    cpdef _watch(self)
