cimport cython

from proxy.retry.facts cimport Request
from proxy.retry.scopes.scope_state cimport ScopeState
from proxy.retry.value_bases cimport PolicyBase


cdef class Registry:
    cdef public object _breakers
    cdef public object _buckets
    cdef public dict _by_policy
    cdef public object _defined
    cdef public long long epoch
    cdef public object _factory
    cdef public object _groups
    cdef public object _hedges
    cdef public bint _holds_none
    cdef public object _limiters
    cdef public object _loads
    cdef public dict last_used
    cdef public dict _token_sizes
    cdef public object _outdated
    cdef public object _places
    cdef public object _rates
    cdef public object _renewed
    cdef public object _rosters
    cdef public object _under_way
    cdef public object weather_changed

    @cython.locals(states=dict, state=ScopeState)
    cpdef ScopeState scope(self, PolicyBase policy, Request request, double now=*)
