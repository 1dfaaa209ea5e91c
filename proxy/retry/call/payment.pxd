cimport cython

from proxy.retry.budgets.buckets cimport Bucket
from proxy.retry.queues.waiting_room cimport WaitingRoom


cdef class Owed:
    cdef public double price
    cdef public double limit
    cdef public bint asked


cdef class Payment:
    cdef public Bucket bucket
    cdef public WaitingRoom room
    cdef public str upstream
    cdef public object price
    cdef public Owed owed
    cdef public object choice
    cdef public double _taken_at
    cdef public tuple _hedge
    cdef public object _load
    cdef public tuple _tokens
    cdef public object _free
    cdef public object estimate
    cdef public object refunded
    cdef public object _under_way
    cdef public str _place
    cdef public object app
    cdef public object waiter

    cdef begin(self, Bucket bucket, WaitingRoom room, str upstream, app)
    cpdef bint wait(self, str place, waiter=*) except -1
    cpdef leave_room(self)
    cpdef bint take(self, price, double now) except -1
    cpdef bint owe(self, price, double limit, double now) except -1
    cpdef has_place(self, places)
    cpdef land(self, double now)
    cpdef forgo_choice(self, double now)
    cpdef give_back(self, double now)
    cpdef leave_gates(self, double now)


@cython.locals(payment=Payment)
cpdef pay_for(Bucket bucket, WaitingRoom room, str upstream, app, price, double due, double now)
