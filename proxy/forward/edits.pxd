from proxy.retry.value_bases cimport PolicyBase
from proxy.wire.http1.request cimport RequestHead as Asking


cdef class Edits:
    cdef object _policy
    cdef dict _to_requests
    cdef public bytes to_answers
    cdef frozenset _cut
    cdef bint _is_short
    cdef public list _from_requests
    cdef public list _from_answers
    cdef public bint cuts_answers

    cpdef bytes to_request(self, long attempt)
    cpdef frozenset from_request(self, Asking head)
    cpdef frozenset from_answer(self, head)


cpdef Edits edits_of(PolicyBase policy)
cdef frozenset _found(list marks, head)
