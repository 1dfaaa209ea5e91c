"""HPACK's tables (RFC 7541): the static table, the Huffman code, and the dynamic table that a peer fills until it has
given it up (section 2.3.2).
"""

from __future__ import annotations

from collections import deque

# Appendix A.
_STATIC = b"""\
:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate
"""
#: Names and values of the static table, in the order of their indexes, which begin at 1.
STATIC: tuple[tuple[bytes, bytes], ...] = tuple(
    (name, value) for name, _, value in (line.partition(b" ") for line in _STATIC.splitlines())
)
#: The number of bits of each octet's Huffman code, and last of the end-of-string code (RFC 7541, appendix B). The codes
#: follow from these: the first is 0, and they count up by length and then by octet.
CODE_LENGTHS = bytes((
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
))  # fmt: skip
#: The most bytes of a dynamic table unless its reader announces another size (RFC 9113 section 6.5.2).
MOST = 4096
#: The bytes that a field counts for beyond its name and value (RFC 7541 section 4.1).
OVERHEAD = 32


class DynamicTable:
    """The dynamic table of a peer that has not set another size yet (RFC 7541 section 4). `size`: the most bytes that
    it may hold.
    """

    __slots__ = ("_entries", "_held", "size")

    def __init__(self) -> None:
        self.size = MOST
        self._entries: deque[tuple[bytes, bytes]] = deque()
        self._held = 0

    @property
    def is_empty(self) -> bool:
        """Whether the table has no field."""
        return not self._entries

    def __getitem__(self, index: int) -> tuple[bytes, bytes]:
        """Return the field with an index; the static table comes first. Raises IndexError if there is none."""
        if index < 1:
            raise IndexError(index)
        return STATIC[index - 1] if index <= len(STATIC) else self._entries[index - len(STATIC) - 1]

    def add(self, name: bytes, value: bytes) -> None:
        """Add a field at the front, and evict from the end what no longer fits, the field itself too if it is too
        large.
        """
        self._entries.appendleft((name, value))
        self._held += len(name) + len(value) + OVERHEAD
        self.resize(self.size)

    def resize(self, size: int) -> None:
        """Let the table hold `size` bytes, and evict what no longer fits. Raises ValueError if that is above MOST."""
        if size > MOST:
            raise ValueError(f"a table of {size} bytes")
        self.size = size
        while self._held > size:
            name, value = self._entries.pop()
            self._held -= len(name) + len(value) + OVERHEAD
