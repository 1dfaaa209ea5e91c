cimport cython

from proxy.forward.attempt cimport Attempt, AttemptOwner
from proxy.forward.call_report cimport add_success, look_for_repeat, report_of
from proxy.forward.context cimport Context
from proxy.forward.delivery cimport Delivery
from proxy.forward.request_plan cimport Plan
from proxy.observe.call_record cimport CallRecord
from proxy.retry.at_once cimport answered, began, pass_gates, succeeded, turn_back
from proxy.retry.environment cimport Env
from proxy.retry.facts cimport Request
from proxy.retry.scope_state cimport ScopeState
from proxy.retry.traffic cimport Traffic
from proxy.transport.connection cimport Connection
from proxy.transport.origins cimport Origin
from proxy.wire.head cimport PreparedRequest


cdef class Undecided:
    cdef public Attempt first
    cdef public bytes body
    cdef public object keys
    cdef public Traffic traffic
    cdef public object endpoints
    cdef public object choice

    cdef bint pass_gates(self, ScopeState scope, Request request, double now) except -1
    cdef turn_back(self, ScopeState scope, double now)
    @cython.locals(first=Attempt)
    cdef begin(self, AttemptOwner owner, ScopeState scope, app, Origin origin, stream, bytes body, double now)
    @cython.locals(first=Attempt, prepared=PreparedRequest, connection=Connection)
    cdef send(self, Plan plan, stream, via)
    @cython.locals(first=Attempt)
    cdef dial(self, AttemptOwner owner, Plan plan, Context context, send)
    @cython.locals(first=Attempt)
    cdef send_on(self, Plan plan, stream, via, double now)
    @cython.locals(traffic=Traffic)
    cdef answered_well(self, Plan plan, ScopeState scope, Env env, double started, double now)
    cdef succeeded(self, ScopeState scope, app, double now)
    @cython.locals(context=Context, first=Attempt, body=bytes, record=CallRecord)
    cdef report(self, Plan plan, Delivery delivery, double started, double now, bint looked)
    cdef Traffic take_traffic(self)
    cdef take_keys(self)
    cdef release(self)
