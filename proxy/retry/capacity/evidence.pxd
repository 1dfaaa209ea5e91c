# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is
# compiled").

cimport cython

from proxy.retry.capacity.traffic cimport Traffic


cdef double _MINUTE
cdef long LATEST, FEW, _KEPT


cdef class Evidence:
    cdef public object by_chance
    cdef public object least_gap
    cdef public object loads
    cdef public object throughput
    cdef public Traffic traffic
    cdef public tuple found
    cdef public list failures
    cdef public list _numbers
    cdef public list _times
    cdef public long long _refusals
    cdef public long long _noted
    cdef public double _all
    cdef public double _refused
    cdef public double _at
    cdef public long long _upto

    @cython.locals(failures=list)
    cpdef note(self, long long number, str how)
    @cython.locals(numbers=list, times=list, total=cython.longlong, ended=cython.longlong, oldest=cython.longlong, recent=cython.long, number=cython.longlong)
    cpdef bint refused(self, str how, double now, bint counts=*, bint quick=*) except -1
    cpdef bint refused_at_loads(self, long long ended, double now, bint quick=*) except -1
    cpdef double share(self, long refused=*, long ended=*) except -1
    cpdef refused_under_limit(self, double now)
    cpdef skip(self, double now)
    cpdef learn(self, double share, double now)
    @cython.locals(faded=double)
    cpdef _count(self, long long ended, double now, long refused)
