# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cimport cython

from proxy.retry.caller cimport Caller
from proxy.retry.ending cimport AttemptEnding
from proxy.retry.evidence cimport Evidence
from proxy.retry.facts cimport Request
from proxy.retry.lane cimport Lane
from proxy.retry.lost_paths cimport LostPath, LostPaths
from proxy.retry.outage cimport Outage, is_row
from proxy.retry.route_names cimport RouteNames, names_of
from proxy.retry.traffic cimport Traffic
from proxy.retry.usual_times cimport UsualTimes
from proxy.retry.weather_changes cimport WeatherWatch


cdef double _NEVER


cdef class Governor:
    cdef public double quiet_from
    cdef public bint holds_none
    cdef public object ahead
    cdef public object fleet
    cdef public UsualTimes usual
    cdef public object patience
    cdef public Traffic traffic
    cdef public dict _traffics
    cdef public Lane first
    cdef public dict _lanes
    cdef public long _credentials
    cdef public LostPaths _lost_paths
    cdef public long _paths
    cdef public object _ends
    cdef public set _holding
    cdef public double _latest
    cdef public dict _in
    cdef public WeatherWatch watch
    cdef public long suspects

    cpdef bint holds(self, double now) except -1
    cpdef Lane lane(self, str endpoint)
    cpdef Traffic traffic_of(self, str endpoint)
    @cython.locals(base=Lane)
    cpdef answered_well(self, attempt, Caller caller, double sent, double now)
    @cython.locals(base=Lane)
    cpdef answered_freely(self, RouteNames names, str endpoint, double sent, double now)
    cpdef answered_undecided(self, str route, Request request, fields, double sent, double now)
    @cython.locals(usual=UsualTimes)
    cpdef _note_time(self, str route, double sent, double now, Traffic traffic)
    cpdef freed(self, attempt, double sent, double now)
    cpdef dropped(self, attempt, double sent, double now)
    @cython.locals(base=Lane, lost=str, has_place=bint, in_outage=bint)
    cpdef failed(self, attempt, Caller caller, AttemptEnding ending, double sent, double now, bint again, bint cools)
    @cython.locals(usual=double, ratio=double, base=Lane, lane=Lane, looks=bint, learns=bint)
    cpdef _landed(self, attempt, Caller caller, double sent, double now, bint well)
    @cython.locals(outage=Outage, was_suspected=bint, holds=bint)
    cpdef _answered(self, RouteNames names, Lane base, double now, bint own)
    @cython.locals(lane=Lane, of_path=Lane, each=Lane)
    cpdef _own_answered(self, RouteNames names, str endpoint, double now)
    @cython.locals(names=RouteNames, lane=Lane, outage=Outage, evidence=Evidence, row=LostPath, of_path=long, was_suspected=bint, held=bint, began=bint, share=double)
    cpdef _route_lost(self, Caller caller, AttemptEnding ending, double now, Lane base)
    @cython.locals(lane=Lane, usual=double, held=bint, began=bint, is_quick=bint)
    cpdef _refused(self, object attempt, Caller caller, Lane base, AttemptEnding ending, double sent, double now, bint cools)
    @cython.locals(outage=Outage)
    cpdef _lost(self, Caller caller, AttemptEnding ending, double now, Lane base, bint again)
    @cython.locals(lane=Lane)
    cpdef bint probe_lost(self, attempt, Lane base, double now) except -1
    @cython.locals(lane=Lane)
    cpdef bint is_probe(self, attempt) except -1
    cpdef list _lanes_of(self, Caller caller)
    cpdef _refresh(self, Caller caller, double now)
    @cython.locals(names=RouteNames)
    cpdef list _names_of(self, Caller caller)
    @cython.locals(lane=Lane)
    cpdef Lane lane_of(self, tuple name)
    cpdef Lane _find(self, tuple name)
    cpdef Lane _keep(self, tuple name, Lane lane)
    cpdef Lane _make(self, tuple name)
    cpdef bint _tells_credentials_apart(self) except -1
    cpdef bint _tells_paths_apart(self) except -1
    @cython.locals(lane=Lane, holding=set, watch=WeatherWatch)
    cpdef _look(self, changed, double now)
    cpdef _watch(self)


cdef bint _may_hold(Lane lane, double now) except -1
cdef bint _is_out(Lane lane) except -1
@cython.locals(outage=Outage)
cdef bint _has_lost(Governor governor, Lane base) except -1
@cython.locals(endpoint=str, names=RouteNames)
cdef bint _is_lost(Governor governor, Caller caller, Lane base) except -1
cdef bint _was_never_there(Lane lane, double now) except -1
cdef str _path_at(str endpoint, RouteNames names)
