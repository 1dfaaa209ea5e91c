from proxy.retry.attempt_record cimport AttemptRecord
from proxy.retry.facts cimport Failure, Reply
from proxy.retry.states cimport Flight


cdef class CallHistory:
    cdef public list records
    cdef public str upstream
    cdef public str route

    cpdef AttemptRecord note(self, Flight flight, double now, decision, Failure failure=*, Reply reply=*)
