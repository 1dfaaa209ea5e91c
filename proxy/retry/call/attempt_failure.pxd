cimport cython

from proxy.retry.call.call_state cimport CallState
from proxy.retry.facts cimport Failure, Reply
from proxy.retry.call.states cimport Flight
from proxy.retry.value_bases cimport FaultBase, PushbackBase, VerdictBase


cdef bint _is_non_fatal(CallState call, FaultBase fault) except -1
@cython.locals(pushback=PushbackBase, failure=Failure)
cpdef Failure failure_of(CallState call, long attempt, Reply reply, VerdictBase verdict, double sent, double wall)
cpdef Failure failure_by(CallState call, Flight flight, FaultBase fault)
cdef _pushback_of(CallState call, Reply reply, cls, double wall)
