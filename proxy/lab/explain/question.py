"""The question that `redrive explain` answers: a request, and what happens to it upstream.

A mistake in the question is one line, raised as ValueError. A field given with -H is in the request and, if there is an
answer, in the answer as well: each side reads only what is meant for it (a `Retry-After` in a request has no effect,
and neither has an `X-Retry-Disable` in an answer). Fields for one side only are given separately.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from proxy.config.addresses import TOKEN
from proxy.config.problems import did_you_mean
from proxy.config.settings import Settings
from proxy.lab.routing import AppRequest, place_of
from proxy.lab.upstream import UpstreamStep
from proxy.observe import masking
from proxy.retry.facts import GRPC_STATUS_NUMBERS, FaultKind
from proxy.wire.http2.frames import CODES

_FIELD = re.compile(rf"({TOKEN.pattern}):[ \t]*([^\r\n\0]*)")
_URL = re.compile(r"https?://[^/?#\s]+[^\s]*|/[^\s]*", re.IGNORECASE)
_PLACE = re.compile(r"[^/?#\s]+")
#: The scheme, host and port of a URL; its user and password, before the last @, are in no group.
_PLACED = re.compile(r"(?P<scheme>https?://)([^/?]*@)?(?P<host>[^/?@]*?)(?P<port>:\d*)?(?=[/?]|$)", re.IGNORECASE)
#: A host that a URL without a scheme begins with.
_HOST = re.compile(r"([\w-]+(\.[\w-]+)+|localhost)(:[0-9]+)?([/?#]|$)", re.ASCII)


class Fate(NamedTuple):
    """The answer or fault in which every sending of a call ends. `label` is its name in the explanation."""

    label: str
    step: UpstreamStep


class Question(NamedTuple):
    """The question of one `redrive explain`: the request that is asked about (`ask`), and the answer (--status) or
    fault (--fail) in which its sendings end (`fate`), None if neither was given.
    """

    ask: AppRequest
    fate: Fate | None = None


def read_question(  # noqa: PLR0913  the options of a command line become a record
    method: str,
    url: str,
    fields: Sequence[str] = (),
    *,
    status: str | None = None,
    fail: str | None = None,
    body: str = "",
    of_request: Sequence[str] = (),
    of_answer: Sequence[str] = (),
    http2: bool = False,
) -> Question:
    """The question of a command line, about a request with this method and URL (a CONNECT has host:port instead);
    ValueError says what is wrong with it. `fields` are put into request and answer, `of_request` and `of_answer` into
    one. `status` and `fail`: the answer or the fault of every sending, at most one of them. `body` is a file with the
    request's body, or the text of the answer's. `http2`: the app speaks HTTP/2.
    """
    if not TOKEN.fullmatch(method):
        raise ValueError(f"{method!r} is not a method")
    pattern, wanted = (_PLACE, "HOST:PORT") if method == "CONNECT" else (_URL, "http://…, https://… or /…")
    if not pattern.fullmatch(url):
        if method != "CONNECT" and re.search(r"\s", url):
            raise ValueError(f"the url has white space, which is written %20: {masking.url(url)!r}")
        near = f" (did you mean http://{masking.url(url)}?)" if method != "CONNECT" and _HOST.match(url) else ""
        raise ValueError(f"the url should be {wanted}, not {masking.url(url)!r}{near}")
    if method != "CONNECT" and url[0] != "/" and "#" not in url and place_of(url) is None:
        near = _in_ascii(url) or "; a port is from 1 to 65535"
        raise ValueError(f"the url's host or port is not valid: {masking.url(url)!r}{near}")
    both = tuple(map(_read_field, fields))
    sent = _sent_body(body)
    if body and sent is None and status is None:
        raise ValueError(f"{body!r} is no file with the request's body; the text of an answer's needs --status")
    held = sent or b""
    ask = AppRequest(method, url, (*both, *map(_read_field, of_request)), len(held), http2, held)
    answered = (*both, *map(_read_field, of_answer))
    if of_answer and status is None:
        raise ValueError("a field of the answer needs --status, which says which answer")
    if fail is not None:
        return Question(ask, fate_of_fault(fail))
    if status is not None:
        answer = body if sent is None else ""
        return Question(ask, fate_of_status(status, answered, answer.encode(errors="surrogateescape")))
    return Question(ask)


def _in_ascii(url: str) -> str:
    """The remedy for a URL whose host has letters beyond ASCII: the host as it is sent (RFC 5891), without a user or a
    password; "" if that is not all that is wrong.
    """
    found = _PLACED.match(url)
    if found is None or found["host"].isascii():
        return ""
    try:
        host = found["host"].encode("idna").decode("ascii")
    except UnicodeError:
        return ""
    meant = f"{found['scheme']}{host}{found['port'] or ''}"
    return f" (did you mean {meant}?)" if place_of(meant) is not None else ""


def _sent_body(body: str) -> bytes | None:
    """The request's body, if `body` names a file that holds it; else None."""
    try:
        return Path(body).read_bytes() if body and Path(body).is_file() else None
    except PermissionError:
        raise ValueError(f"{body!r} can't be read: permission denied") from None
    except (OSError, ValueError):  # a text of the answer's body may be too long for a name
        return None


def _read_field(text: str) -> tuple[str, str]:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise ValueError("a field should be 'Name: value'")  # what was written may be a credential
    return match[1], match[2].rstrip(" \t")


def fate_of_fault(said: str) -> Fate:
    """The fate of a call whose every sending ends in the fault `said`; a reset may have a code (`reset:CANCEL`)."""
    kind, _, code = said.partition(":")
    if kind not in list(FaultKind):
        raise ValueError(f"a fault is one of {', '.join(FaultKind)}, not {kind!r}{did_you_mean(kind, list(FaultKind))}")
    if not code:
        return Fate(kind, UpstreamStep(fail=FaultKind(kind)))
    if kind != FaultKind.RESET or code.upper() not in CODES:
        raise ValueError(f"only a reset has a code, which is one of {', '.join(CODES)}, not {said!r}")
    return Fate(f"{kind}:{code.upper()}", UpstreamStep(fail=FaultKind.RESET, code=CODES.index(code.upper())))


def fate_of_status(status: str, fields: tuple[tuple[str, str], ...] = (), body: bytes = b"") -> Fate:
    """The fate in which every sending gets this answer, with these header fields (as names and values) and this body.
    `status`: an HTTP status or, for an answer of trailers only, the name of a gRPC status. Raises ValueError if it is
    neither.
    """
    if status.upper() in GRPC_STATUS_NUMBERS:
        number = GRPC_STATUS_NUMBERS[status.upper()]
        return Fate(status.upper(), UpstreamStep(200, headers=fields, grpc_status=number))
    if not (status.isascii() and status.isdigit() and 200 <= int(status) <= 999):
        raise ValueError(f"a status is a number from 200 to 999 or a gRPC status name, not {status!r}")
    return Fate(status, UpstreamStep(int(status), headers=fields, body=body))


def through_listener(settings: Settings, ask: AppRequest) -> AppRequest:
    """The app's request as the proxy sees it. A url that names one of the proxy's own listeners is a base URL (reverse
    use): the request is then for the url's path, with the listener as Host.
    """
    match = re.fullmatch(r"http://([^/?#@]+)([^#]*)", ask.url, re.IGNORECASE)
    if match is None:
        return ask
    places = {str(address) for address in settings.listen if address.unix is None}
    places |= {f"localhost:{address.port}" for address in settings.listen if address.is_loopback}
    if match[1].lower() not in places:
        return ask
    fields = ask.headers
    if not any(name.lower() == "host" for name, _ in fields):
        fields = (("Host", match[1]), *fields)
    return replace(ask, url=match[2] if match[2].startswith("/") else f"/{match[2]}", headers=fields)
