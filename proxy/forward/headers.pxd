cimport cython

from proxy.retry.call.attempt_record cimport AttemptRecord
from proxy.retry.call.call_state cimport CallState
from proxy.retry.value_bases cimport PolicyBase
from proxy.wire.http1.response cimport ResponseHead as Answered


cdef class LatestFailure:
    cdef public str name
    cdef public str version
    cdef public long attempts
    cdef public object outcome
    cdef public int status
    cdef public str detail
    cdef public tuple forbidden
    cdef public tuple changes

    cdef tuple of(self, str name, str version, long attempts, outcome, int status, str detail, tuple forbidden)


cdef dict _FIRST_ENDED
cdef Py_ssize_t _MOST_RESULTS
cdef LatestFailure _LATEST_FAILURE


@cython.locals(forbidden=tuple, detail=str)
cpdef tuple forwarded_changes(CallState call, PolicyBase policy, Answered head, str via, outcome, double held, bint grpc)
cpdef bint gave_up(PolicyBase policy, outcome, long attempts, bint no_place=*) except -1
@cython.locals(last=AttemptRecord, each=AttemptRecord)
cpdef str attempt_results(history)
@cython.locals(text=str)
cdef str _ended(str upstream, long attempt, end)
cdef _end(AttemptRecord record)
cdef str _details(CallState call, Answered head)
cdef tuple _retries_forbidden(PolicyBase policy, fields, bint grpc)
cpdef str via_name(PolicyBase policy, str name)
cpdef bint answers_plainly(PolicyBase policy) except -1
