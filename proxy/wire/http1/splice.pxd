#: Where lines of a head stand: the first field's, Connection's with what is behind it, Host's; 0: there is none.
cdef struct Edges:
    Py_ssize_t first
    Py_ssize_t cut
    Py_ssize_t cut_end
    Py_ssize_t host
    Py_ssize_t host_end


cpdef bytes splice(bytes raw, Edges edges, bytes target, bytes host, bytes add, bytes body)
