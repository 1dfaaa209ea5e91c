# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True, binding=False
"""Rendering a simple head that compiled code has read: one copy of it, with two of its lines left out or replaced. The
result is what `render` of the heads returns.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcpy


cpdef bytes splice(bytes raw, Edges edges, bytes target, bytes host, bytes add, bytes body):
    """Return the head `raw` without Connection, with this target and this Host (None: those that came), then `add`
    (lines with their CRLF), the empty line, and `body`.
    """
    if raw is None or add is None or body is None:
        raise TypeError("a head is made of bytes")
    cdef Py_ssize_t cut = edges.cut, at = edges.host, start = 0, line = 0
    cdef Py_ssize_t end = PyBytes_GET_SIZE(raw) - 2
    cdef Py_ssize_t more = PyBytes_GET_SIZE(add), after = PyBytes_GET_SIZE(body)
    cdef const char *text = PyBytes_AS_STRING(raw)
    cdef const char *space
    cdef Py_ssize_t size = end - (edges.cut_end - cut) + more + 2 + after
    cdef bytes out
    cdef char *to
    if not 0 <= edges.first <= end or edges.cut_end > end or edges.host_end > end:
        raise ValueError("edges of another head")
    if target is not None:
        space = <const char *>memchr(text, 0x20, edges.first)
        if space == NULL:
            raise ValueError("a head without a target")
        line = space - text + 1  # the method, and the space after it
        start = edges.first
        size += line + PyBytes_GET_SIZE(target) + 11 - start
    if host is None:
        at = 0
    elif at:
        size += 8 + PyBytes_GET_SIZE(host) - (edges.host_end - at)
    out = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(out)
    if line:
        to = copied(to, text, 0, line)
        to = copied(to, PyBytes_AS_STRING(target), 0, PyBytes_GET_SIZE(target))
        to = copied(to, " HTTP/1.1\r\n", 0, 11)
    if cut and (not at or cut < at):
        to = copied(to, text, start, cut)
        start = edges.cut_end
    if at:
        to = copied(to, text, start, at)
        to = copied(to, "Host: ", 0, 6)
        to = copied(to, PyBytes_AS_STRING(host), 0, PyBytes_GET_SIZE(host))
        to = copied(to, "\r\n", 0, 2)
        start = edges.host_end
        if cut > at:
            to = copied(to, text, start, cut)
            start = edges.cut_end
    to = copied(to, text, start, end)
    to = copied(to, PyBytes_AS_STRING(add), 0, more)
    to = copied(to, "\r\n", 0, 2)
    copied(to, PyBytes_AS_STRING(body), 0, after)
    return out


cdef inline char *copied(char *to, const char *text, Py_ssize_t start, Py_ssize_t end) noexcept:
    memcpy(to, text + start, end - start)
    return to + (end - start)
