cimport cython

from proxy.retry.attempt_record cimport AttemptRecord
from proxy.retry.call_state cimport CallState
from proxy.retry.value_bases cimport PolicyBase


cpdef tuple forwarded_changes(CallState call, PolicyBase policy, head, str via, outcome, double held)
cpdef bint gave_up(PolicyBase policy, outcome, long attempts, bint no_place=*) except -1
@cython.locals(last=AttemptRecord, each=AttemptRecord)
cpdef str attempt_results(history)
cdef _end(AttemptRecord record)
cdef str _details(CallState call, head)
cpdef str via_name(PolicyBase policy, str name)
cpdef bint answers_plainly(PolicyBase policy) except -1
