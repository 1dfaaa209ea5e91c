from proxy.retry.call.environment cimport Env
from proxy.retry.scopes.scope_state cimport ScopeState


cpdef bint pass_gates(ScopeState scope, app, double now) except -1
cpdef turn_back(ScopeState scope, double now)
cpdef answered(choice, policy, Env env, double sent, double now)
cpdef learn_success(ScopeState scope, double now)
