# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cimport cython

from proxy.retry.limit cimport Limit
from proxy.retry.outage cimport Outage
from proxy.retry.queue_walk cimport QueueWalks
from proxy.retry.traffic cimport Traffic


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
    cdef public double share
    cdef public bint elsewhere
    cdef public object fleet
    cdef public double limit_share
    cdef public bint limited_elsewhere
    cdef public bint may_probe
    cdef public dict queue
    cdef public object order
    cdef public object _due
    cdef public dict _taken
    cdef public long _before
    cdef public double _well
    cdef public object _starter
    cdef public QueueWalks _walks

    cpdef bint start(self, double delay, long status, double sent, double now) except -1
    cpdef bint _begin(self, long status, double delay, double sent, double now) except -1
    @cython.locals(limit=Limit, most=double, was_on=bint)
    cpdef bint refused(self, double sent, double now, long flying, bint quick, bint silent=*) except -1
    cpdef asked_to_wait(self, double sent, double now, bint quick)
    cpdef bint lost(self, double now, double share, bint again, long of_path=*) except -1
    cpdef double ask(self, waiter, double now, bint retries=*) except? -1
    cpdef landed(self, attempt, double sent, double now, bint well, double ratio=*, double usual=*)
    cpdef started_elsewhere(self, double delay, long status, double now)
    cpdef allot(self, double places, double share, double threshold, bint elsewhere, double now)
    cpdef go_alone(self, double now)
    cpdef limit_elsewhere(self, double places, double share, double threshold, bint busy, bint holds, double now)
    cpdef outage_elsewhere(self, double since, double probed_at, bint may_probe, double now)
    cpdef go_alone_in_weather(self, double now)
    cpdef _count_before(self)
    cpdef long wanted(self) except -1
    cpdef bint claim(self, waiter, double due) except -1
    cpdef bint probe_lost(self, attempt, double now) except -1
    cpdef held_in_vain(self, double now)
    cpdef bint answered(self, double now) except -1
    cpdef bint is_over(self, double now) except -1
    cpdef str holds(self, double now)
    cpdef bint passes(self, double now) except -1
    cpdef step_aside(self, waiter, double now)
    cpdef bint _takes_turn(self, waiter, double now) except -1
    cpdef bint admits(self, waiter) except -1
    cpdef bint has(self, waiter) except -1
    cpdef put_first(self, waiter, double now)
    cpdef bint sent(self, waiter, attempt, double now) except -1
    cpdef free_place(self, attempt, double sent, double now)
    cpdef _free_before(self)
    cpdef leave(self, waiter, double now)
    cpdef double wait_of(self, waiter, double now, double hold=*) except -1
    cpdef long ahead_of(self, waiter) except -1
    cpdef long in_use(self) except -1
    cpdef long own_in_use(self) except -1
    cpdef double free(self, double now) except? -1
    cpdef release(self, double now, asking=*)
    cpdef _release(self, double now, asking)
    cpdef _probe(self, double now, asking)
    cpdef _admit(self, waiter, double now, asking)
    @cython.locals(limit=Limit)
    cpdef _end_limit(self, double now)
    cpdef end_limit(self, double now)
    cpdef double _next(self, double now) except? -1
    cpdef _expire(self, double now)
    cpdef _occupy(self, holder, double now)
    cpdef _vacate(self, holder)
    cpdef _forget_places(self)


cdef bint _has_place_now(Lane lane, double now) except -1
