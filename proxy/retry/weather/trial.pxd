# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cdef class Cohort:
    cdef public long ended
    cdef public long under_way
    cdef public long refused
    cdef public long quick
    cdef public long silent
    cdef public long _timed
    cdef public double _logs

    cpdef count(self, double ratio, bint refused, bint silent=*)
    cpdef clear(self)


cdef class Trial:
    cdef public bint is_on
    cdef public Cohort first
    cdef public Cohort second
    cdef public double _since
    cdef public bint _by_silence
    cdef public bint _is_first
    cdef public double pace
    cdef public double _seen
    cdef public double _share
    cdef public double _slowness

    cpdef sent(self)
    cpdef count(self, double ratio, double sent, double begun, bint refused, bint silent=*, bint late=*)
    cpdef begin(self, double pace, double seen, double now, bint silent=*)
    cpdef restart(self, double now)
    cpdef end(self)
    cpdef double chance(self, double now, bint several=*) except -1
    cpdef bint _is_chance(self, double share, double pace) except -1
