cimport cython

from proxy.retry.budgets.buckets cimport Bucket
from proxy.retry.facts cimport Request
from proxy.retry.weather.governor cimport Governor
from proxy.retry.value_bases cimport NamedAppBase


cdef class UsedBucket:
    cdef public NamedAppBase app
    cdef public Bucket bucket


cdef class ScopeState:
    cdef public str value
    cdef public int mode
    cdef public Bucket bucket
    cdef public tuple rates
    cdef public object token_sizes
    cdef public object pacing
    cdef public Governor governor
    cdef public object seen
    cdef public object hedges
    cdef public object places
    cdef public object endpoints
    cdef public object keys
    cdef public object who
    cdef public Bucket _shadow
    cdef public UsedBucket used
    cdef public long long epoch
    cdef public object rate
    cdef public object limiter
    cdef public bint ungated
    cdef public bint marked

    cpdef bint admits(self, double now) except -1
    @cython.locals(bucket=Bucket, used=UsedBucket)
    cpdef Bucket used_bucket(self, NamedAppBase app)
    cpdef caller(self, Request request)
