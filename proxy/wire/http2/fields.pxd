cimport cython

from proxy.wire.fields cimport Trailers
from proxy.wire.http2.hpack cimport Field, walk


cdef frozenset _NOT_IN_TRAILERS

@cython.locals(field=Field)
cpdef values_of(list fields, name)
@cython.locals(field=Field)
cpdef bytes value_of(list fields, bytes name)
@cython.locals(field=Field)
cpdef bytes wire_of(list fields, cut)
@cython.locals(field=Field)
cpdef bytes whole_wire(list fields)


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
