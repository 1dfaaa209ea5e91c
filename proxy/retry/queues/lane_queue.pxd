cimport cython

from proxy.retry.queues.queue_walk cimport QueueWalks


cdef class LaneQueue:
    cdef public dict calls
    cdef public object order
    cdef public set returned
    cdef QueueWalks _walks

    cpdef first(self)
    cpdef join(self, waiter, double now)
    cpdef arrange(self, bint keep_first, double now, wait_of)
    @cython.locals(back=dict)
    cpdef put_first(self, calls, double now)
    cpdef asks(self, waiter)
    cpdef double admit(self, waiter) except? -1
    cpdef leave(self, waiter)
    cpdef list take_all(self)
    cpdef long ahead_of(self, waiter) except -1
    cpdef double turn_of(self, waiter, double start, double gap, double patience) except? -1
