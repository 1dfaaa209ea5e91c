cdef class HeadReader:
    cdef public bint acknowledged, end
    cdef public unsigned int number
    cdef public double since
    cdef bytes _ending, _last
    cdef bint _last_end
    cdef object _head, _ended
    cdef list _fragments
    cdef Py_ssize_t _frames, _most
    cdef readonly Py_ssize_t _size
    cdef object _table

    cpdef begin(self, number, bytes fragment, bint end, double now)
    cpdef go_on(self, bytes fragment, bint whole)
    cpdef request(self, bytes block, bint end)
    cpdef answer(self, bytes block, bint end)
    cpdef trailers(self, bytes block)
    cpdef pass_over(self, bytes block)
    cdef list _begin_block(self, bytes block)
    cdef list _fields(self, bytes block, Py_ssize_t at)
