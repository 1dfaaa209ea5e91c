cdef enum:
    PLACES = 4  # of lines to leave out, in `Edges`


#: Offsets in a head: of the first field line, and of begin and end of the line of Host, 0 if there is none. `cuts`: how
#: many of the lines follow that are left out, in order, each with its begin and end; `whole`: none of them is missing
#: here. `asked`: a bit for each of these that is left out only if its name is asked to be; `naming`: a bit for each that
#: may name an app. `reading`: by which names (`read_also`).
cdef struct Edges:
    Py_ssize_t first
    Py_ssize_t host
    Py_ssize_t host_end
    Py_ssize_t begin_0
    Py_ssize_t end_0
    Py_ssize_t begin_1
    Py_ssize_t end_1
    Py_ssize_t begin_2
    Py_ssize_t end_2
    Py_ssize_t begin_3
    Py_ssize_t end_3
    int cuts
    bint whole
    unsigned int asked
    unsigned int naming
    long reading


cpdef bytes splice(bytes raw, Edges edges, frozenset drop, bytes target, bytes host, bytes add, bytes body)
cpdef bint same_lines(bytes raw, Edges edges, bytes known, Edges others) except -1
cpdef long ask_for(frozenset names) except -1
