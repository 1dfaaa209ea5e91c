# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True, cdivision=True,
# binding=False
"""A call's JSON written by compiled code, letter by letter into memory: what `proxy.observe.call_json` makes of it.

Law: both make the same of any record. This writes what is common: ASCII without anything to quote, durations of less
than a million seconds, queries of at most 32 parts. Of whatever else the Python functions make the text, and it is
copied from there.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.math cimport signbit
from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcpy, strlen

from proxy.observe.call_record cimport CallRecord, Course
from proxy.retry.call.attempt_record cimport AttemptRecord

from json.encoder import encode_basestring_ascii as quote

from proxy.observe import masking
from proxy.observe.call_json import fallback_json, policy_json, timestamp, trace_json
from proxy.observe.call_record import SUCCESS
from proxy.wire.http2.frames import code_name

cdef extern from *:
    """
    #define EACH(octet) (UINT64_C(0x0101010101010101) * (octet))  /* in each of eight octets */
    """
    uint64_t EACH(int octet) nogil

cdef extern from "Python.h":
    bint PyUnicode_Check(object text)
    bint PyUnicode_IS_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void *PyUnicode_DATA(object text)
    unicode PyUnicode_New(Py_ssize_t size, Py_UCS4 most)
    bint PyFloat_CheckExact(object number)
    double PyFloat_AS_DOUBLE(object number)

cdef enum:
    ROOM = 2048  # octets that a line has without asking for memory
    USUAL = 512  # octets of a line, for which memory is asked at once where there are several
    PARTS = 32  # of a query, which are masked here
    KEPT = 4096  # policies whose part is remembered at most: reloads leave old ones behind

cdef struct Line:
    char *text
    Py_ssize_t size
    Py_ssize_t room
    char own[ROOM]

# Octets that JSON cannot have within quotes as they are, and those that json's own encoder escapes too.
cdef unsigned char ESCAPED[256]


#: The two digits of each number below a hundred.
cdef char PAIRS[200]


cdef void make_table():
    cdef int octet
    for octet in range(100):
        PAIRS[2 * octet] = 0x30 + octet // 10
        PAIRS[2 * octet + 1] = 0x30 + octet % 10
    for octet in range(256):
        ESCAPED[octet] = not 0x20 <= octet <= 0x7E or octet == 0x22 or octet == 0x5C


make_table()
cdef dict policies = {}  # what stands between a call's time and its method
cdef long long latest_second = -1  # the second of the latest timestamp, and its text
cdef char second_text[19]
cdef object latest_app = None  # the app of the latest call that had one, and its member of the JSON
cdef char app_text[80]
cdef Py_ssize_t app_size = 0


def call_lines(list calls not None):
    """Calls as JSON, each in one line with its line end."""
    cdef Line line
    cdef CallRecord call
    begin(&line)
    grow(&line, USUAL * len(calls))
    try:
        for call in calls:
            write_call(&line, call)
            put(&line, b'\n')
        return end(&line)
    finally:
        if line.text != line.own:
            PyMem_Free(line.text)


def call_json(CallRecord call not None):
    """A call as JSON in one line, without a line end."""
    cdef Line line
    begin(&line)
    try:
        write_call(&line, call)
        return end(&line)
    finally:
        if line.text != line.own:
            PyMem_Free(line.text)


def attempt_json(AttemptRecord record not None, double started):
    """One sending as JSON: when (seconds into the call), how long, what came back, why it was or was not retried."""
    cdef Line line
    begin(&line)
    try:
        write_attempt(&line, record, started)
        return end(&line)
    finally:
        if line.text != line.own:
            PyMem_Free(line.text)


cdef void begin(Line *line) noexcept:
    line.text, line.size, line.room = line.own, 0, ROOM


cdef unicode end(Line *line):
    made = PyUnicode_New(line.size, 127)
    memcpy(PyUnicode_DATA(made), line.text, line.size)
    return made


cdef int write_call(Line *line, CallRecord call) except -1:
    cdef AttemptRecord record
    cdef Course course = call.course
    cdef double started = call.started, seconds = call.ended - started
    cdef Py_ssize_t duration_at, duration_size  # where the duration stands
    cdef char *at
    cdef bint is_first = True
    put(line, b'{"time":"')
    time(line, call.wall_started)
    said = policies.get(call.policy)
    if said is None:
        if len(policies) >= KEPT:
            policies.clear()
        said = policies[call.policy] = policy_json(call.policy)
    plain(line, said)
    plain(line, call.method)
    put(line, b'","host":')
    host(line, call.authority)
    put(line, b',"path":')
    target(line, call.path)
    put(line, b',"client":"')
    plain(line, call.client)
    put(line, b'","status":')
    number(line, call.status)
    put(line, b',"outcome":"')
    plain(line, course.outcome)
    put(line, b'","attempts":')
    number(line, course.attempts)
    put(line, b',"duration":')
    duration_at = line.size
    duration(line, seconds)
    duration_size = line.size - duration_at
    put(line, b',"bytes_in":')
    number(line, call.bytes_in)
    put(line, b',"bytes_out":')
    number(line, call.bytes_out)
    put(line, b',"endpoint":')
    text(line, call.endpoint)
    protocol(line, call.protocol)
    if call.app:
        app(line, call.app)
    if call.grpc_status is not None:
        put(line, b',"grpc_status":')
        number(line, call.grpc_status)
    if course.agent:
        put(line, b',"agent":')
        text(line, course.agent)
    if course.app_retry:
        put(line, b',"app_retry":true')
    if course.trace:
        put(line, b',')
        plain(line, trace_json(course.trace))
    if course.fallbacks:
        put(line, b',"fallbacks":[')
        plain(line, ",".join(map(fallback_json, course.fallbacks)))
        put(line, b']')
    if course.detail:
        put(line, b',"detail":')
        text(line, course.detail)
    put(line, b',"history":[')
    if course.history:
        for record in course.history:
            if not is_first:
                put(line, b',')
            is_first = False
            write_attempt(line, record, started)
    elif course.attempts == 1 and course.outcome is SUCCESS:
        put(line, b'{"attempt":1,"start":0.0')
        if course.key is not None:
            put(line, b'00000')
        put(line, b',"duration":')
        at = space(line, duration_size)
        memcpy(at, line.text + duration_at, duration_size)
        line.size += duration_size
        if course.key is not None:
            named(line, b',"endpoint":', call.endpoint)
        protocol(line, call.sent_by)
        if course.key is not None:
            put(line, b',"key":')
            number(line, <long>course.key + 1)
        put(line, b',"status":')
        number(line, call.status)
        put(line, b',"class":"success","decision":"delivered"}')
    return put(line, b']}')


cdef int write_attempt(Line *line, AttemptRecord record, double started) except -1:
    put(line, b'{"attempt":')
    number(line, record.attempt)
    put(line, b',"start":')
    fixed(line, record.started - started)
    if record.ended is not None:
        put(line, b',"duration":')
        fixed(line, <double>record.ended - record.started)
    named(line, b',"upstream":', record.upstream)
    named(line, b',"route":', record.route)
    named(line, b',"endpoint":', record.endpoint)
    protocol(line, record.protocol)
    if record.key is not None:
        put(line, b',"key":')
        number(line, <long>record.key + 1)
    if record.status is not None:
        put(line, b',"status":')
        number(line, record.status)
    if record.grpc_status is not None:
        put(line, b',"grpc_status":')
        number(line, record.grpc_status)
    named(line, b',"fault":', record.fault)
    if record.rst_code is not None:
        named(line, b',"rst_code":', code_name(record.rst_code))
    named(line, b',"detail":', record.detail)
    named(line, b',"class":', record.cls)
    named(line, b',"because":', record.because)
    named(line, b',"pushback":', record.pushback)
    if record.pushback_delay is not None:
        put(line, b',"pushback_delay":')
        plain(line, f"{record.pushback_delay:.3f}")
    price(line, record.price)
    if record.held != 0.0 and round(record.held, 6):
        put(line, b',"held":')
        fixed(line, record.held)
    named(line, b',"held_by":', record.held_by)
    put(line, b',"decision":')
    text(line, record.decision)
    named(line, b',"why":', record.why)
    named(line, b',"range":', record.range)
    if record.first_byte is not None:
        put(line, b',"first_byte":')
        fixed(line, record.first_byte)
    if record.delay is not None:
        put(line, b',"delay":')
        fixed(line, record.delay)
    return put(line, b'}')


cdef inline int named(Line *line, const char *name, object value) except -1:
    """A name and a text, where there is one."""
    if value is not None and size_of(value):
        put(line, name)
        return text(line, value)
    return 0


cdef inline int protocol(Line *line, object value) except -1:
    if size_of(value):
        put(line, b',"protocol":"')
        plain(line, value)
        put(line, b'"')
    return 0


cdef int duration(Line *line, double seconds) except -1:
    """Seconds, of what may have taken no time at all."""
    return put(line, b'0.0') if seconds == 0.0 else fixed(line, seconds)


cdef int app(Line *line, object name) except -1:
    """The member that names a call's app; it is mostly that of the call before."""
    global latest_app, app_size
    cdef Py_ssize_t begun = line.size
    if name is latest_app:
        memcpy(space(line, app_size), app_text, app_size)
        line.size += app_size
        return 0
    put(line, b',"app":')
    text(line, name)
    if line.size - begun <= <Py_ssize_t>sizeof(app_text):
        latest_app, app_size = name, line.size - begun
        memcpy(app_text, line.text + begun, app_size)
    return 0


cdef int price(Line *line, object value) except -1:
    """What a retry had paid, as Python writes it: an integer or a float. Most are few and whole."""
    cdef double paid
    if not value:
        return 0
    put(line, b',"price":')
    if PyFloat_CheckExact(value):
        paid = PyFloat_AS_DOUBLE(value)
        if 0.0 < paid < 1e6 and paid == <long>paid:
            number(line, <long>paid)
            return put(line, b'.0')
    return plain(line, repr(value))


cdef int time(Line *line, double wall) except -1:
    """Seconds since the epoch as RFC 3339 in UTC with milliseconds."""
    global latest_second
    cdef long long second
    cdef int thousandths
    cdef char *at
    if not 0.0 <= wall < 1e11:
        return plain(line, timestamp(wall))
    second = <long long>wall
    if second != latest_second:
        said = timestamp(<double>second)
        if not PyUnicode_IS_ASCII(said) or PyUnicode_GET_LENGTH(said) != 24:  # of another millennium than ours
            return plain(line, timestamp(wall))
        memcpy(second_text, PyUnicode_DATA(said), 19)
        latest_second = second
    thousandths = <int>((wall - <double>second) * 1000)
    at = space(line, 24)
    memcpy(at, second_text, 19)
    at[19] = 0x2E
    at[20] = 0x30 + thousandths // 100
    at[21] = 0x30 + thousandths // 10 % 10
    at[22] = 0x30 + thousandths % 10
    at[23] = 0x5A
    line.size += 24
    return 0


cdef int host(Line *line, object authority) except -1:
    """The authority that the app named, in quotes, without user info."""
    cdef Py_ssize_t size = size_of(authority)
    if PyUnicode_IS_ASCII(authority) and memchr(PyUnicode_DATA(authority), 0x40, size) == NULL:
        return text(line, authority)
    return text(line, masking.authority(authority))


cdef int target(Line *line, object path) except -1:
    """A request's path in quotes, with the values of its query and of its path parameters masked as `masking.target`
    does, which is asked where there are any of the latter.
    """
    cdef const char *at
    cdef const char *query
    cdef const char *stop
    cdef const char *name_end
    cdef const char *part_end
    cdef Py_ssize_t begun = line.size
    cdef Py_ssize_t size = size_of(path)
    cdef int parts = 0
    if PyUnicode_IS_ASCII(path):
        at = <const char *>PyUnicode_DATA(path)
        stop = at + size
        if memchr(at, 0x40, stop - at) == NULL:
            query = <const char *>memchr(at, 0x3F, stop - at)
            if has_parameters(at, stop if query == NULL else query):
                return text(line, masking.target(path))
            if query == NULL or query + 1 == stop:
                return text(line, path)
            put(line, b'"')
            query += 1
            while octets(line, at, query - at):
                parts += 1
                if parts > PARTS:
                    break
                at = query
                part_end = <const char *>memchr(at, 0x26, stop - at)
                if part_end == NULL:
                    part_end = stop
                name_end = <const char *>memchr(at, 0x3D, part_end - at)
                if name_end != NULL and not octets(line, at, name_end + 1 - at):
                    break
                put(line, b'***')
                if part_end == stop:
                    return put(line, b'"')
                at, query = part_end, part_end + 1
            line.size = begun
    return text(line, masking.target(path))


cdef bint has_parameters(const char *at, const char *stop) noexcept nogil:
    """Whether a path has `;` in it, or `%3`, which may begin one."""
    if memchr(at, 0x3B, stop - at) != NULL:
        return True
    at = <const char *>memchr(at, 0x25, stop - at)
    while at != NULL and at + 1 < stop:
        if at[1] == 0x33:
            return True
        at = <const char *>memchr(at + 1, 0x25, stop - at - 1)
    return False


cdef int text(Line *line, object value) except -1:
    """A text in quotes."""
    cdef Py_ssize_t begun = line.size
    cdef Py_ssize_t size = size_of(value)
    if PyUnicode_IS_ASCII(value):
        put(line, b'"')
        if octets(line, <const char *>PyUnicode_DATA(value), size):
            return put(line, b'"')
        line.size = begun
    return plain(line, quote(value))


cdef int plain(Line *line, object value) except -1:
    """A text in which there is nothing to quote, nor ever was: a method, an address, a number, JSON."""
    cdef Py_ssize_t size = size_of(value)
    if not PyUnicode_IS_ASCII(value):
        return plain(line, quote(value)[1:-1])
    memcpy(space(line, size), PyUnicode_DATA(value), size)
    line.size += size
    return 0


cdef inline Py_ssize_t size_of(object value) except -1:
    """How long a text is; of anything else nothing may be read."""
    if not PyUnicode_Check(value):
        raise TypeError(f"a text is needed, not {value!r}")
    return PyUnicode_GET_LENGTH(value)


cdef inline uint64_t escaped_of(const char *at) noexcept nogil:
    """What the table says of eight octets: in each that is escaped, the highest bit is set. (If none is, none is.)"""
    cdef uint64_t eight, quotes, strokes, deletes
    memcpy(&eight, at, 8)
    quotes, strokes, deletes = eight ^ EACH(0x22), eight ^ EACH(0x5C), eight ^ EACH(0x7F)
    return (
        eight
        | (eight - EACH(0x20))
        | ((quotes - EACH(1)) & ~quotes)
        | ((strokes - EACH(1)) & ~strokes)
        | ((deletes - EACH(1)) & ~deletes)
    )


cdef int octets(Line *line, const char *at, Py_ssize_t size) except -1:
    """Whether they could be written as they are, and were."""
    cdef Py_ssize_t n
    cdef unsigned char escaped = 0
    cdef uint64_t odd
    if size < 8:
        for n in range(size):
            escaped |= ESCAPED[<unsigned char>at[n]]
        if escaped:
            return 0
    else:
        odd = escaped_of(at + size - 8)
        n = 0
        while n < size - 8:
            odd |= escaped_of(at + n)
            n += 8
        if odd & EACH(0x80):
            return 0
    memcpy(space(line, size), at, size)
    line.size += size
    return 1


cdef int fixed(Line *line, double seconds) except -1:
    """Seconds with six decimals, rounded as Python rounds: to the nearest, of what is exactly stored.

    A product of less than 10^12 is off by 2^-14 at most: whatever is not that close to the middle of two is rounded
    right.
    """
    cdef double millionths = seconds * 1e6
    cdef unsigned long long whole
    cdef unsigned int units, rest
    cdef double beyond
    cdef char *at
    if 0.0 <= seconds < 1e6 and not signbit(seconds):
        whole = <unsigned long long>millionths
        beyond = millionths - <double>whole
        if not 0.499 < beyond < 0.501:
            if beyond > 0.5:
                whole += 1
            units = <unsigned int>(whole // 1000000)
            rest = <unsigned int>(whole % 1000000)
            if units < 10:
                at = space(line, 8)
                at[0] = 0x30 + <char>units
                at += 1
                line.size += 1
            else:
                number(line, units)
                at = space(line, 7)
            at[0] = 0x2E
            memcpy(at + 5, PAIRS + 2 * (rest % 100), 2)
            rest //= 100
            memcpy(at + 3, PAIRS + 2 * (rest % 100), 2)
            memcpy(at + 1, PAIRS + 2 * (rest // 100), 2)
            line.size += 7
            return 0
    return plain(line, f"{seconds:.6f}")


cdef int number(Line *line, long long value) except -1:
    """An integer."""
    cdef char digits[24]
    cdef int at = 24
    cdef unsigned long long rest = <unsigned long long>value
    if value < 0:
        return plain(line, str(value))
    while True:
        at -= 1
        digits[at] = 0x30 + <char>(rest % 10)
        rest //= 10
        if rest == 0:
            break
    memcpy(space(line, 24 - at), &digits[at], 24 - at)
    line.size += 24 - at
    return 0


cdef inline int put(Line *line, const char *literal) except -1:
    """What stands in the source."""
    cdef size_t size = strlen(literal)
    memcpy(space(line, size), literal, size)
    line.size += size
    return 0


cdef inline char *space(Line *line, Py_ssize_t more) except NULL:
    """Where so many octets may be written."""
    if line.room - line.size < more:
        grow(line, more)
    return line.text + line.size


cdef int grow(Line *line, Py_ssize_t more) except -1:
    cdef Py_ssize_t room = line.room + (line.room >> 1) + more
    cdef char *grown = <char *>PyMem_Malloc(room)
    if grown == NULL:
        raise MemoryError
    memcpy(grown, line.text, line.size)
    if line.text != line.own:
        PyMem_Free(line.text)
    line.text, line.room = grown, room
    return 0
