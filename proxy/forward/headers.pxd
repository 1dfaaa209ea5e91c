cimport cython

from proxy.retry.attempt_record cimport AttemptRecord
from proxy.retry.call_state cimport CallState
from proxy.retry.value_bases cimport PolicyBase
from proxy.wire.http1.response cimport ResponseHead as Answered


cpdef tuple forwarded_changes(CallState call, PolicyBase policy, Answered head, str via, outcome, double held, bint grpc)
cpdef bint gave_up(PolicyBase policy, outcome, long attempts, bint no_place=*) except -1
@cython.locals(last=AttemptRecord, each=AttemptRecord)
cpdef str attempt_results(history)
cdef _end(AttemptRecord record)
cdef str _details(CallState call, Answered head)
cdef tuple _retries_forbidden(PolicyBase policy, fields, bint grpc)
cpdef str via_name(PolicyBase policy, str name)
cpdef bint answers_plainly(PolicyBase policy) except -1
