# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is
# compiled").

cimport cython

from proxy.retry.weather.fleet_part cimport FleetPart
from proxy.retry.weather.lane_places cimport LanePlaces
from proxy.retry.queues.lane_queue cimport LaneQueue
from proxy.retry.weather.limit cimport Limit
from proxy.retry.weather.lost_rows cimport LostRow
from proxy.retry.weather.outage cimport Outage
from proxy.retry.capacity.traffic cimport Traffic


cdef double _NEVER


cdef class Lane:
    cdef public Traffic traffic
    cdef public tuple name
    cdef public double until
    cdef public double delay
    cdef public long status
    cdef public double begun
    cdef public Limit limit
    cdef public Outage outage
    cdef public bint lasts
    cdef public double usual_time
    cdef public FleetPart fleet
    cdef public LaneQueue queue
    cdef public LanePlaces places
    cdef public object due
    cdef public double _well
    cdef public object _starter

    cpdef bint start(self, double delay, long status, double sent, double now) except -1
    cpdef bint _begin(self, long status, double delay, double sent, double now) except -1
    @cython.locals(limit=Limit)
    cpdef bint refused_freely(self, str how, long flying, double now, bint quick=*) except -1
    @cython.locals(limit=Limit, most=double)
    cpdef refused(self, double sent, double now, long flying, bint quick, bint silent=*)
    cpdef asked_to_wait(self, attempt, double sent, double now, bint quick)
    cpdef bint lost(self, double now, double share, LostRow row, bint again=*, long of_path=*) except -1
    cpdef double ask(self, waiter, double now, bint retries=*) except? -1
    cpdef landed(self, attempt, double sent, double now, bint well, double ratio=*, double usual=*)
    cpdef started_elsewhere(self, double delay, long status, double now)
    cpdef change(self, operation, double now)
    cpdef count_before(self)
    cpdef bint claim(self, waiter, double due) except -1
    cpdef bint probe_lost(self, attempt, double now) except -1
    cpdef bint answered(self, double now, double slowness=*) except -1
    cpdef bint is_over(self, double now) except -1
    cpdef str holds(self, double now)
    cpdef bint passes(self, double now) except -1
    cpdef step_aside(self, waiter, double now, bint brief=*)
    cpdef bint _takes_turn(self, waiter, double now) except -1
    cpdef bint has(self, waiter) except -1
    cpdef put_first(self, waiter, double now)
    cpdef bint sent(self, waiter, attempt, double now) except -1
    cpdef free_place(self, attempt, double sent, double now)
    cpdef leave(self, waiter, double now)
    cpdef double wait_of(self, waiter, double now, double hold=*) except -1
    cpdef double free(self, double now) except? -1
    cpdef release(self, double now, asking=*)
    cpdef _release(self, double now, asking)
    cpdef _probe(self, double now, asking)
    cpdef _admit(self, waiter, double now, asking)
    @cython.locals(limit=Limit)
    cpdef _end_limit(self, double now)
    cpdef end_limit(self, double now, double pace=*)
    cpdef double _next(self, double now) except? -1


cdef bint _has_place_now(Lane lane, double now) except -1
