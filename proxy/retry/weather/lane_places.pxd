cdef class LanePlaces:
    cdef public dict taken
    cdef public long before

    cpdef long in_use(self) except -1
    cpdef long own_in_use(self) except -1
    cpdef occupy(self, holder, double now)
    cpdef vacate(self, holder)
    cpdef bint sent(self, waiter, attempt) except -1
    cpdef limit_began(self, long flying)
    cpdef free_before(self)
    cpdef expire(self, double begun, double longest, double now)
    cpdef double oldest(self, double begun, double until) except? -1
    cpdef forget(self)
