cimport cython

from proxy.wire.http2.octets cimport Slicer


cdef class Name:
    cdef public bytes name, wire
    cdef public bint kept, steers
    cdef public str fault


cdef class Field:
    cdef public bytes name, value, wire
    cdef public Py_ssize_t size
    cdef public bint padded, steers
    cdef public str fault


cdef Slicer SLICER
cdef dict _known, _names
cdef tuple _INDEXED
cdef int _SHORT, _REMEMBERED, _UPDATES

cpdef bytes integer(long long value, int prefix, int pattern=*)
@cython.locals(byte=int, shift=int, value=Py_ssize_t, most=Py_ssize_t)
cdef (Py_ssize_t, Py_ssize_t) _read_integer(bytes block, Py_ssize_t at, int prefix) except *
@cython.locals(
    fields=list, end=Py_ssize_t, may_be_many=bint, known=dict, first=int, begin=Py_ssize_t, middle=Py_ssize_t,
    named=Py_ssize_t, length=Py_ssize_t, known_as=bytes,
)
cpdef list walk(bytes block, Py_ssize_t at=*, Py_ssize_t most=*)
@cython.locals(name=Name, field=Field)
cdef Field _read(bytes start, bytes coded)
@cython.locals(first=int, index=Py_ssize_t, at=Py_ssize_t, incremental=bint, name=Name)
cdef Name _read_name(bytes start)
@cython.locals(first=int, text=bytes)
cdef bytes _read_string(bytes raw, Py_ssize_t at)
cdef bytes _unhuffed(bytes text)
