cpdef bytes gathered(bytes data, list spans)
