cimport cython

from proxy.retry.answers.content_coding cimport coding_of_reply, decoded
from proxy.retry.answers.event_stream cimport SseReader, is_event_stream
from proxy.retry.facts cimport Reply
from proxy.retry.answers.json_text cimport lacks, may_be_whole_json, read_json
from proxy.retry.value_bases cimport ClassifyBase


cdef class ReplyEvidence:
    cdef public Reply _reply
    cdef public object _empty
    cdef public dict _found
    cdef public int status
    cdef public bytes body
    cdef public object _document
    cdef public object _event
    cdef public object _text

    cpdef bint is_open_to(self, rule) except -1
    cpdef list header(self, name)
    cpdef list json(self, tuple path)
    @cython.locals(body=bytes)
    cdef list _scalars(self, tuple path)
    @cython.locals(read=SseReader)
    cpdef bint has_event(self, rule) except -1
    cpdef list xml(self, element)


cdef class Ruleset:
    cdef public tuple steps
    cdef public tuple looking
    cdef public bint looks_at_events
    cdef public tuple texts


cdef class SingleRule:
    cdef public bint _needs_body
    cdef public bint looks_into_success
    cdef public object rule

    cpdef match_reply(self, ReplyEvidence evidence, grpc)


cdef class RuleGroup:
    cdef public list _headers
    cdef public list _json
    cdef public object _model
    cdef public list _xml
    cdef public bint looks_into_success

    @cython.locals(choice=_Choice)
    cpdef match_reply(self, ReplyEvidence evidence, grpc)


cdef class _Choice:
    cdef public object _any
    cdef public dict _exact
    cdef public list _globs

    cdef find(self, list values)


@cython.locals(kind=str)
cdef str _opens(Reply reply)
cpdef bint any_matches(list values, glob) except -1
cpdef bint is_named(rule, event) except -1
@cython.locals(left=list, at=cython.Py_ssize_t, keys=cython.Py_ssize_t)
cdef _gather(document, tuple path, list found)
cdef str _scalar(value)
cdef bint _reaches(rule, int status, grpc) except -1
cpdef Ruleset ruleset(ClassifyBase classify)
