cdef class FieldBlock:
    cdef public bytes raw
    cdef public bytes _lowered

    cpdef bytes text(self)
    cpdef get_all(self, name)
    cpdef bytes get(self, bytes name)
    cpdef list values(self, bytes mark)
    cpdef present(self, names)


cdef class Trailers(FieldBlock):
    cpdef without(self, names)
