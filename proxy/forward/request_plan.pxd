cimport cython

from proxy.forward.edits cimport Edits, edits_of
from proxy.retry.facts cimport Request
from proxy.retry.scopes.scope_state cimport ScopeState
from proxy.retry.value_bases cimport PolicyBase
from proxy.transport.origins cimport Destination, Origin
from proxy.wire.head cimport PreparedRequest
from proxy.wire.http1.request cimport RequestHead as Asking
from proxy.wire.http1.response cimport ResponseHead as Answer
from proxy.wire.http1.scan cimport same_naming


cdef class Naming:
    cdef public tuple lines
    cdef public long reading

    @cython.locals(known=int)
    cpdef bint is_same(self, Asking head, Asking like) except -1
    @cython.locals(raw=bytes, lowered=bytes, mark=bytes, line=bytes, at=cython.Py_ssize_t)
    cdef bint _is_in(self, Asking head) except -1


cdef class LatestRequest:
    cdef public long count
    cdef public bytes lines
    cdef public str name
    cdef public str version
    cdef public bint via


cdef LatestRequest _LATEST_REQUEST


cdef class Plan:
    cdef public Asking head
    cdef public Request request
    cdef public PolicyBase policy
    cdef public ScopeState scope
    cdef public Destination destination
    cdef public bytes rest
    cdef public object upstream
    cdef public object router
    cdef public Naming naming
    cdef public bytes begins
    cdef public bint by_service
    cdef public bint looks
    cdef public PreparedRequest prepared
    cdef public list keyed
    cdef public Answer answered
    cdef public bytes answer_lines
    cdef public dict ends
    cdef public object ways
    cdef public double patience
    cdef public bint is_grpc
    cdef public str protocol
    cdef public bint plain
    cdef public bint traced
    cdef public Edits edits

    @cython.locals(old=Asking, request=Request, made=Request, rest=bytes, whole=bytes, begins=bytes, path=bytes,
                   text="const char *")
    cpdef bint follow(self, Asking head, router) except -1
    cpdef bint _is_plain(self, Asking head, PolicyBase policy) except -1
    cpdef bint _turn_to(self, PolicyBase policy, Asking head) except -1
    @cython.locals(plan=Plan)
    cpdef Plan alike(self, Asking head, router)
    cpdef bint answers_plainly(self, Answer head, str via, bint looked=*) except -1
    cpdef bint keeps(self, Answer head) except -1
    cpdef PreparedRequest first_request(self, Origin origin, str via)
    cpdef PreparedRequest edited_request(self, Origin origin, long number, str via)
    @cython.locals(latest=LatestRequest, head=Asking, has_via=bint, add=bytes)
    cpdef PreparedRequest plain_request(self, Origin origin, long number, str via)


@cython.locals(plan=Plan, at=Py_ssize_t)
cpdef Plan take_turns(list plans, Plan last, Asking head)
cdef tuple course_of(PolicyBase policy)
@cython.locals(some=dict, others=dict)
cdef bint _steers_alike(Asking head, Asking old) except -1
