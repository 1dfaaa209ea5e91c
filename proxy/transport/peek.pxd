cpdef bint has_said(int descriptor) except -1
