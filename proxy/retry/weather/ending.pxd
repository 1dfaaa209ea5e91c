# An attribute that a class here gets is added here too: a compiled class has no other (CONTRIBUTING, "What is compiled").

cdef class AttemptEnding:
    cdef public bint well
    cdef public bint refused
    cdef public bint throttled
    cdef public bint quick
    cdef public str lost
    cdef public str how
