cimport cython

from proxy.retry.buckets cimport Bucket
from proxy.retry.environment cimport Env
from proxy.retry.scope_state cimport ScopeState
from proxy.retry.traffic cimport Traffic


cpdef bint pass_gates(ScopeState scope, app, double now) except -1
cpdef turn_back(ScopeState scope, double now)
@cython.locals(bucket=Bucket, traffic=Traffic)
cpdef Traffic began(ScopeState scope, app, double now)
cpdef answered(choice, policy, Env env, double sent, double now)
@cython.locals(bucket=Bucket)
cpdef succeeded(ScopeState scope, ScopeState lane, app, double now)
