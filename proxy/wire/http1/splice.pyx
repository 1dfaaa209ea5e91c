# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True, binding=False
"""Rendering a head that compiled code has read: one copy of it, with some of its lines left out or replaced. The result
is what `render` of the heads returns.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.set cimport PySet_GET_SIZE
from libc.string cimport memchr, memcmp, memcpy

cdef enum:
    MOST = 16  # the most lines that are left out of a head here; neighbours count as one

#: The names that were last to be left out, which are those of one policy for many heads in a row; the same in a list;
#: the first letters of all of them, a bit each; whether lines of these names can be left out here; and whether they are
#: all names that are asked for.
cdef frozenset _dropped = frozenset()
cdef list _names = []
cdef unsigned int _letters = 0
cdef bint _may_drop = True
cdef bint _is_asked = True
#: The names that are asked for beside those that are never forwarded, and their number.
cdef frozenset _asked = frozenset()
cdef int _reading = 1


cdef bint learn_names(frozenset drop) except -1:
    """Keep these names for the heads that follow."""
    global _dropped, _names, _letters, _may_drop, _is_asked
    cdef bytes name
    cdef list names = []
    cdef unsigned int letters = 0
    for name in drop:
        if name:
            names.append(name)
            letters |= 1U << (name[0] & 31)
    _dropped, _names, _letters = drop, names, letters
    _may_drop = b"connection" not in drop and b"host" not in drop  # these two have places of their own in a head
    _is_asked = drop == _asked
    return True


cpdef int ask_for(frozenset names) except -1:
    """Take note of the lower-case names whose lines the heads that are read from now on have in their edges; return
    the number of these names, which is another one if they change.
    """
    global _asked, _reading
    if names is None:
        raise TypeError("names are a set")
    if names != _asked:
        _asked = names
        _reading += 1
        learn_names(frozenset())
    return _reading


cpdef bint same_lines(bytes raw, Edges edges, bytes known, Edges others) except -1:
    """Whether two heads, with these edges, have the same field lines, octet for octet."""
    if raw is None or known is None:
        raise TypeError("a head is made of bytes")
    cdef Py_ssize_t size = PyBytes_GET_SIZE(raw) - edges.first
    if not (0 <= edges.first and 0 <= others.first and 0 <= size == PyBytes_GET_SIZE(known) - others.first):
        return False
    return not memcmp(PyBytes_AS_STRING(raw) + edges.first, PyBytes_AS_STRING(known) + others.first, size)


cpdef bytes splice(bytes raw, Edges edges, frozenset drop, bytes target, bytes host, bytes add, bytes body):
    """Return the head `raw` without the lines that are never forwarded and those whose lower-case names are in `drop`
    (None for none), with this target and this Host (None: those that came), then `add` (lines with their CRLF), the
    empty line, and `body`. Return None if more lines are to be left out than there are places for, or if `drop` names
    Connection or Host.
    """
    if raw is None or add is None or body is None:
        raise TypeError("a head is made of bytes")
    cdef int cuts[2 * MOST]
    cdef int *places = &edges.begin_0
    cdef int count = 0, n
    if not edges.whole:
        return None
    if drop is None or PySet_GET_SIZE(drop) == 0:
        if not edges.asked:
            return spliced(raw, &edges, places, edges.cuts, target, host, add, body)
        for n in range(edges.cuts):
            if not edges.asked >> n & 1:
                cuts[2 * count] = places[2 * n]
                cuts[2 * count + 1] = places[2 * n + 1]
                count += 1
        return spliced(raw, &edges, cuts, count, target, host, add, body)
    if drop is not _dropped:
        learn_names(drop)
    if not _may_drop:
        return None
    if _is_asked and edges.reading == _reading:
        return spliced(raw, &edges, places, edges.cuts, target, host, add, body)
    count = lines_of(raw, &edges, cuts)
    return None if count < 0 else spliced(raw, &edges, cuts, count, target, host, add, body)


cdef int lines_of(bytes raw, const Edges *edges, int *cuts) except -2:
    """Find the lines of a head that are never forwarded, or have one of the names that were learnt last. Write begin and
    end of each to `cuts`, and return how many there are; -1 if there are too many.
    """
    cdef const char *text = PyBytes_AS_STRING(raw)
    cdef Py_ssize_t at = edges.first, end = PyBytes_GET_SIZE(raw) - 2, after
    cdef const char *line_end
    cdef const int *places = &edges.begin_0
    cdef list names = _names
    cdef unsigned int letters = _letters
    cdef int count = 0, n = 0
    cdef bint is_out
    if not 0 <= at <= end:
        raise ValueError("edges of another head")
    while at < end:
        line_end = <const char *>memchr(text + at, 0x0A, end - at)
        if line_end == NULL:
            raise ValueError("a line without an end")
        after = line_end - text + 1
        is_out = False
        if n < edges.cuts and at == places[2 * n]:
            is_out = not edges.asked >> n & 1
            n += 1
        if is_out or (letters >> (text[at] & 31) & 1 and is_named(text + at, after - at, names)):
            if count and cuts[2 * count - 1] == at:
                cuts[2 * count - 1] = <int>after
            elif count == MOST:
                return -1
            else:
                cuts[2 * count] = <int>at
                cuts[2 * count + 1] = <int>after
                count += 1
        at = after
    return count


cdef bytes spliced(
    bytes raw, const Edges *edges, const int *cuts, int count, bytes target, bytes host, bytes add, bytes body
):
    """`splice` of a head without these lines, of which `cuts` has begin and end in order."""
    cdef const char *text = PyBytes_AS_STRING(raw)
    cdef Py_ssize_t at = edges.host, start = 0, line = 0, last = edges.first
    cdef Py_ssize_t end = PyBytes_GET_SIZE(raw) - 2
    cdef Py_ssize_t more = PyBytes_GET_SIZE(add), after = PyBytes_GET_SIZE(body)
    cdef const char *space
    cdef Py_ssize_t size = end + more + 2 + after
    cdef int n
    cdef bytes out
    cdef char *to
    if not 0 <= edges.first <= end or edges.host_end > end:
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
    for n in range(count):
        if not last <= cuts[2 * n] <= cuts[2 * n + 1] <= end or cuts[2 * n] <= at < cuts[2 * n + 1]:
            raise ValueError("edges of another head")
        last = cuts[2 * n + 1]
        size -= last - cuts[2 * n]
    out = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(out)
    if line:
        to = copied(to, text, 0, line)
        to = copied(to, PyBytes_AS_STRING(target), 0, PyBytes_GET_SIZE(target))
        to = copied(to, " HTTP/1.1\r\n", 0, 11)
    for n in range(count):
        if at and at < cuts[2 * n]:
            to = with_host(to, text, start, at, host)
            start, at = edges.host_end, 0
        to = copied(to, text, start, cuts[2 * n])
        start = cuts[2 * n + 1]
    if at:
        to = with_host(to, text, start, at, host)
        start = edges.host_end
    to = copied(to, text, start, end)
    to = copied(to, PyBytes_AS_STRING(add), 0, more)
    to = copied(to, "\r\n", 0, 2)
    copied(to, PyBytes_AS_STRING(body), 0, after)
    return out


cdef inline char *with_host(char *to, const char *text, Py_ssize_t start, Py_ssize_t at, bytes host) noexcept:
    """Copy from `start` to `at`, and then a line of Host."""
    to = copied(to, text, start, at)
    to = copied(to, "Host: ", 0, 6)
    to = copied(to, PyBytes_AS_STRING(host), 0, PyBytes_GET_SIZE(host))
    return copied(to, "\r\n", 0, 2)


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
