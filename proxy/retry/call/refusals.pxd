cimport cython

from proxy.retry.budgets.buckets cimport Bucket
from proxy.retry.call.call_state cimport CallState
from proxy.retry.call.states cimport Flight
from proxy.retry.facts cimport Failure


cpdef str why_not(CallState call, no, Failure failure, double now, bint delivered=*)
cpdef note_no(CallState call, Failure failure, Flight flight, no, double now, bint delivered=*)
cpdef str own_success(Failure failure, CallState call)
cdef str _why_not(no, Failure failure, CallState call, double now, bint delivered)
@cython.locals(bucket=Bucket)
cdef str _unaffordable(cls, CallState call, double now)
