"""Floor 0: bytes to messages. A strict HTTP/1 grammar; pure, no I/O.

The room's front desk: other rooms take these names from here.
"""

from proxy.wire.body import Body, ChunkedBody, LengthBody, UntilCloseBody, body_reader, chunk, end_chunked
from proxy.wire.fields import CHUNKED, UNTIL_CLOSE, FieldBlock, trailer_fields
from proxy.wire.grammar import HEADER_BYTES, HEADERS, RequestParser, ResponseParser
from proxy.wire.request import RequestHead
from proxy.wire.response import ResponseHead
from proxy.wire.syntax import BadAnswer, BadBody, Refused, WireError

__all__ = [
    "CHUNKED",
    "HEADERS",
    "HEADER_BYTES",
    "UNTIL_CLOSE",
    "BadAnswer",
    "BadBody",
    "Body",
    "ChunkedBody",
    "FieldBlock",
    "LengthBody",
    "Refused",
    "RequestHead",
    "RequestParser",
    "ResponseHead",
    "ResponseParser",
    "UntilCloseBody",
    "WireError",
    "body_reader",
    "chunk",
    "end_chunked",
    "trailer_fields",
]
