cimport cython

from proxy.forward.attempt cimport Attempt, AttemptOwner
from proxy.forward.context cimport Context
from proxy.forward.request_plan cimport Plan
from proxy.forward.streams cimport ConnectionStream
from proxy.observe.call_record cimport CallRecord
from proxy.retry.call.actions cimport Launch
from proxy.retry.call.machine cimport Call as Decider
from proxy.transport.clock cimport monotonic
from proxy.transport.connection cimport Connection
from proxy.transport.direct_dial cimport DirectDial
from proxy.transport.origins cimport Destination, Origin
from proxy.transport.replay_buffer cimport Replay
from proxy.wire.head cimport PreparedRequest


cdef class AttemptDial(DirectDial):
    cdef public Attempt _attempt
    cdef public object _send

    @cython.locals(attempt=Attempt)
    cpdef opened(self, connection)
    @cython.locals(attempt=Attempt)
    cpdef failed(self, error)


cdef class Sender:
    cdef public Decider call
    cdef public Replay replay
    cdef public str endpoint
    cdef public object resumer
    cdef public Context context
    cdef public object _app
    cdef public Plan plan
    cdef public double _started
    cdef public bint _elsewhere
    cdef public tuple _failed
    cdef public tuple _avoided
    cdef public object _key

    @cython.locals(destination=Destination, attempt=Attempt, dial=AttemptDial, origin=Origin)
    cpdef Attempt launch(self, AttemptOwner owner, Launch action, double now)
    @cython.locals(origin=Origin, direct=ConnectionStream)
    cpdef resting(self, Attempt attempt, double now)
    @cython.locals(replay=Replay, body=bytes, end=bint, connection=Connection, prepared=PreparedRequest)
    cpdef begin(self, Attempt attempt, stream, double now)
    cpdef own_fields(self, Attempt attempt)
    cpdef avoid(self, Attempt attempt, bint origin)
    cpdef call_ended(self, CallRecord record)
    cpdef send(self, Attempt attempt, stream, double now)
    cdef list _connections(self, Attempt attempt)
    @cython.locals(plan=Plan)
    cdef _request_for(self, Attempt attempt, stream, double now)
