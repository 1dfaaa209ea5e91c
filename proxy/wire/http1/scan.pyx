# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True, binding=False
"""Heads read in one pass by compiled code: what `RequestHead` and `ResponseHead` read of a common head.

Law: what this reads of a head is what the Python reader reads of it; of whatever it is not sure it says None, and the
Python reader decides. So nothing is refused here, and refusals have one source. The grammar is that of
`wire.http1.syntax`; the names that matter are taken from `wire.field_names` when the module is loaded.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem, PyDict_SetItem
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.string cimport memcmp, memcpy

from proxy.wire import field_names

cdef enum:
    TOKEN = 1  # an octet of a token
    VALUE = 2  # an octet of a field's value
    TARGET = 4  # an octet of a request target
    LONGEST_NAME = 40
    MOST_NAMES = 8  # of one length

cdef unsigned char KIND[256]
cdef unsigned char LOWER[256]

# What a name that matters does to a head.
cdef enum:
    PLAIN = 0
    CUT = 1  # never sent on as it came
    UNKNOWN = 2  # the Python reader looks at heads with this one
    CONNECTION = 3
    LENGTH = 4
    CODING = 5
    LOGIN = 6  # matters where NTLM or Negotiate is spoken
    HOST = 7

cdef struct Name:
    const char *text
    int does
    int number


cdef class Names:
    """The names that matter in one direction, by their length."""

    cdef Name by_length[LONGEST_NAME][MOST_NAMES]
    cdef int count[LONGEST_NAME]
    cdef list names  # keeps the text alive; their numbers index it

    def __cinit__(self, names, slow, cut, logins):
        cdef int length
        self.names = sorted(names.union(logins))
        for length in range(LONGEST_NAME):
            self.count[length] = 0
        for number, name in enumerate(self.names):
            length = len(name)
            does = PLAIN
            if name in slow:
                does = UNKNOWN
            elif name == b"connection":
                does = CONNECTION
            elif name == b"content-length":
                does = LENGTH
            elif name == b"transfer-encoding":
                does = CODING
            elif name == b"host":
                does = HOST
            elif name in logins:
                does = LOGIN
            elif name in cut:
                does = CUT
            if length >= LONGEST_NAME or self.count[length] >= MOST_NAMES or number >= 64:
                raise ImportError("more names matter than the compiled reader has room for")
            self.by_length[length][self.count[length]] = Name(PyBytes_AS_STRING(name), does, number)
            self.count[length] += 1

    cdef const Name *find(self, const unsigned char *at, Py_ssize_t length) noexcept:
        """The name that stands there in any case; NULL: none that matters."""
        cdef int n, i
        cdef const unsigned char *text
        if length >= LONGEST_NAME:
            return NULL
        for n in range(self.count[length]):
            text = <const unsigned char *>self.by_length[length][n].text
            if text[0] != LOWER[at[0]] or text[length - 1] != LOWER[at[length - 1]]:
                continue
            for i in range(1, <int>length - 1):
                if text[i] != LOWER[at[i]]:
                    break
            else:
                return &self.by_length[length][n]
        return NULL


cdef void make_tables():
    cdef int octet
    for octet in range(256):
        LOWER[octet] = octet + 32 if 0x41 <= octet <= 0x5A else octet
        KIND[octet] = 0
        if octet == 0x09 or 0x20 <= octet <= 0x7E or octet >= 0x80:
            KIND[octet] |= VALUE
        if octet == 0x21 or octet == 0x22 or 0x24 <= octet <= 0x7E or octet >= 0x80:
            KIND[octet] |= TARGET
        if 0x30 <= octet <= 0x39 or 0x41 <= octet <= 0x5A or 0x61 <= octet <= 0x7A or octet in b"!#$%&'*+-.^_`|~":
            KIND[octet] |= TOKEN


make_tables()
cdef Names REQUEST = Names(
    field_names.REQUEST_NAMES, field_names.REQUEST_SLOW, field_names.REQUEST_CUT, field_names.REQUEST_LOGINS
)
cdef Names ANSWER = Names(
    field_names.ANSWER_NAMES, field_names.ANSWER_SLOW, field_names.ANSWER_CUT, field_names.ANSWER_LOGINS
)
cdef dict METHODS = {m.encode(): m for m in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")}


cdef struct Scanned:
    Py_ssize_t end  # behind the empty line
    Py_ssize_t first  # where the first field line begins
    Py_ssize_t cut, cut_end  # the line of Connection; 0: there is none
    Py_ssize_t host, host_end  # the line of Host; 0: there is none
    long long length  # Content-Length; -1: none
    bint chunked
    bint simple


cdef object fields(bytes data, Py_ssize_t at, Py_ssize_t most, Py_ssize_t count, Names names, Scanned *head):
    """The names that matter in the field lines from `at` on, lower case, with their values, lower case; the rest of what
    they say goes to `head`. None: not a whole head, or not a common one.
    """
    cdef const unsigned char *text = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t line, name_end, begin, n, lines = 0, stop
    cdef const Name *name
    cdef unsigned long long seen = 0
    cdef unsigned char *low
    cdef bytes value
    cdef dict found = {}
    if size - at > most:
        size = at + most
    head.first = at
    head.cut = head.cut_end = head.host = head.host_end = 0
    head.length = -1
    head.chunked = False
    head.simple = True
    while True:
        # The bytes object ends with a NUL, which is neither a token's nor a value's: no loop passes its end.
        line = at
        while KIND[text[at]] & TOKEN:
            at += 1
        name_end = at
        if name_end == line:
            if text[at] != 0x0D or text[at + 1] != 0x0A:
                return None
            at += 2
            if at > size:
                return None
            break
        if text[at] != 0x3A:
            return None
        at += 1
        begin = at
        while KIND[text[at]] & VALUE:
            at += 1
        if text[at] != 0x0D or text[at + 1] != 0x0A:
            return None
        stop = at
        at += 2
        lines += 1
        if at > size or lines > count:
            return None
        name = names.find(text + line, name_end - line)
        if name == NULL:
            continue
        if name.does == UNKNOWN or seen >> name.number & 1:
            return None
        n = begin
        while text[n] == 0x20 or text[n] == 0x09:
            n += 1
        if name.does == LOGIN:
            if LOWER[text[n]] == 0x6E:  # NTLM, Negotiate
                return None
            continue
        seen |= 1ULL << name.number
        value = PyBytes_FromStringAndSize(NULL, stop - n)
        low = <unsigned char *>PyBytes_AS_STRING(value)
        for n in range(n, stop):
            low[0] = LOWER[text[n]]
            low += 1
        low -= PyBytes_GET_SIZE(value)
        if name.does == CONNECTION:
            if PyBytes_GET_SIZE(value) != 10 or memcmp(low, b"keep-alive", 10):
                return None
            head.cut = line
            head.cut_end = at
        elif name.does == LENGTH:
            if head.chunked or not 1 <= PyBytes_GET_SIZE(value) <= 18:
                return None
            head.length = 0
            for n in range(PyBytes_GET_SIZE(value)):
                if not 0x30 <= low[n] <= 0x39:
                    return None
                head.length = head.length * 10 + (low[n] - 0x30)
        elif name.does == CODING:
            if head.length >= 0 or PyBytes_GET_SIZE(value) != 7 or memcmp(text + stop - 7, b"chunked", 7):
                return None
            if stop - begin > 8 or (stop - begin == 8 and text[begin] != 0x20):
                return None  # `FieldBlock.coded_plainly`
            head.chunked = True
        elif name.does == HOST:
            head.host = line
            head.host_end = at
        elif name.does == CUT:
            head.simple = False
        PyDict_SetItem(found, <object>names.names[name.number], value)
    head.end = at
    return found


def scan_request(bytes data not None, Py_ssize_t header_bytes, Py_ssize_t headers):
    """Read the head of a request that begins `data`, of at most so many bytes and fields.

    Returns None where it isn't whole or isn't common, else (end, method, target, specials, content_length, chunked,
    simple, edges): where the head ends, then what `RequestHead` calls so; `edges` is for `splice`.
    """
    cdef const unsigned char *text = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t at = 0, method_end, target_end
    cdef Scanned head
    while KIND[text[at]] & TOKEN:
        at += 1
    method_end = at
    if not 0 < method_end <= 64 or text[at] != 0x20:
        return None
    at += 1
    while KIND[text[at]] & TARGET:
        at += 1
    target_end = at
    if target_end == method_end + 1 or PyBytes_GET_SIZE(data) - at < 13 or memcmp(text + at, b" HTTP/1.1\r\n", 11):
        return None
    at += 11
    found = fields(data, at, header_bytes - at, headers, REQUEST, &head)
    if found is None:
        return None
    key = PyBytes_FromStringAndSize(<const char *>text, method_end)
    method = METHODS.get(key)
    if method is None:
        method = PyUnicode_DecodeASCII(<const char *>text, method_end, NULL)
    return (
        head.end,
        method,
        PyBytes_FromStringAndSize(<const char *>text + method_end + 1, target_end - method_end - 1),
        found,
        head.length if head.length >= 0 else None,
        head.chunked,
        head.simple,
        (head.first, head.cut, head.cut_end, head.host, head.host_end),
    )


def scan_answer(bytes data not None, Py_ssize_t header_bytes, Py_ssize_t headers):
    """Read the head of an answer that begins `data`, of at most so many bytes and fields.

    Returns None where it isn't whole or isn't common, else (end, status, specials, content_length, chunked, simple,
    edges): as `scan_request` does.
    """
    cdef const unsigned char *text = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t at = 13
    cdef int status
    cdef Scanned head
    if PyBytes_GET_SIZE(data) < 17 or memcmp(text, b"HTTP/1.1 ", 9) or text[12] != 0x20:
        return None
    if not (0x32 <= text[9] <= 0x39 and 0x30 <= text[10] <= 0x39 and 0x30 <= text[11] <= 0x39):
        return None
    status = (text[9] - 0x30) * 100 + (text[10] - 0x30) * 10 + (text[11] - 0x30)
    if status == 204 or status == 304:
        return None
    while KIND[text[at]] & VALUE:
        at += 1
    if text[at] != 0x0D or text[at + 1] != 0x0A:
        return None
    at += 2
    found = fields(data, at, header_bytes - at, headers, ANSWER, &head)
    if found is None or (head.length < 0 and not head.chunked):
        return None
    return (
        head.end,
        status,
        found,
        head.length if head.length >= 0 else None,
        head.chunked,
        head.simple,
        (head.first, head.cut, head.cut_end, head.host, head.host_end),
    )


def splice(bytes line not None, bytes raw not None, tuple edges not None, bytes host, bytes add not None):
    """A simple head to send on: a first line (b"": the one that came), the fields of `raw` without Connection, with this
    Host if there is one, then `add`, ready-made lines, and the empty line.
    """
    cdef Py_ssize_t first, cut, cut_end, at, at_end, size, start = 0, end = PyBytes_GET_SIZE(raw) - 2
    cdef const char *text = PyBytes_AS_STRING(raw)
    cdef Py_ssize_t length = PyBytes_GET_SIZE(line)
    cdef Py_ssize_t more = PyBytes_GET_SIZE(add)
    cdef bytes out
    cdef char *to
    first, cut, cut_end, at, at_end = edges
    if host is None:
        at = at_end = 0
    if length:
        start = first
    size = length + (end - start) - (cut_end - cut) + more + 2
    if at:
        size += 8 + PyBytes_GET_SIZE(host) - (at_end - at)
    out = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(out)
    memcpy(to, PyBytes_AS_STRING(line), length)
    to += length
    if cut and (not at or cut < at):
        to = copied(to, text, start, cut)
        start = cut_end
    if at:
        to = copied(to, text, start, at)
        memcpy(to, b"Host: ", 6)
        to += 6
        memcpy(to, PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host))
        to += PyBytes_GET_SIZE(host)
        memcpy(to, b"\r\n", 2)
        to += 2
        start = at_end
        if cut > at:
            to = copied(to, text, start, cut)
            start = cut_end
    to = copied(to, text, start, end)
    memcpy(to, PyBytes_AS_STRING(add), more)
    memcpy(to + more, b"\r\n", 2)
    return out


cdef inline char *copied(char *to, const char *text, Py_ssize_t start, Py_ssize_t end) noexcept:
    memcpy(to, text + start, end - start)
    return to + (end - start)
