# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True, binding=False
"""Compiled code for the octets of HTTP/2 that are read and written most often: frame headers, Huffman strings.

Law: every function returns what `wire.http2.frames` and `wire.http2.hpack` compute without it, value for value.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from proxy.wire.http2.tables import CODE_LENGTHS

cdef enum:
    HEADER_SIZE = 9
    NODES = 513  # the nodes of a tree with 257 leaves
    END = 256  # the symbol that no string contains


cdef class FrameHeader:
    """The header of a frame, as `struct.Struct(">HBBBI")` packs and unpacks it."""

    cpdef bytes pack(self, int high, int low, int kind, int flags, long long stream):
        """Return a header: length (16 and 8 bits), type, flags, stream."""
        cdef bytes out = PyBytes_FromStringAndSize(NULL, HEADER_SIZE)
        cdef unsigned char *to = <unsigned char *>PyBytes_AS_STRING(out)
        if not (0 <= high <= 0xFFFF and 0 <= low <= 0xFF and 0 <= kind <= 0xFF and 0 <= flags <= 0xFF):
            raise ValueError("a frame's header holds no such number")
        if not 0 <= stream <= 0xFFFFFFFF:
            raise ValueError("a frame's header holds no such stream")
        to[0] = high >> 8
        to[1] = high & 0xFF
        to[2] = low
        to[3] = kind
        to[4] = flags
        to[5] = stream >> 24 & 0xFF
        to[6] = stream >> 16 & 0xFF
        to[7] = stream >> 8 & 0xFF
        to[8] = stream & 0xFF
        return out

    cpdef (int, int, int, int, long long) unpack_from(self, bytes data, Py_ssize_t at) except *:
        """Return length (16 and 8 bits), type, flags and stream of the header at `at`."""
        if data is None or at < 0 or PyBytes_GET_SIZE(data) - at < HEADER_SIZE:
            raise ValueError("a frame's header is cut short")
        cdef const unsigned char *text = <const unsigned char *>PyBytes_AS_STRING(data) + at
        cdef long long stream = <long long>text[5] << 24 | text[6] << 16 | text[7] << 8 | text[8]
        return text[0] << 8 | text[1], text[2], text[3], text[4], stream


cdef class Slicer:
    """An object that cuts bytes without making a slice object."""

    cpdef bytes cut(self, bytes data, Py_ssize_t start, Py_ssize_t end):
        """Return `data[start:end]`; both offsets must be within `data`."""
        if data is None or not 0 <= start <= end <= PyBytes_GET_SIZE(data):
            raise ValueError("a slice of what is not there")
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + start, end - start)


# The Huffman tree: the node that each bit leads to; a leaf is -1 less its symbol. Node 0 is the root, to which no bit
# leads.
cdef short TREE[NODES][2]
# Whether a string may end at a node: only if at most 7 bits, all 1, lead there from the root (RFC 7541 section 5.2).
cdef unsigned char MAY_END[NODES]


cdef void plant() except *:
    cdef int symbol, at, bit, shift, length, before = 0, count = 1
    cdef unsigned int code = 0
    for at in range(NODES):
        TREE[at][0] = TREE[at][1] = 0
        MAY_END[at] = 0
    for symbol in sorted(range(len(CODE_LENGTHS)), key=CODE_LENGTHS.__getitem__):
        length = CODE_LENGTHS[symbol]
        code <<= length - before
        before = length
        at = 0
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            if TREE[at][bit] == 0:
                TREE[at][bit] = count
                count += 1
            at = TREE[at][bit]
        TREE[at][code & 1] = -1 - symbol
        code += 1
    at = 0
    for shift in range(8):
        MAY_END[at] = 1
        at = TREE[at][1]


plant()


def unhuffed(bytes text not None):
    """Return the text of a Huffman-coded string, None if it is malformed."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text), n, written = 0
    cdef const unsigned char *coded = <const unsigned char *>PyBytes_AS_STRING(text)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, size * 8 // 5 + 1)  # no symbol is shorter than 5 bits
    cdef char *to = PyBytes_AS_STRING(out)
    cdef int at = 0, bit
    for n in range(size):
        for bit in range(7, -1, -1):
            at = TREE[at][coded[n] >> bit & 1]
            if at < 0:
                if at == -1 - END:
                    return None
                to[written] = -1 - at
                written += 1
                at = 0
    return out[:written] if MAY_END[at] else None
