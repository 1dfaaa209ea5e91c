from proxy.retry.call.call_state cimport CallState
from proxy.retry.facts cimport Failure
from proxy.retry.value_bases cimport FaultBase, VerdictBase


cdef double NEVER


cpdef bint is_safe(VerdictBase verdict, FaultBase fault, bint idempotent, unsafe_methods) except -1
cpdef double safe_until(Failure failure, double first_sent, bint idempotent, unsafe_methods) except? -1
cpdef first_no(CallState call, Failure failure, bint disabled, bint safe)
