# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True, binding=False
"""Reading common heads in one pass by compiled code: the same as what `RequestHead` and `ResponseHead` read.

Law: what this module reads of a head is what the Python reader reads of it. If it is not sure of a head, it returns
None, and the Python reader decides; nothing is refused here, so refusals have one source. The grammar is that of
`wire.http1.syntax`; the names that matter are taken from `wire.field_names` when the module is loaded.

Most heads differ only in their targets, and in fields that decide nothing. The values of the names that matter recur,
on all connections, so heads that have the same values share them (`Said`).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_SetItem
from cpython.list cimport PyList_GET_ITEM
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.string cimport memcmp, memcpy, memset

from proxy.wire.http1.octets cimport KIND, LOWER, TOKEN, is_name, make_tables, target_end_at, token_end, value_end
from proxy.wire.http1.splice cimport PLACES, Edges, ask_for

from proxy.wire import field_names

cdef enum:
    LONGEST_NAME = 40
    MOST_NAMES = 8  # the most names of one length
    MOST_SPECIALS = 64
    SAID = 128  # slots for remembered values, for each direction; a power of two
    LONGEST_SAID = 512  # the most octets of the values that are remembered together

# What a name that matters does to a head.
cdef enum:
    PLAIN = 0
    CUT = 1  # never forwarded as it came
    UNKNOWN = 2  # the Python reader reads heads with this name
    CONNECTION = 3
    LENGTH = 4
    CODING = 5
    LOGIN = 6  # matters only if its value is NTLM or Negotiate
    HOST = 7
    USER = 8  # never forwarded, and may name an app
    ASKED = 9  # only the place of its line is wanted: `read_also`

cdef struct Name:
    const char *text
    int does
    int number


cdef class Names:
    """The names that matter in one direction, by their length, and the values that recent heads had for them."""

    cdef Name by_length[LONGEST_NAME][MOST_NAMES]
    cdef int count[LONGEST_NAME]
    cdef unsigned int begins[LONGEST_NAME]  # the letters that names of each length begin with, a bit each
    cdef list names  # keeps the names' text alive; a name's number is its index here
    cdef list said  # `Said` by slot, the low bits of the hash of its values
    cdef unsigned int once[SAID]  # hashes of values that came once
    cdef int length  # the number of Content-Length

    def __cinit__(self, names, slow, cut, logins, asked=frozenset()):
        cdef int length
        if not asked.isdisjoint(names.union(logins)):
            raise ValueError("a name is asked for that matters anyway")
        self.names = sorted(names.union(logins, asked))
        self.said = [None] * SAID
        for length in range(SAID):
            self.once[length] = 0
        for length in range(LONGEST_NAME):
            self.count[length] = 0
            self.begins[length] = 0
        for number, name in enumerate(self.names):
            length = len(name)
            does = PLAIN
            if name in slow:
                does = UNKNOWN
            elif name == b"connection":
                does = CONNECTION
            elif name == b"content-length":
                does = LENGTH
                self.length = number
            elif name == b"transfer-encoding":
                does = CODING
            elif name == b"host":
                does = HOST
            elif name in logins:
                does = LOGIN
            elif name == b"proxy-authorization" and name in cut:
                does = USER
            elif name in cut:
                does = CUT
            elif name in asked:
                does = ASKED
            if not name.replace(b"-", b"").isalnum() or name != name.lower():
                raise ValueError("a name that matters has a letter that `is_name` takes for another")
            if length >= LONGEST_NAME or self.count[length] >= MOST_NAMES or number >= MOST_SPECIALS:
                raise ValueError("more names matter than the compiled reader has room for")
            self.by_length[length][self.count[length]] = Name(PyBytes_AS_STRING(name), does, number)
            self.count[length] += 1
            self.begins[length] |= 1U << (name[0] & 31)

    cdef inline const Name *find(self, const unsigned char *at, Py_ssize_t length) noexcept:
        """The name that matters and that the token at `at` is, in any case; NULL if it is none of them."""
        cdef int n
        if length >= LONGEST_NAME or not self.begins[length] >> (at[0] & 31) & 1:
            return NULL
        for n in range(self.count[length]):
            if is_name(at, <const unsigned char *>self.by_length[length][n].text, length):
                return &self.by_length[length][n]
        return NULL


cdef class Said:
    """The values of the names that matter in a head, but for the body's length, and what follows from them alone."""

    cdef bytes signature  # the numbers and values of the names, in order
    cdef dict specials  # without the value of Content-Length
    cdef str authority  # of a request in origin form; None: not known yet
    cdef bytes host  # the Host to send with it, if it differs from what came


make_tables()
cdef Names REQUEST = Names(
    field_names.REQUEST_NAMES, field_names.REQUEST_SLOW, field_names.REQUEST_CUT, field_names.REQUEST_LOGINS
)
cdef Names ANSWER = Names(
    field_names.ANSWER_NAMES, field_names.ANSWER_SLOW, field_names.ANSWER_CUT, field_names.ANSWER_LOGINS
)
#: The names that `read_also` was told last, and their number.
READ_ALSO = frozenset()
cdef int READING = ask_for(READ_ALSO)


def read_also(names):
    """Have the edges of the heads of requests that are read from now on also say where lines of these fields are: lower-case
    names as bytes, of fields that are left out only if this is asked for, and may name an app. Return the number of these
    names, as heads have it in their edges; 0 if these can't be looked for in passing, which changes nothing.
    """
    global REQUEST, READING, READ_ALSO
    if names == READ_ALSO:
        return READING
    try:
        REQUEST = Names(
            field_names.REQUEST_NAMES,
            field_names.REQUEST_SLOW,
            field_names.REQUEST_CUT,
            field_names.REQUEST_LOGINS,
            names,
        )
    except ValueError:
        return 0
    READ_ALSO, READING = names, ask_for(names)
    return READING


cpdef int same_naming(RequestHead head, RequestHead other, long reading) except -2:
    """Whether two heads have the same lines of the fields that name apps, octet for octet and in the same order: 1 or 0.
    -1 if their edges don't say it: there was no place for all lines, or they were read by other names than those of the
    number `reading`, or not by compiled code.
    """
    if head is None or other is None:
        raise TypeError("no head")
    cdef const Edges *ours = &head.edges
    cdef const Edges *theirs = &other.edges
    if not (ours.whole and theirs.whole and ours.reading == reading and theirs.reading == reading):
        return -1
    cdef const int *at = &ours.begin_0
    cdef const int *there = &theirs.begin_0
    cdef unsigned int left = theirs.naming
    cdef Py_ssize_t size
    cdef int n, m = 0
    for n in range(ours.cuts):
        if not ours.naming >> n & 1:
            continue
        if not left >> m:
            return 0
        while not left >> m & 1:
            m += 1
        size = at[2 * n + 1] - at[2 * n]
        if there[2 * m + 1] - there[2 * m] != size or memcmp(
            PyBytes_AS_STRING(head.raw) + at[2 * n], PyBytes_AS_STRING(other.raw) + there[2 * m], size
        ):
            return 0
        m += 1
    return not left >> m


cdef struct Method:
    const char *text
    Py_ssize_t length

cdef list METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]
cdef list METHODS_AS_BYTES = [name.encode() for name in METHODS]  # keeps the text alive
cdef Method METHOD[7]
for _number, _name in enumerate(METHODS_AS_BYTES):
    METHOD[_number] = Method(PyBytes_AS_STRING(_name), len(_name))


cdef struct Special:
    int number
    Py_ssize_t start, stop

cdef struct Scanned:
    Py_ssize_t end  # the offset after the empty line
    Edges edges
    long long length  # Content-Length; -1: none
    bint chunked
    bint keep_alive
    bint simple
    int count  # how many of the names that matter came
    Special specials[MOST_SPECIALS]


cdef inline void leave_out(Edges *edges, Py_ssize_t line, Py_ssize_t end, bint asked, bint naming) noexcept:
    """Take note of a line that is not forwarded: always, or if that is `asked`. `naming`: it may name an app."""
    cdef int *places = &edges.begin_0
    if edges.cuts == PLACES:
        edges.whole = False
        return
    places[2 * edges.cuts] = <int>line
    places[2 * edges.cuts + 1] = <int>end
    edges.asked |= <unsigned char>(asked << edges.cuts)
    edges.naming |= <unsigned char>(naming << edges.cuts)
    edges.cuts += 1


cdef bint fields(bytes data, Py_ssize_t at, Py_ssize_t most, Py_ssize_t count, Names names, Scanned *head) except -1:
    """Read the field lines from `at` on. False if the head is not whole, or not a common one."""
    cdef const unsigned char *text = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t whole = PyBytes_GET_SIZE(data), size = whole
    cdef Py_ssize_t line, name_end, begin, n, lines = 0, stop
    cdef const Name *name
    cdef Special *special
    cdef unsigned long long seen = 0
    if size - at > most:
        size = at + most
    if whole > 0x7FFFFFFF:
        return False  # an offset may have no place
    memset(&head.edges, 0, sizeof(Edges))
    head.edges.first = <int>at
    head.edges.whole = True
    head.edges.reading = READING if names is REQUEST else 0  # no line of an answer is left out only if asked to be
    head.length = -1
    head.chunked = False
    head.keep_alive = True
    head.simple = True
    head.count = 0
    while True:
        # The bytes object ends with a NUL, which is neither a token's nor a value's: no loop passes its end.
        line = at
        at = name_end = token_end(text, at, whole)
        if name_end == line:
            if text[at] != 0x0D or text[at + 1] != 0x0A:
                return False
            at += 2
            if at > size:
                return False
            break
        if text[at] != 0x3A:
            return False
        at += 1
        begin = at
        at = value_end(text, at, whole)
        if text[at] != 0x0D or text[at + 1] != 0x0A:
            return False
        stop = at
        at += 2
        lines += 1
        if at > size or lines > count:
            return False
        name = names.find(text + line, name_end - line)
        if name == NULL:
            continue
        if name.does == UNKNOWN or seen >> name.number & 1:
            return False
        n = begin
        while text[n] == 0x20 or text[n] == 0x09:
            n += 1
        if name.does == LOGIN:
            if LOWER[text[n]] == 0x6E:  # NTLM, Negotiate
                return False
            continue
        seen |= 1ULL << name.number
        if name.does == ASKED:
            leave_out(&head.edges, line, at, True, True)
            continue
        special = &head.specials[head.count]
        head.count += 1
        special.number = name.number
        special.start = n
        special.stop = stop
        if name.does == CONNECTION:
            if stop - n == 5 and is_option(text + n, "close", 5):
                head.keep_alive = False
            elif stop - n != 10 or not is_option(text + n, "keep-alive", 10):
                return False
            leave_out(&head.edges, line, at, False, False)
        elif name.does == LENGTH:
            if head.chunked or not 1 <= stop - n <= 18:
                return False
            head.length = 0
            for n in range(n, stop):
                if not 0x30 <= text[n] <= 0x39:
                    return False
                head.length = head.length * 10 + (text[n] - 0x30)
        elif name.does == CODING:
            if head.length >= 0 or stop - n != 7 or memcmp(text + n, b"chunked", 7):
                return False
            if stop - begin > 8 or (stop - begin == 8 and text[begin] != 0x20):
                return False  # what `FieldBlock.coded_plainly` is false for
            head.chunked = True
        elif name.does == HOST:
            head.edges.host = <int>line
            head.edges.host_end = <int>at
        elif name.does == CUT or name.does == USER:
            head.simple = False
            leave_out(&head.edges, line, at, False, name.does == USER)
    head.end = at
    return True


cdef inline bint is_option(const unsigned char *at, const char *option, int length) noexcept:
    """Whether the octets at `at`, in any case, are this option, which is written in lower case."""
    cdef int n
    for n in range(length):
        if LOWER[at[n]] != <unsigned char>option[n]:
            return False
    return True


cdef Said said_by(Names names, const unsigned char *text, Scanned *head):
    """The values of the names that matter in a head: shared with an earlier head that had the same, or read now.

    Values that came for the second time replace those in the same slot. Values that never recur, such as numbers and
    keys, thus displace nothing.
    """
    cdef unsigned char signature[LONGEST_SAID + 8]
    cdef unsigned long long sum = 0, word
    cdef unsigned int hash
    cdef int used = 0, n
    cdef unsigned int slot
    cdef Py_ssize_t at, size
    cdef Special *special
    cdef Said said
    cdef bytes value
    cdef unsigned char *low
    for n in range(head.count):
        special = &head.specials[n]
        if special.number == names.length:
            special.stop = special.start
        size = special.stop - special.start
        if used + size + 3 > LONGEST_SAID:
            used = -1
            break
        signature[used] = special.number
        signature[used + 1] = size & 0xFF
        signature[used + 2] = size >> 8
        memcpy(signature + used + 3, text + special.start, size)
        used += 3 + <int>size
    if used > 0:
        memset(signature + used, 0, 8)
    for n in range(0, used, 8):
        memcpy(&word, signature + n, 8)
        sum = (sum ^ word) * 0x9E3779B97F4A7C15ULL  # 2**64 over the golden ratio
        sum ^= sum >> 32
    hash = <unsigned int>sum
    slot = hash & (SAID - 1)
    if used >= 0:
        said = <Said>PyList_GET_ITEM(names.said, slot)
        if (
            said is not None
            and PyBytes_GET_SIZE(said.signature) == used
            and not memcmp(PyBytes_AS_STRING(said.signature), signature, used)
        ):
            return said
    said = Said.__new__(Said)
    said.specials = {}
    for n in range(head.count):
        special = &head.specials[n]
        value = PyBytes_FromStringAndSize(NULL, special.stop - special.start)
        low = <unsigned char *>PyBytes_AS_STRING(value)
        for at in range(special.start, special.stop):
            low[0] = LOWER[text[at]]
            low += 1
        PyDict_SetItem(said.specials, <object>PyList_GET_ITEM(names.names, special.number), value)
    if used >= 0:
        if names.once[slot] == hash:
            said.signature = PyBytes_FromStringAndSize(<char *>signature, used)
            names.said[slot] = said
        names.once[slot] = hash
    return said


cdef inline bint repeats(bytes data, bytes raw) noexcept:
    """Whether `data` begins with the head `raw`."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(raw)
    return PyBytes_GET_SIZE(data) >= size and not memcmp(PyBytes_AS_STRING(data), PyBytes_AS_STRING(raw), size)


cpdef RequestHead scan_request(bytes data, RequestHead last, Py_ssize_t header_bytes, Py_ssize_t headers):
    """Read the request head that begins `data`, of at most `header_bytes` bytes and `headers` fields, as `RequestHead`
    reads it. Return `last` itself if the same bytes came again, None if the head isn't whole or isn't common. Raises
    what `RequestHead` raises for the target and Host.
    """
    if data is None:
        raise TypeError("a head is read from bytes")
    if last is not None and last.raw is not None and repeats(data, last.raw):
        return last
    cdef const unsigned char *text = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t at = 0, method_end, target_end
    cdef Scanned scanned
    cdef Said said
    cdef RequestHead head
    cdef int n
    while KIND[text[at]] & TOKEN:
        at += 1
    method_end = at
    if not 0 < method_end <= 64 or text[at] != 0x20:
        return None
    at = target_end = target_end_at(text, at + 1, PyBytes_GET_SIZE(data))
    if target_end == method_end + 1 or PyBytes_GET_SIZE(data) - at < 13 or memcmp(text + at, b" HTTP/1.1\r\n", 11):
        return None
    at += 11
    if not fields(data, at, header_bytes - at, headers, REQUEST, &scanned):
        return None
    head = RequestHead.__new__(RequestHead)
    head.raw = data if scanned.end == PyBytes_GET_SIZE(data) else PyBytes_FromStringAndSize(<const char *>text, scanned.end)
    for n in range(7):
        if METHOD[n].length == method_end and not memcmp(METHOD[n].text, text, method_end):
            head.method = <str>PyList_GET_ITEM(METHODS, n)
            break
    else:
        head.method = PyUnicode_DecodeASCII(<const char *>text, method_end, NULL)
    head.target = PyBytes_FromStringAndSize(<const char *>text + method_end + 1, target_end - method_end - 1)
    said = said_by(REQUEST, text, &scanned)
    head.specials = said.specials
    if scanned.length >= 0:
        head.content_length = scanned.length
    head.chunked = scanned.chunked
    head.simple = scanned.simple
    head.version = HTTP_1_1
    head.keep_alive = scanned.keep_alive
    head.scanned = True
    head.edges = scanned.edges
    if said.authority is not None and text[method_end + 1] == 0x2F and not is_connect(text, method_end):
        head.form = ORIGIN
        head.path = head.target
        head.scheme = NOTHING
        head.authority = said.authority
        head._host = said.host
    else:
        head._locate()
        if head.form == ORIGIN:
            said.authority = head.authority
            said.host = head._host
    return head


cdef str ORIGIN = "origin"
cdef str HTTP_1_1 = "1.1"
cdef str NOTHING = ""


cdef inline bint is_connect(const unsigned char *text, Py_ssize_t size) noexcept:
    return size == 7 and not memcmp(text, b"CONNECT", 7)


cpdef ResponseHead scan_answer(bytes data, ResponseHead last, Py_ssize_t header_bytes, Py_ssize_t headers):
    """Read the answer head that begins `data`, with the arguments and results of `scan_request`."""
    if data is None:
        raise TypeError("a head is read from bytes")
    if last is not None and last.raw is not None and repeats(data, last.raw):
        return last
    cdef const unsigned char *text = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t at = 13
    cdef int status
    cdef Scanned scanned
    cdef Said said
    cdef ResponseHead head
    if PyBytes_GET_SIZE(data) < 17 or memcmp(text, b"HTTP/1.1 ", 9) or text[12] != 0x20:
        return None
    if not (0x32 <= text[9] <= 0x39 and 0x30 <= text[10] <= 0x39 and 0x30 <= text[11] <= 0x39):
        return None
    status = (text[9] - 0x30) * 100 + (text[10] - 0x30) * 10 + (text[11] - 0x30)
    if status == 204 or status == 304:
        return None
    at = value_end(text, at, PyBytes_GET_SIZE(data))
    if text[at] != 0x0D or text[at + 1] != 0x0A:
        return None
    at += 2
    if not fields(data, at, header_bytes - at, headers, ANSWER, &scanned):
        return None
    if scanned.length < 0 and not scanned.chunked:
        return None
    head = ResponseHead.__new__(ResponseHead)
    head.raw = data if scanned.end == PyBytes_GET_SIZE(data) else PyBytes_FromStringAndSize(<const char *>text, scanned.end)
    head.status = status
    said = said_by(ANSWER, text, &scanned)
    head.specials = said.specials
    if scanned.length >= 0:
        head.content_length = scanned.length
    head.chunked = scanned.chunked
    head.simple = scanned.simple
    head.version = HTTP_1_1
    head.keep_alive = scanned.keep_alive
    head.scanned = True
    head.edges = scanned.edges
    return head
