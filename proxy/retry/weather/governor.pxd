# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is
# compiled").

cimport cython

from proxy.retry.weather.caller cimport Caller
from proxy.retry.weather.ending cimport AttemptEnding
from proxy.retry.facts cimport Request
from proxy.retry.weather.lane cimport Lane
from proxy.retry.weather.lanes cimport Lanes, may_hold
from proxy.retry.weather.limit cimport Limit
from proxy.retry.weather.losses cimport Losses, was_never_there
from proxy.retry.weather.route_names cimport RouteNames, names_of
from proxy.retry.capacity.traffic cimport Traffic
from proxy.retry.weather.usual_times cimport UsualTimes


cdef double _NEVER
cdef long long _KNOWN


cdef class Governor:
    cdef public Lanes lanes
    cdef public Losses losses
    cdef public Lane first
    cdef public Traffic traffic
    cdef public UsualTimes usual
    cdef public bint holds_none
    cdef public object ahead
    cdef public object patience
    cdef public dict _in

    cpdef bint holds(self, double now) except -1
    @cython.locals(base=Lane)
    cpdef answered_well(self, attempt, Caller caller, double sent, double now)
    @cython.locals(base=Lane)
    cpdef bint answered_freely(self, RouteNames names, str endpoint, double sent, double now) except -1
    cpdef answered_undecided(self, str route, Request request, fields, double sent, double now)
    @cython.locals(usual=UsualTimes)
    cpdef _note_time(self, str route, double sent, double now, Traffic traffic)
    cpdef freed(self, attempt, double sent, double now, bint waits)
    cpdef dropped(self, attempt, double sent, double now)
    @cython.locals(base=Lane, lanes=Lanes, limit=Limit, is_simple=bint, several=bint, usual=double, ratio=double)
    cpdef bint failed_freely(self, attempt, RouteNames names, AttemptEnding ending, double sent, double now) except -1
    @cython.locals(lanes=Lanes, losses=Losses, names=RouteNames, base=Lane, lane=Lane, cooling=Lane, lost=str, in_outage=bint, is_plain=bint)
    cpdef failed(self, attempt, Caller caller, AttemptEnding ending, double sent, double now, bint again, bint cools)
    @cython.locals(usual=double, ratio=double, base=Lane, lane=Lane, looks=bint, learns=bint)
    cpdef _landed(self, attempt, Caller caller, double sent, double now, bint well)
    @cython.locals(limit=Limit, flying=long, usual=double, is_limited=bint, is_quick=bint)
    cdef _refused(self, object attempt, RouteNames names, Lane lane, AttemptEnding ending, double sent, double now, Lane cooling)
    @cython.locals(lane=Lane)
    cpdef bint is_probe(self, attempt) except -1
