cimport cython

from proxy.forward.attempt cimport Attempt, AttemptOwner
from proxy.forward.call_report cimport look_for_repeat, report_of
from proxy.forward.context cimport Context
from proxy.forward.delivery cimport Delivery
from proxy.forward.request_plan cimport Plan
from proxy.forward.sending cimport AttemptDial
from proxy.observe.call_record cimport CallRecord
from proxy.retry.call.at_once cimport answered, learn_success, pass_gates, turn_back
from proxy.retry.budgets.buckets cimport Bucket
from proxy.retry.facts cimport Request
from proxy.retry.scopes.scope_state cimport ScopeState, UsedBucket
from proxy.retry.capacity.traffic cimport Traffic
from proxy.transport.connection cimport Connection
from proxy.transport.origins cimport Destination, Origin
from proxy.wire.head cimport PreparedRequest


cdef class Undecided:
    cdef public Context context
    cdef public ScopeState scope
    cdef public Bucket bucket
    cdef public Attempt first
    cdef public bytes body
    cdef public object keys
    cdef public Traffic traffic
    cdef public object endpoints
    cdef public object choice

    @cython.locals(request=Request, destination=Destination, origin=Origin, bucket=Bucket, traffic=Traffic, first=Attempt, used=UsedBucket,
                   prepared=PreparedRequest, connection=Connection)
    cdef Attempt begin(self, AttemptOwner owner, Plan plan, ScopeState scope, bytes body, double now)
    cdef bint _pass_gates(self, ScopeState scope, Request request, double now) except -1
    cdef bint _choose_endpoint(self, ScopeState scope, Request request) except -1
    cdef PreparedRequest _prepare(self, Plan plan, Origin origin)
    @cython.locals(first=Attempt)
    cdef dial(self, Plan plan, send)
    @cython.locals(first=Attempt)
    cdef send_on(self, Plan plan, stream, double now)
    @cython.locals(scope=ScopeState, traffic=Traffic)
    cdef answered_well(self, Plan plan, double started, double now)
    @cython.locals(context=Context, first=Attempt, bucket=Bucket, lane=ScopeState, record=CallRecord)
    cdef succeeded(self, Plan plan, Delivery delivery, double started, double now, bint looked)
    cdef release(self)
