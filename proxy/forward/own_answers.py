"""The proxy's own answers: problem+json (RFC 9457), or a trailers-only answer for a gRPC call.

One renderer makes all of them. They say what happened in words that are safe to show: no secrets, and nothing of the
request except the name of the upstream.
"""

from __future__ import annotations

import json
import math

from proxy.forward.headers import Changes, answer_fields, told, via_line
from proxy.observe import masking
from proxy.retry.actions import Answer
from proxy.retry.facts import UNAVAILABLE, Outcome, grpc_status_of_http
from proxy.retry.machine import Call
from proxy.retry.policy import Policy
from proxy.retry.reasons import SHUT_DOWN
from proxy.wire.head import RequestHead, ResponseHead

#: gRPC statuses of our own answers (contract, section 12, "What the app gets"); the others are UNKNOWN.
_GRPC = {400: 13, 403: 7, 404: 12, 413: 8, 421: 14, 429: 8, 431: 8, 501: 12, 502: 14, 503: 8, 504: 4}


def own_answer(
    status: int,
    title: str,
    detail: str,
    *,
    outcome: Outcome,
    upstream: str = "",
    attempts: int = 0,
    grpc: bool = False,
    changes: Changes | None = None,
    retry_after: float | None = None,
    grpc_status: int | None = None,
) -> tuple[int, bytes, bytes]:
    """(status, field lines, body): an answer as an app's stream takes it. `grpc_status`: where it is not that of
    `status`.
    """
    lines = [] if changes is None else list(changes.add)
    if retry_after is not None and status in (429, 503):
        lines.append(("Retry-After", str(max(0, math.ceil(retry_after)))))
    if grpc:
        said = f"{title}: {detail}" if detail else title
        lines[:0] = [
            ("Content-Type", "application/grpc"),
            ("grpc-status", str(own_grpc_status(status) if grpc_status is None else grpc_status)),
            ("grpc-message", percent_encoded(said)),
        ]
        return 200, _text(lines), b""
    members = {
        "status": status,
        "title": title,
        "detail": detail,
        "upstream": upstream,
        "attempts": attempts,
        "outcome": outcome.value,
    }
    body = json.dumps(members).encode() + b"\n"
    lines.insert(0, ("Content-Type", "application/problem+json"))
    return status, _text(lines), body


def own_grpc_status(status: int) -> int:
    """What an HTTP status of ours is called on a gRPC call (contract, section 12)."""
    return _GRPC.get(status, 2)


def told_grpc_status(action: Answer) -> int:
    """The status that a gRPC call is told in an answer of the proxy's own."""
    if action.detail == SHUT_DOWN:
        return UNAVAILABLE
    return own_grpc_status(action.status) if action.grpc_status is None else action.grpc_status


def answer_of(
    action: Answer, policy: Policy, *, attempts: int, grpc: bool, before: str = "", no_place: bool = False
) -> tuple[int, bytes, bytes]:
    """The same for a call that ends with an answer of the proxy's own; `attempts` were made of it. `before`: what they
    came to, where that was at several upstreams. `no_place`: it found no place among the attempts that may be under
    way.
    """
    changes = answer_fields(
        policy,
        None,
        outcome=action.outcome,
        attempts=attempts,
        grpc=grpc,
        error=action.error,
        detail=f"{before}; {action.detail}" if before else action.detail,
        no_place=no_place,
    )
    return own_answer(
        action.status,
        action.title,
        action.detail,
        outcome=action.outcome,
        upstream=policy.upstream,
        attempts=attempts,
        grpc=grpc,
        changes=changes,
        retry_after=action.retry_after,
        grpc_status=told_grpc_status(action),
    )


def given_up_answer(call: Call, head: ResponseHead, via: str, *, outcome: Outcome) -> bytes:
    """Field lines of the trailers-only answer that a gRPC call gets in the place of an upstream's HTTP error, `head`,
    which it ends with: clients heed a pushback only beside a grpc-status (contract, section 12).
    """
    status = head.status
    changes = answer_fields(
        call.policy,
        None,
        outcome=outcome,
        attempts=call.attempts,
        grpc=True,
        status=status,
        detail=told(call.history),
        no_place=call.found_no_place,
    )
    lines = [
        ("Content-Type", "application/grpc"),
        ("grpc-status", str(grpc_status_of_http(status))),
        ("grpc-message", f"the upstream answered with HTTP status {status}"),
        *changes.add,
    ]
    return _text(lines) + via_line(via, head.version)


def last_recipient(request: RequestHead, changes: Changes) -> tuple[bytes, bytes]:
    """Field lines and body of the 200 for OPTIONS and TRACE that go no further (RFC 9110 sections 7.6.2, 9.3.7, 9.3.8).

    A TRACE shows the request as it came, without fields that are likely to hold secrets.
    """
    if request.method == "TRACE":
        lines = request.text()[:-2].split(b"\r\n")[:-1]
        shown = [line for line in lines if not masking.secret_name(line.partition(b":")[0].decode("latin-1"))]
        return _text([("Content-Type", "message/http"), *changes.add]), b"\r\n".join([*shown, b"", b""])
    return _text([("Allow", "GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, TRACE"), *changes.add]), b""


def _text(lines: list[tuple[str, str]]) -> bytes:
    """Fields as lines, each with its CRLF."""
    return "".join(f"{name}: {value}\r\n" for name, value in lines).encode("latin-1", "replace")


def percent_encoded(text: str) -> str:
    """A grpc-message: visible ASCII but "%" as it is, all else percent-encoded (gRPC over HTTP/2, Responses)."""
    return "".join(
        chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in text.encode("utf-8")
    )
