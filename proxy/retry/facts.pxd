from proxy.retry.value_bases cimport FaultBase, NamedAppBase, PushbackBase, VerdictBase


cdef class Request:
    cdef public object method
    cdef public object authority
    cdef public object body
    cdef public object path
    cdef public object fields
    cdef public bint plain
    cdef public bint timed
    cdef public NamedAppBase app
    cdef public bytes user_agent
    cdef public object names

    cpdef bint is_idempotent(self, key_header, bint injected) except -1


cdef class Reply:
    cdef public int status
    cdef public object fields
    cdef public bint end
    cdef public object trailers
    cdef public bint plain
    cdef public object peeked
    cdef public bint early
    cdef public object counts_as
    cdef public bint follows
    cdef public bint whole
    cdef public str media
    cdef public str coding
    cdef public str opens
    cdef public object length

    cdef begin(self, int status, fields, bint end, trailers, bint plain, bint early)


cdef class Failure:
    cdef public long attempt
    cdef public VerdictBase verdict
    cdef public PushbackBase pushback
    cdef public object status
    cdef public FaultBase fault
    cdef public double sent
    cdef public bint carried_out
    cdef public bint goes_on
    cdef public object payment

    cdef begin(self, long attempt, VerdictBase verdict, PushbackBase pushback, status, FaultBase fault, double sent)


cpdef first(fields, name)
cpdef forwarded(fields, name)
cpdef bint is_grpc_media(content_type) except -1
