from proxy.retry.value_bases cimport PolicyBase


cdef class Course:
    cdef public object outcome
    cdef public long attempts
    cdef public object history
    cdef public str detail
    cdef public object fallbacks
    cdef public str agent
    cdef public bint app_retry
    cdef public str trace
    cdef public bint was_sent_once
    cdef public object key
    cdef public str key_why


cdef class CallRecord:
    cdef public double wall_started
    cdef public double started
    cdef public double ended
    cdef public PolicyBase policy
    cdef public str app
    cdef public str method
    cdef public str authority
    cdef public str path
    cdef public str client
    cdef public int status
    cdef public Course course
    cdef public long long bytes_in
    cdef public long long bytes_out
    cdef public str endpoint
    cdef public long long number
    cdef public str protocol
    cdef public str sent_by
    cdef public object grpc_status


cdef class Observer:
    cpdef call_ended(self, CallRecord call)
    cpdef app_repeated(self, PolicyBase policy)
