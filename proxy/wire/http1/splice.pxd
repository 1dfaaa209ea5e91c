#: Offsets in a head: of the first field line, and of begin and end of the lines of Connection and of Host; 0: none.
cdef struct Edges:
    Py_ssize_t first
    Py_ssize_t cut
    Py_ssize_t cut_end
    Py_ssize_t host
    Py_ssize_t host_end


cpdef bytes splice(bytes raw, Edges edges, bytes target, bytes host, bytes add, bytes body)
cpdef bytes splice_without(bytes raw, Edges edges, frozenset drop, bytes target, bytes host, bytes add)
cpdef bint may_drop(frozenset drop) except -1
cpdef bint same_lines(bytes raw, Edges edges, bytes known, Edges others) except -1
