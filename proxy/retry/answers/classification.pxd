cimport cython

from proxy.retry.answers.content_coding cimport coding_of_reply
from proxy.retry.answers.event_stream cimport is_event_stream
from proxy.retry.facts cimport Reply, Request
from proxy.retry.answers.octet_search cimport holds_any
from proxy.retry.answers.rules cimport ReplyEvidence, Ruleset, ruleset
from proxy.retry.value_bases cimport ClassifyBase


cpdef bint is_plain_success(ClassifyBase rules, int status, fields) except -1
@cython.locals(asked=Ruleset, evidence=ReplyEvidence)
cdef _look_into(ClassifyBase rules, Reply reply, body, grpc)
@cython.locals(known=dict)
cpdef classify(ClassifyBase rules, Request request, Reply reply, body)
cdef _status_of_reply(ClassifyBase rules, Request request, Reply reply, own)
cdef bint _speaks_grpc(ClassifyBase rules, Request request) except -1
