# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cdef double _NEVER


cdef class Spacing:
    cdef public double rate
    cdef public double next_at
    cdef public double _base
    cdef public double _cut_at
    cdef public double _top
    cdef public double _proven
    cdef public long _early
    cdef public double _sure
    cdef public double _stays
    cdef public double _used
    cdef public double _gap
    cdef public long _careful
    cdef public double _pressed_since
    cdef public long sendings
    cdef public bint is_guess
    cdef public double _steady_until
    cdef public double _came
    cdef public double _counted_from
    cdef public double _counted_at
    cdef public long _waiting

    cpdef bint holds(self, double now) except -1
    cpdef end(self)
    cpdef cut(self, double pace, long served, double now, bint delays=*)
    cpdef settle(self, double pace, double now)
    cpdef resume(self, double now)
    cpdef explore(self, double pace)
    cpdef slow_down(self, double to)
    cpdef change(self, double to)
    cpdef drain(self, double at)
    cpdef _begin(self, double base, double stays, double slowest=*)
    cpdef sent(self, double now, long waiting)
    cpdef not_sent(self)
    cpdef _count(self, long waiting, double now)
    cpdef bint _is_enough(self, long waiting) except -1
    cpdef _grow(self, double seconds)
