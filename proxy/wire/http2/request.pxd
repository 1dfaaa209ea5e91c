cimport cython

from proxy.wire.http1.request cimport RequestHead
from proxy.wire.http2.fields cimport value_of, values_of, whole_wire, wire_of
from proxy.wire.http2.hpack cimport Field, walk


cdef dict _PORTS
cdef frozenset CONNECTION_SPECIFIC, _REQUEST_CUT, _REQUEST_NAMES, _PSEUDO, _WITH_BODIES


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
