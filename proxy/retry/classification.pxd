cimport cython

from proxy.retry.facts cimport Reply, Request


cpdef bint is_plain_success(rules, int status, fields) except -1
@cython.locals(known=dict)
cpdef classify(rules, Request request, Reply reply, body)
cdef _status_of_reply(rules, Request request, Reply reply, own)
cdef bint _speaks_grpc(rules, Request request) except -1
