cpdef bint holds_any(bytes data, tuple texts) except -1
