# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is
# compiled").

cimport cython

from proxy.retry.capacity.evidence cimport Evidence
from proxy.retry.weather.spacing cimport Spacing
from proxy.retry.weather.trial cimport Trial


cdef double _NEVER


cdef class SinceCut:
    cdef public double fastest
    cdef public double unanswered
    cdef public double doubled_at
    cdef public long latest
    cdef public long sent
    cdef public long served
    cdef public long refused

    cpdef clear(self)


cdef class Limit:
    cdef public Evidence evidence
    cdef public double most
    cdef public bint was_chance
    cdef public bint returns
    cdef public double grown
    cdef public double held_at
    cdef public double round_trip
    cdef public double part
    cdef public Spacing pace
    cdef public bint is_draining
    cdef public double last_ratio
    cdef public double timed_out_at
    cdef public double threshold
    cdef public double begun
    cdef public double _cut_at
    cdef public SinceCut _since_cut
    cdef public object _answers
    cdef public double _spaced
    cdef public double _quick_at
    cdef public double _ended_at
    cdef public double _unbound
    cdef public double given_up_until
    cdef public double _given_up_for
    cdef public double _base
    cdef public double _slow
    cdef public double _slow_most
    cdef public double _slow_since
    cdef public Trial _trial
    cdef public object all_refused

    cpdef double slowness(self, double now) except -1
    cpdef return_slowly(self, double now, bint cooldown=*, double slowness=*)
    cpdef refused(self, double sent, double now, long under_way, bint quick, bint silent=*)
    cpdef begin_at_half(self, long under_way, double now)
    cpdef asked_to_wait(self, double sent, double now, bint quick)
    cpdef _slow_down(self, double sent, double now, bint quick, bint delays=*)
    cpdef _space(self)
    cpdef _respace(self, double now, double ratio)
    cpdef _space_more(self, double by, double now)
    cpdef _space_less(self, double pace)
    cpdef bint _times_out(self, double now) except -1
    cpdef double _slowest(self) except -1
    cpdef double _level(self) except -1
    @cython.locals(since=SinceCut)
    cpdef grow_unanswered(self, double usual, double oldest, double now)
    cpdef double doubles_at(self, double now) except? -1
    cpdef double _growth(self, double now) except -1
    cpdef drain(self, long waiting, double now, double pace=*)
    cpdef held(self, double since, double now)
    cpdef halve(self, double now)
    cpdef double _least(self) except -1
    cpdef begin_elsewhere(self, double most, double threshold, double now)
    cpdef end(self, double now)
    cpdef bint is_over(self, long in_use, double now) except -1
    cpdef add_under_way(self, long more)
    cpdef _begin(self, double most, double threshold, double now)
    cpdef _cut(self, double now)
    cpdef sent(self, double now)
    cpdef served(self, double sent, double now, double ratio)
    cpdef bint _is_slow(self, double fastest, double now) except -1
    cpdef bint _answers_fast(self) except -1
    cpdef bint judge(self, double now) except -1
    cpdef _give_up(self, double share, double now)
    cpdef set(self, double most, double threshold)
    cpdef double wait_for(self, long ahead, double now, double share=*) except -1
