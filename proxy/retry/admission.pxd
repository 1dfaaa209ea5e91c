from proxy.retry.buckets cimport Bucket
from proxy.retry.caller cimport Caller
from proxy.retry.scope_state cimport ScopeState
from proxy.retry.value_bases cimport PolicyBase
from proxy.retry.waiting_room cimport WaitingRoom


cdef class Admission


cdef class Owed:
    cdef public double price
    cdef public double limit
    cdef public bint asked


cdef class Payment:
    cdef public Bucket bucket
    cdef public WaitingRoom room
    cdef public object upstream
    cdef public object price
    cdef public Owed owed
    cdef public object choice
    cdef public double _taken_at
    cdef public tuple _hedge
    cdef public object _load
    cdef public tuple _tokens
    cdef public object estimate
    cdef public object _under_way
    cdef public object _place
    cdef public object app
    cdef public Admission waiter

    cpdef bint wait(self, place, Admission waiter=*) except -1
    cpdef leave_room(self)
    cpdef bint take(self, price, double now) except -1
    cpdef bint owe(self, price, double limit, double now) except -1
    cpdef has_place(self, places)
    cpdef land(self, double now)
    cpdef forgo_choice(self, double now)
    cpdef give_back(self, double now)
    cpdef leave_gates(self, double now)


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
