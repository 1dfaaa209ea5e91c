# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is
# compiled").

cimport cython

from proxy.retry.weather.caller cimport Caller
from proxy.retry.weather.ending cimport AttemptEnding
from proxy.retry.capacity.evidence cimport Evidence
from proxy.retry.weather.lane cimport Lane
from proxy.retry.weather.lanes cimport Lanes, may_hold
from proxy.retry.weather.lost_rows cimport LostRow, LostRows
from proxy.retry.weather.outage cimport Outage, is_row
from proxy.retry.weather.route_names cimport RouteNames
from proxy.retry.capacity.traffic cimport Traffic
from proxy.retry.weather.usual_times cimport UsualTimes


cdef double _NEVER


cdef class Losses:
    cdef public Lanes _lanes
    cdef public LostRows _lost
    cdef public UsualTimes _usual

    @cython.locals(lanes=Lanes)
    cpdef bint is_lost(self, RouteNames names, Lane base) except -1
    @cython.locals(lost=LostRows)
    cdef bint _all_answer(self, Lane base) except -1
    @cython.locals(lone=tuple, lost=LostRows, lanes=Lanes, outage=Outage, is_alone=bint)
    cpdef answered_well(self, RouteNames names, Lane base, double sent, double now, bint holds)
    @cython.locals(lanes=Lanes, outage=Outage, lost=LostRows, was_suspected=bint)
    cpdef answered(self, RouteNames names, Lane base, double sent, double now, bint own, bint holds)
    @cython.locals(lone=tuple, lanes=Lanes, lost=LostRows, lane=Lane, was_suspected=bint)
    cdef _own_answered(self, RouteNames names, Lane base, double now)
    @cython.locals(lanes=Lanes, traffic=Traffic, outage=Outage, lost=LostRows)
    cpdef bint lost_alone(self, RouteNames names, AttemptEnding ending, Lane base, double now, bint several) except -1
    cdef bint _count_at_once(self, RouteNames names, str how, double now) except -1
    @cython.locals(lone=tuple)
    cdef _count_lone(self)
    @cython.locals(lanes=Lanes, number=cython.longlong, lane=Lane, outage=Outage, evidence=Evidence, row=LostRow, answered_at=double)
    cpdef lost(self, Caller caller, AttemptEnding ending, double now, Lane base, bint again)
    @cython.locals(lanes=Lanes, lost=LostRows, usual=UsualTimes, lane=Lane, outage=Outage, evidence=Evidence, row=LostRow, of_path=LostRow, on_path=long, held=bint, began=bint, share=double)
    cdef _route_lost(self, RouteNames names, str how, long long number, double now, Lane base)
    cdef _path_lost(self, RouteNames names, LostRow row, double now, Lane base)
    cdef _end_paths(self, RouteNames names, Lane base, double now)
    @cython.locals(found=bint, lane=Lane)
    cpdef bint probe_lost(self, attempt, joined, Lane base, double now) except -1


cpdef bint was_never_there(Lane lane, double now) except -1
cdef bint _is_out(Lane lane) except -1
