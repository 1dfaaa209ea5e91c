from proxy.retry.answers.octet_search cimport holds_any, holds_member


cdef class EndReader:
    cdef public bint _any
    cdef public list _ends
    cdef public object _known
    cdef public object _packs
    cdef public bint ended
    cdef public tuple _members
    cdef public tuple _texts

    cpdef bint is_known(self) except -1
    cpdef bint is_in(self, bytes data) except -1
    cpdef see(self, events)


cdef class _Mark:
    cdef public bytes _data
    cdef public object _name
    cdef public object _path
    cdef public bint _prefix
    cdef public object _quick
    cdef public bint is_member
    cdef public bytes text

    cpdef bint matches(self, event) except -1
    cdef bint _is_named(self, name) except -1
