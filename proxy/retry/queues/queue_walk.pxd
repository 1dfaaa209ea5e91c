# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").


cdef class QueueWalk:
    cdef public double start
    cdef public double gap
    cdef public double patience
    cdef dict _queue
    cdef long _size
    cdef list _calls
    cdef long _at
    cdef double _turn
    cdef dict _turns

    cpdef bint is_of(self, dict queue, double start, double gap, double patience) except -1
    cpdef double turn_of(self, waiter) except? -1
    cpdef joined(self, waiter)
    cpdef bint left(self, waiter) except -1


cdef class QueueWalks:
    cdef QueueWalk _numbers
    cdef QueueWalk _turns

    cpdef long number_of(self, waiter, dict queue) except -1
    cpdef double turn_of(self, waiter, dict queue, double start, double gap, double patience) except? -1
    cpdef joined(self, waiter)
    cpdef left(self, waiter)
    cpdef end(self)
