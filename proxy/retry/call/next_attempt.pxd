cimport cython

from proxy.retry.call.admission cimport Admission
from proxy.retry.call.payment cimport Payment, pay_for
from proxy.retry.budgets.buckets cimport Bucket
from proxy.retry.weather.caller cimport Caller
from proxy.retry.call.environment cimport Env
from proxy.retry.facts cimport Failure, Request
from proxy.retry.weather.route_names cimport RouteNames, names_of
from proxy.retry.scopes.scope_state cimport ScopeState
from proxy.retry.call.states cimport Flight, Next
from proxy.retry.value_bases cimport PolicyBase, PushbackPolicyBase


cdef double EPSILON


cdef class NextAttempt:
    cdef public Request request
    cdef public PolicyBase policy
    cdef public ScopeState scope
    cdef public Env env
    cdef public object alarm
    cdef public bint cools
    cdef public bint governs
    cdef public double held_before
    cdef public Caller _caller
    cdef public object estimate
    cdef public object paid
    cdef public object app_paid
    cdef public Bucket bucket
    cdef public object keys
    cdef public object picker
    cdef public Payment payment
    cdef public Admission admission

    cdef begin(self, Request request, PolicyBase policy, ScopeState scope, Env env, alarm)
    cpdef Payment payable(self)
    cpdef Payment _new_payment(self)
    cpdef Admission gates(self)
    @cython.locals(request=Request, policy=PolicyBase, caller=Caller)
    cpdef Caller caller(self)
    @cython.locals(policy=PolicyBase)
    cpdef RouteNames plain_names(self)
    @cython.locals(rules=PushbackPolicyBase)
    cdef bint _may_wait_ahead(self) except -1
    @cython.locals(caller=Caller)
    cpdef forget_gates(self)
    cpdef bint another_at_once(self, Failure failure, double now) except -1
    cpdef str endpoint_of(self, Flight flight)
    cpdef double replace_lost_key(self, double now) except? -1
    cpdef bint choose(self, state, double now, only=*) except -1
    cpdef pay_for(self, Next planned, double now)
    @cython.locals(payment=Payment, flight=Flight, admission=Admission)
    cpdef Flight take(self, long attempt, state, double now)
    cpdef give_back(self, double now)
    cpdef finish(self, double now)
    cpdef freed(self, Flight flight, double now, bint waits)
    cpdef dropped(self, Flight flight, double now)
