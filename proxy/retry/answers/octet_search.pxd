cpdef bint holds_any(bytes data, tuple texts) except -1
cpdef bint holds_member(bytes data, tuple names) except -1
