from proxy.retry.facts cimport Reply


cdef class Decoder:
    cdef public bytes _begun
    cdef public object _inflate
    cdef public bint over

    cpdef bytes feed(self, bytes data, Py_ssize_t most)
    cdef bytes _anew(self, bytes data, Py_ssize_t most)


cpdef str coding_of(fields)
cpdef str coding_of_reply(Reply reply)
cpdef bytes decoded(bytes body, str coding)
