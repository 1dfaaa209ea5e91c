from cpython cimport time


cpdef double monotonic() noexcept
