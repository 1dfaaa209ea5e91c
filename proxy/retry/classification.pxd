cimport cython

from proxy.retry.event_stream cimport is_event_stream
from proxy.retry.facts cimport Reply, Request
from proxy.retry.rules cimport ReplyEvidence, Ruleset, ruleset


cpdef bint is_plain_success(rules, int status, fields) except -1
@cython.locals(asked=Ruleset, evidence=ReplyEvidence)
cdef _look_into(rules, Reply reply, body, grpc)
@cython.locals(known=dict)
cpdef classify(rules, Request request, Reply reply, body)
cdef _status_of_reply(rules, Request request, Reply reply, own)
cdef bint _speaks_grpc(rules, Request request) except -1
