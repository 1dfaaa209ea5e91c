cimport cython

from proxy.wire.http1.response cimport ResponseHead
from proxy.wire.http2.fields cimport value_of, values_of, wire_of
from proxy.wire.http2.hpack cimport Field, walk


cdef frozenset CONNECTION_SPECIFIC, _ANSWER_CUT, _ANSWER_NAMES


cdef class Response2(ResponseHead):
    cdef public list fields
    cdef public Py_ssize_t list_size, count
    cdef public bint whole
    cdef ResponseHead _text
    cdef bytes _wired, _written

    @cython.locals(field=Field, specials=dict, size=Py_ssize_t, name=bytes, value=bytes, at=Py_ssize_t)
    cdef _read(self, list fields, bint whole)
    cpdef bytes block(self, frozenset drop=*, bytes add=*)
