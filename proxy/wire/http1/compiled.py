"""The compiled part of reading heads (scan.pyx): None if it was not built, or if only Python is wanted.

It changes nothing but what a head costs (`docs/decisions/0011-compiled-heads.md`).
"""

from __future__ import annotations

from collections.abc import Callable

#: Offsets in a head: its first field line, the line of Connection and what is behind it, those of Host; 0: none.
Edges = tuple[int, int, int, int, int]
#: Where the head ends, method, target, specials, content_length, chunked, simple: what `RequestHead` calls so.
ScannedRequest = tuple[int, str, bytes, dict[bytes, bytes], int | None, bool, bool, Edges]
#: Where the head ends, status, specials, content_length, chunked, simple: what `ResponseHead` calls so.
ScannedAnswer = tuple[int, int, dict[bytes, bytes], int | None, bool, bool, Edges]

#: Read the head that begins some bytes, of at most so many bytes and fields; None: it is not whole, or not common.
ScanRequest = Callable[[bytes, int, int], ScannedRequest | None]
ScanAnswer = Callable[[bytes, int, int], ScannedAnswer | None]

scan_request: ScanRequest | None
scan_answer: ScanAnswer | None
#: A simple head to send on: first line (b"": as it came), raw head, its edges, Host to send or None, lines to add.
splice: Callable[[bytes, bytes, Edges, bytes | None, bytes], bytes] | None

try:
    from proxy.wire.http1.scan import scan_answer, scan_request, splice
except ImportError:
    scan_request = scan_answer = splice = None

#: Which of both it is, as `--version` and `/readyz?verbose` say it.
CORE = "Python" if scan_request is None else "compiled"
