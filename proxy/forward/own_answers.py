"""The proxy's own answers: problem+json (RFC 9457), or a trailers-only answer for a gRPC call.

One renderer makes all of them. Their texts are safe to show: they have no secrets, and nothing of the request except
the name of the upstream and the endpoint that was asked. `proxy.forward.error_words` puts them into the words of the
client.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from proxy.forward.error_words import Worded, as_text, as_xml, with_words, words_of
from proxy.forward.headers import CallEnd, Changes, answer_fields, attempt_results, via_line
from proxy.hidden_values import shown
from proxy.observe import masking
from proxy.retry.call.actions import Answer
from proxy.retry.call.call_state import CallState
from proxy.retry.call.reasons import CUT_SHORT, SHUT_DOWN
from proxy.retry.facts import UNAVAILABLE, Outcome, Request, grpc_status_of_http
from proxy.retry.policies.policy import Policy
from proxy.wire.head import RequestHead, ResponseHead

#: The page whose sections are the types of problems, beside the `documentation` of pyproject.toml.
PROBLEMS = "https://github.com/redrive-proxy/redrive/blob/main/docs/reference/problems.md"
#: The section on a failure of the proxy itself, whatever its outcome.
PROXY_FAILED = "proxy_failed"

#: gRPC statuses of our own answers (contract, section 12, "What the app gets"); the others are UNKNOWN.
_GRPC = {400: 13, 403: 7, 404: 12, 413: 8, 421: 14, 429: 8, 431: 8, 501: 12, 502: 14, 503: 8, 504: 4}


@dataclass(slots=True)
class OwnAnswer:
    """An answer of the proxy's own. `retry_after`: the seconds for a Retry-After field, which only a 429 or 503 gets;
    `grpc_status`: the status for a gRPC call, if it is not the one that `status` maps to; `changes`: further fields.
    `request`: the request that is answered, and `policy`: its policy. Both decide the format of the error
    (`proxy.forward.error_words`); if either is None, the format is problem+json.
    """

    status: int
    title: str
    detail: str
    outcome: Outcome
    upstream: str = ""
    attempts: int = 0
    grpc: bool = False
    changes: Changes | None = None
    retry_after: float | None = None
    grpc_status: int | None = None
    request: Request | None = None
    policy: Policy | None = None

    def render(self) -> tuple[int, bytes, bytes]:
        """Return (status, field lines, body), as an app's stream takes them."""
        lines = [] if self.changes is None else list(self.changes.add)
        if self.retry_after is not None and self.status in (429, 503):
            lines.append(("Retry-After", str(max(0, math.ceil(self.retry_after)))))
        if self.grpc:
            status = own_grpc_status(self.status) if self.grpc_status is None else self.grpc_status
            lines[:0] = [
                ("Content-Type", "application/grpc"),
                ("grpc-status", str(status)),
                ("grpc-message", percent_encoded(f"{self.title}: {self.detail}" if self.detail else self.title)),
            ]
            return 200, _text(lines), b""
        worded = self._worded()
        lines[:0] = [("Content-Type", worded.media), *worded.fields]
        return self.status, _text(lines), worded.body

    @property
    def message(self) -> str:
        """The reason, the number of attempts and the outcome in one line, for clients that show a line of text only."""
        times = "not sent" if not self.attempts else "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"redrive: {self.detail or self.title} ({times}, {self.outcome.value})"

    def _worded(self) -> Worded:
        """Return the error in the format that its client reads: problem+json, the provider's own, XML, or text."""
        members: dict[str, Any] = {
            "type": problem_type(self.status, self.outcome),
            "status": self.status,
            "title": self.title,
            "detail": self.detail,
            "upstream": self.upstream,
            "attempts": self.attempts,
            "outcome": self.outcome.value,
        }
        fields: tuple[tuple[str, str], ...] = ()
        words = None
        if self.request is not None and self.policy is not None:
            worded, words = as_text(self.request, self.message), words_of(self.policy)
            if words is not None and worded is None:
                values = {key: members[key] for key in ("type", "status", "outcome")}
                values |= {"message": self.message, "word": words.word(self.status)}
                worded = as_xml(words, self.request, members, values)
                fields = with_words(words, members, values)
            if worded is not None:
                return worded
        if words is None:  # where the provider has a place of its own for it, the line stands there
            members["message"] = self.message
        return Worded("application/problem+json", json.dumps(members).encode() + b"\n", fields)


def problem_type(status: int, outcome: Outcome) -> str:
    """Return the `type` of a problem (RFC 9457, section 3.1.1): the address of the section about `outcome` in the
    documentation or, for the `status` 500, of the one about failures of the proxy itself.
    """
    return f"{PROBLEMS}#{PROXY_FAILED if status == 500 else outcome.value}"


def own_grpc_status(status: int) -> int:
    """Return the gRPC status that goes with the HTTP status of an answer of the proxy's own (contract, section 12)."""
    return _GRPC.get(status, 2)


def grpc_status_of_answer(action: Answer) -> int:
    """Return the status that a gRPC call gets in the answer of the proxy's own that `action` asks for."""
    if action.detail == SHUT_DOWN:
        return UNAVAILABLE
    return own_grpc_status(action.status) if action.grpc_status is None else action.grpc_status


def answer_of(action: Answer, call: CallState, before: str = "") -> tuple[int, bytes, bytes]:
    """Return (status, field lines, body) of the proxy's own answer for a call that ends by `action`. `before`: the
    results of the call's attempts as text, if they were made at several upstreams, else "".
    """
    policy, attempts, grpc = call.policy, call.attempts, call.request.is_grpc
    end = CallEnd(action.outcome, attempts, grpc, error=action.error, no_place=call.found_no_place)
    end.cut_short = action.detail == CUT_SHORT
    detail = action.detail if before else _with_place(action.detail, call)
    if policy.target is not None:
        detail = shown(detail, policy.target.hidden)
    end.detail = f"{before}; {detail}" if before else detail
    answer = OwnAnswer(action.status, action.title, detail, action.outcome, policy.upstream, attempts, grpc)
    answer.request, answer.policy = call.request, policy
    answer.changes = answer_fields(policy, None, end)
    answer.retry_after, answer.grpc_status = action.retry_after, grpc_status_of_answer(action)
    return answer.render()


def _with_place(detail: str, call: CallState) -> str:
    """Return `detail`, the reason in an answer of the proxy's own. If the call's last attempt gave that reason, the
    endpoint that the attempt went to is added.
    """
    last = call.history[-1] if call.history else None
    if last is None or not last.endpoint or last.detail != detail:
        return detail
    if detail == "the connection was refused":
        return f"{detail} by {last.endpoint}"
    if detail.startswith("no connection"):
        return f"{detail} to {last.endpoint}"
    return f"{detail} from {last.endpoint}" if detail.startswith("no ") else f"{detail} ({last.endpoint})"


def given_up_answer(call: CallState, head: ResponseHead, via: str, *, outcome: Outcome) -> bytes:
    """Return the field lines of the trailers-only answer that a gRPC call gets if it ends with an HTTP error of the
    upstream, in place of that error's `head`: gRPC clients obey a pushback only beside a grpc-status (contract, section
    12). `via`: the name in our Via line.
    """
    status = head.status
    end = CallEnd(
        outcome, call.attempts, True, status, detail=attempt_results(call.history), no_place=call.found_no_place
    )
    changes = answer_fields(call.policy, None, end)
    lines = [
        ("Content-Type", "application/grpc"),
        ("grpc-status", str(grpc_status_of_http(status))),
        ("grpc-message", f"the upstream answered with HTTP status {status}"),
        *changes.add,
    ]
    return _text(lines) + via_line(via, head.version)


def last_recipient(request: RequestHead, changes: Changes) -> tuple[bytes, bytes]:
    """Return the field lines and the body of the proxy's own answer, a 200, to an OPTIONS or TRACE that it does not
    forward, as the request's last recipient (RFC 9110 sections 7.6.2, 9.3.7, 9.3.8). `changes`: the further field lines
    of the answer.

    The answer to a TRACE has the request as it came, without fields that are likely to hold secrets.
    """
    if request.method == "TRACE":
        lines = request.text()[:-2].split(b"\r\n")[:-1]
        shown = [line for line in lines if not masking.secret_name(line.partition(b":")[0].decode("latin-1"))]
        return _text([("Content-Type", "message/http"), *changes.add]), b"\r\n".join([*shown, b"", b""])
    return _text([("Allow", "GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, TRACE"), *changes.add]), b""


def _text(lines: list[tuple[str, str]]) -> bytes:
    """Return fields, (name, value) each, as field lines, each with its CRLF."""
    return "".join(f"{name}: {value}\r\n" for name, value in lines).encode("latin-1", "replace")


def percent_encoded(text: str) -> str:
    """Return a text as a grpc-message: every visible ASCII character but "%" as it is, every other byte percent-encoded
    (gRPC over HTTP/2, Responses).
    """
    return "".join(
        chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in text.encode("utf-8")
    )
