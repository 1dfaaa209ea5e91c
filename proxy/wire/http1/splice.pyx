# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True, binding=False
"""Rendering a simple head that compiled code has read: one copy of it, with two of its lines left out or replaced. The
result is what `render` of the heads returns.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp, memcpy

#: The names that were last to be left out, which are those of one policy for many heads in a row; the same in a list;
#: the first letters of all of them, a bit each; and whether lines of these names can be left out here.
cdef frozenset _dropped = frozenset()
cdef list _names = []
cdef unsigned int _letters = 0
cdef bint _may_drop = True


cdef bint learn_names(frozenset drop) except -1:
    """Keep these names for the heads that follow."""
    global _dropped, _names, _letters, _may_drop
    cdef bytes name
    cdef list names = []
    cdef unsigned int letters = 0
    for name in drop:
        if name:
            names.append(name)
            letters |= 1U << (name[0] & 31)
    _dropped, _names, _letters = drop, names, letters
    _may_drop = b"connection" not in drop and b"host" not in drop
    return True


cpdef bint may_drop(frozenset drop) except -1:
    """Whether `splice_without` can leave out lines of these lower-case names: Connection and Host have places of their
    own in a head.
    """
    if drop is None:
        raise TypeError("names are a set")
    if drop is not _dropped:
        learn_names(drop)
    return _may_drop


cpdef bint same_lines(bytes raw, Edges edges, bytes known, Edges others) except -1:
    """Whether two heads, with these edges, have the same field lines, octet for octet."""
    if raw is None or known is None:
        raise TypeError("a head is made of bytes")
    cdef Py_ssize_t size = PyBytes_GET_SIZE(raw) - edges.first
    if not (0 <= edges.first and 0 <= others.first and 0 <= size == PyBytes_GET_SIZE(known) - others.first):
        return False
    return not memcmp(PyBytes_AS_STRING(raw) + edges.first, PyBytes_AS_STRING(known) + others.first, size)


cpdef bytes splice(bytes raw, Edges edges, bytes target, bytes host, bytes add, bytes body):
    """Return the head `raw` without Connection, with this target and this Host (None: those that came), then `add`
    (lines with their CRLF), the empty line, and `body`.
    """
    if raw is None or add is None or body is None:
        raise TypeError("a head is made of bytes")
    return spliced(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw), edges, target, host, add, body)


cdef bytes spliced(
    const char *text, Py_ssize_t whole, Edges edges, bytes target, bytes host, bytes add, bytes body
):
    """`splice` of the head of `whole` octets at `text`."""
    cdef Py_ssize_t cut = edges.cut, at = edges.host, start = 0, line = 0
    cdef Py_ssize_t end = whole - 2
    cdef Py_ssize_t more = PyBytes_GET_SIZE(add), after = PyBytes_GET_SIZE(body)
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


cpdef bytes splice_without(bytes raw, Edges edges, frozenset drop, bytes target, bytes host, bytes add):
    """The same without the lines whose lower-case names are in `drop`, which names neither Connection nor Host."""
    if raw is None or drop is None or add is None:
        raise TypeError("a head is made of bytes")
    if drop is not _dropped:
        learn_names(drop)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(raw), start = 0, at = edges.first, after = 0
    cdef Py_ssize_t end = size - 2
    cdef const char *text = PyBytes_AS_STRING(raw)
    cdef const char *line_end
    cdef Edges moved = edges
    cdef list names = _names
    cdef unsigned int letters = _letters
    cdef bytes left = PyBytes_FromStringAndSize(NULL, size)
    cdef char *begin = PyBytes_AS_STRING(left)
    cdef char *to = begin
    if not 0 <= at <= end:
        raise ValueError("edges of another head")
    while at < end:
        line_end = <const char *>memchr(text + at, 0x0A, end - at)
        if line_end == NULL:
            raise ValueError("a line without an end")
        after = line_end - text + 1
        if letters >> (text[at] & 31) & 1 and is_named(text + at, after - at, names):
            to = copied(to, text, start, at)
            start = after
            if edges.cut > at:
                moved.cut -= after - at
                moved.cut_end -= after - at
            if edges.host > at:
                moved.host -= after - at
                moved.host_end -= after - at
        at = after
    if not start:
        return spliced(text, size, edges, target, host, add, b"")
    to = copied(to, text, start, size)
    return spliced(begin, to - begin, moved, target, host, add, b"")


cdef inline bint is_named(const char *line, Py_ssize_t size, list names) except -1:
    """Whether a line's name, in any case, is one of `names`, which are in lower case."""
    cdef bytes name
    cdef const char *letters
    cdef Py_ssize_t length, n
    cdef char octet
    for name in names:
        length = PyBytes_GET_SIZE(name)
        if length >= size or line[length] != 0x3A:
            continue
        letters = PyBytes_AS_STRING(name)
        for n in range(length):
            octet = line[n]
            if 0x41 <= octet <= 0x5A:
                octet += 32
            if octet != letters[n]:
                break
        else:
            return True
    return False


cdef inline char *copied(char *to, const char *text, Py_ssize_t start, Py_ssize_t end) noexcept:
    memcpy(to, text + start, end - start)
    return to + (end - start)
