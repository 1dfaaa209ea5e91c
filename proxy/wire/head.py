"""Heads, as other rooms take them from here: a request's, an answer's, trailers as fields, and how a body is framed."""

from proxy.wire.asked import Asked
from proxy.wire.field_names import ANSWER_CUT, REQUEST_CUT
from proxy.wire.fields import CHUNKED, UNTIL_CLOSE, FieldBlock, Trailers, trailer_fields
from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.response import ResponseHead

__all__ = [
    "ANSWER_CUT",
    "CHUNKED",
    "REQUEST_CUT",
    "UNTIL_CLOSE",
    "Asked",
    "FieldBlock",
    "RequestHead",
    "ResponseHead",
    "Trailers",
    "trailer_fields",
]
