cimport cython

from proxy.retry.budgets.buckets cimport Bucket
from proxy.retry.call.call_state cimport CallState
from proxy.retry.facts cimport Failure


cpdef str why_not(no, Failure failure, CallState call, double now, double due, bint goes_on, bint delivered=*)
cpdef str own_success(Failure failure, CallState call)
cdef str _why_not(no, Failure failure, CallState call, double now, double due, bint goes_on, bint delivered)
@cython.locals(bucket=Bucket)
cdef str _unaffordable(cls, CallState call, double now)
