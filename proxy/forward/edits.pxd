from proxy.retry.value_bases cimport PolicyBase


cdef class Edits:
    cdef public bytes to_requests
    cdef public bytes to_answers
    cdef public list _from_requests
    cdef public list _from_answers

    cpdef frozenset from_request(self, head)
    cpdef frozenset from_answer(self, head)


cpdef Edits edits_of(PolicyBase policy)
cdef frozenset _found(list marks, head)
