# cython: language_level=3, binding=False
"""Gathering the data of chunks by one copy, for `proxy.wire.http1.chunk_data`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy


cpdef bytes gathered(bytes data, list spans):
    """The pieces of `data` as one: `spans` has the offset of each, followed by that of its end."""
    if data is None or spans is None:
        raise TypeError("pieces of bytes are gathered")
    cdef Py_ssize_t count = len(spans), whole = PyBytes_GET_SIZE(data), size = 0, n = 0, at, end
    cdef bytes out
    cdef char *to
    if count & 1:
        raise ValueError("a piece without an end")
    while n < count:
        at, end = spans[n], spans[n + 1]
        if not 0 <= at <= end <= whole:
            raise ValueError("a piece of other bytes")
        size += end - at
        n += 2
    if size == whole and count == 2:
        return data
    out = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(out)
    n = 0
    while n < count:
        at, end = spans[n], spans[n + 1]
        memcpy(to, PyBytes_AS_STRING(data) + at, end - at)
        to += end - at
        n += 2
    return out
