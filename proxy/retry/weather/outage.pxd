# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is
# compiled").

cimport cython

from proxy.retry.weather.lost_rows cimport LostRow


cdef double _NEVER
cdef long _IN_A_ROW
cdef double _OVER


cdef class Outage:
    cdef public double since
    cdef public double answered_at
    cdef public bint in_vain
    cdef public object probe
    cdef public double long_at
    cdef public tuple late
    cdef public double probe_at
    cdef public double _gap
    cdef public double _probed_at
    cdef public list endings
    cdef public bint begins_again
    cdef public double _tried_at
    cdef public double _since
    cdef public long _turned
    cdef public double _turned_at

    @cython.locals(begins=bint, count=long)
    cpdef bint lost(self, double now, double share, LostRow row, bint again=*, long of_path=*) except -1
    cpdef bint is_known(self, double now) except -1
    cpdef forget(self)
    cpdef begin(self, double now, LostRow row, double answered_at)
    cpdef probe_ended(self, double now, bint lost)
    @cython.locals(was_on=bint)
    cpdef bint answered(self, double now) except -1
    cpdef bint is_due(self, double now) except -1
    cpdef probes(self, probe)
    cpdef stays_late(self, probe)
    cpdef bint is_probe(self, attempt) except -1
    cpdef sent(self, waiter, attempt)
    cpdef bint ended(self, attempt, double now, bint lost) except -1
    cpdef expect_late(self, double now)
    cpdef held_in_vain(self)
    cpdef probe_soon(self, double now)
    cpdef keep_apart(self, Outage other, long out)
    cpdef goes_on(self, double since, double probed_at, double now)
    cpdef bint is_late(self, double now, double hold) except -1
    cpdef bint turns_away(self, double now) except -1


cpdef bint is_row(long attempts, double seconds, double share) except -1
