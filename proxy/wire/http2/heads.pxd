cimport cython

from proxy.wire.fields cimport Trailers
from proxy.wire.http1.request cimport RequestHead
from proxy.wire.http1.response cimport ResponseHead
from proxy.wire.http2.hpack cimport Field, walk


cdef dict _PORTS
cdef frozenset CONNECTION_SPECIFIC, _REQUEST_CUT, _ANSWER_CUT, _REQUEST_NAMES, _ANSWER_NAMES, _PSEUDO, _WITH_BODIES

@cython.locals(field=Field)
cdef _get_all(list fields, name)
@cython.locals(field=Field)
cdef bytes _get(list fields, bytes name)
@cython.locals(field=Field)
cdef bytes _wire(list fields, cut)
@cython.locals(field=Field)
cdef bytes _whole_wire(list fields)


cdef class Trailers2(Trailers):
    cdef public bytes block
    cdef public list fields
    cdef public Py_ssize_t list_size
    cdef frozenset _names
    cdef bytes _written

    @cython.locals(field=Field, name=bytes, size=Py_ssize_t)
    cdef _read(self, list fields)
    @cython.locals(field=Field)
    cpdef without(self, names)


cdef class Request2(RequestHead):
    cdef public list fields
    cdef public Py_ssize_t list_size, count
    cdef public bint whole
    cdef readonly dict _pseudo
    cdef RequestHead _text
    cdef tuple _wired
    cdef bytes _written

    @cython.locals(field=Field, pseudo=dict, specials=dict, size=Py_ssize_t, begun=bint, name=bytes, value=bytes)
    cdef _read(self, list fields, bint whole)
    @cython.locals(
        named=Field, field=Field, pseudo=dict, method=bytes, scheme=bytes, path=bytes, host=bytes, authority=bytes
    )
    cdef _locate2(self)
    @cython.locals(field=Field, usual=bint, parts=list)
    cpdef bytes block(self, bytes scheme, bytes authority, bytes target, frozenset drop=*, bytes add=*)


cdef class Response2(ResponseHead):
    cdef public list fields
    cdef public Py_ssize_t list_size, count
    cdef public bint whole
    cdef ResponseHead _text
    cdef bytes _wired, _written

    @cython.locals(field=Field, specials=dict, size=Py_ssize_t, name=bytes, value=bytes, at=Py_ssize_t)
    cdef _read(self, list fields, bint whole)
    cpdef bytes block(self, frozenset drop=*, bytes add=*)


cpdef bytes request_block(RequestHead head, bytes scheme, bytes authority, bytes target, frozenset drop=*, bytes add=*)
cpdef bytes answer_block(ResponseHead head, frozenset drop=*, bytes add=*)
cpdef bytes trailers_block(Trailers trailers)
