from proxy.retry.buckets cimport Bucket
from proxy.retry.facts cimport Request
from proxy.retry.governor cimport Governor


cdef class ScopeState:
    cdef public str value
    cdef public str mode
    cdef public Bucket bucket
    cdef public tuple rates
    cdef public object outputs
    cdef public object pacing
    cdef public Governor governor
    cdef public object seen
    cdef public object hedges
    cdef public object places
    cdef public object endpoints
    cdef public object keys
    cdef public object who
    cdef public Bucket _shadow
    cdef public object _policy
    cdef public object _authority
    cdef public long long _epoch
    cdef public object rate
    cdef public object limiter
    cdef public bint ungated
    cdef public bint marked

    cdef found_by(self, policy, authority, long long epoch)
    cdef bint is_of(self, policy, Request request, long long epoch) except -1
    cpdef bint admits(self, double now) except -1
    cpdef Bucket used_bucket(self, app)
    cpdef caller(self, Request request)
