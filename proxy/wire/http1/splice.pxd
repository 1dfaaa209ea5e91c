cdef enum:
    PLACES = 4  # of lines to leave out, in `Edges`


#: Offsets in a head: of the first field line, and of begin and end of the line of Host, 0 if there is none. `cuts`: how
#: many of the lines follow that are left out, in order, each with its begin and end; `whole`: none of them is missing
#: here. `asked`: a bit for each of these that is left out only if its name is asked to be; `naming`: a bit for each that
#: may name an app. `reading`: by which names (`read_also`), 0 in an answer, whose lines of these names are not here.
cdef struct Edges:
    int first
    int host
    int host_end
    int begin_0
    int end_0
    int begin_1
    int end_1
    int begin_2
    int end_2
    int begin_3
    int end_3
    int reading
    unsigned char cuts
    unsigned char whole
    unsigned char asked
    unsigned char naming


cpdef bytes splice(bytes raw, Edges edges, frozenset drop, bytes target, bytes host, bytes add, bytes body)
cpdef bint same_lines(bytes raw, Edges edges, bytes known, Edges others) except -1
cpdef int ask_for(frozenset names) except -1
