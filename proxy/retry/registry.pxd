cimport cython

from proxy.retry.buckets cimport Bucket
from proxy.retry.facts cimport Request
from proxy.retry.governor cimport Governor
from proxy.retry.traffic cimport Traffic


cdef class ScopeState:
    cdef public str value
    cdef public Bucket bucket
    cdef public tuple rates
    cdef public object outputs
    cdef public object pacing
    cdef public Governor governor
    cdef public Traffic traffic
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
    cpdef began(self, double now)
    cpdef bint answered_well(self, double now) except -1
    cpdef succeeded(self, double now)
    cpdef caller(self, Request request)


cdef class Registry:
    cdef public object _breakers
    cdef public object _buckets
    cdef public dict _by_policy
    cdef public object _definitions
    cdef public long long _epoch
    cdef public object _factory
    cdef public object _groups
    cdef public object _hedges
    cdef public bint _holds_none
    cdef public object _in_force
    cdef public object _limiters
    cdef public object _limits
    cdef public object _loads
    cdef public dict last_used
    cdef public object _named
    cdef public dict _outputs
    cdef public object _outdated
    cdef public object _places
    cdef public object _policies_of
    cdef public object _rates
    cdef public object _renewed
    cdef public object _rosters
    cdef public object _under_way
    cdef public object weather_changed

    @cython.locals(states=dict, state=ScopeState)
    cpdef ScopeState scope(self, policy, Request request, double now=*, ScopeState last=*)
