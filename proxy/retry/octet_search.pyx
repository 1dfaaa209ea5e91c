# cython: language_level=3, boundscheck=False, wraparound=False, nonecheck=True, binding=False
"""Compiled search for short texts in the bytes of a stream: `bytes.find` spends more on each call than on the search."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE


cdef extern from "string.h" nogil:
    void *memmem(const void *data, size_t size, const void *text, size_t length)


cpdef bint holds_any(bytes data, tuple texts) except -1:
    """Return whether any of the texts occurs in `data`."""
    cdef bytes text
    if data is None:
        raise TypeError("a search needs bytes")
    for text in texts:
        if text is None:
            raise TypeError("a search needs bytes")
        if memmem(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)):
            return True
    return False
