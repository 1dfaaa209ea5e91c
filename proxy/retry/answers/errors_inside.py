"""Errors in the body of a success, known by the root element of its XML (contract, section 15, "Errors inside a 200").

S3 begins its answers to some requests before it knows whether they succeed. A dialect pack (a file with a provider's
rules) lists these requests.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from proxy.retry.answers.content_coding import READABLE, coding_of_reply, decoded
from proxy.retry.answers.event_stream import media_type
from proxy.retry.answers.rules import any_matches
from proxy.retry.answers.xml_root import root_of
from proxy.retry.facts import Reply, Request
from proxy.retry.policies.dialect import AskedFor, Classify, ErrorsInside


def inside_of(rules: Classify, request: Request, reply: Reply) -> ErrorsInside | None:
    """The kind of errors that this answer, a success, may have in its body. None if the policy's packs name none for
    such a request, or if the body is not XML.
    """
    for each in rules.inside:
        if any(_is_asked_for(asked, request) for asked in each.requests) and _may_be_xml(reply):
            return each
    return None


def is_error(inside: ErrorsInside, reply: Reply, body: bytes) -> bool:
    """Whether a body, or its beginning, has the root element of an error of the kind `inside`."""
    return root_of(decoded(body, coding_of_reply(reply))) == inside.root


def _is_asked_for(asked: AskedFor, request: Request) -> bool:
    if request.method != asked.method:
        return False
    if asked.query and asked.query not in _parameters(request.path):
        return False
    return all(any_matches(list(request.fields.get_all(name)), glob) for name, glob in asked.headers)


def _parameters(path: str) -> set[str]:
    return {name for name, _ in parse_qsl(path.partition("?")[2], keep_blank_values=True, encoding="latin-1")}


def _may_be_xml(reply: Reply) -> bool:
    """Whether an answer has an XML body that can be looked at. A body without a media type may be XML."""
    if reply.end or coding_of_reply(reply) not in READABLE:
        return False
    media = media_type(reply)
    return not media or media in ("application/xml", "text/xml") or media.endswith("+xml")
