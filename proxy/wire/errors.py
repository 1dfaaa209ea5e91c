"""Exceptions of the readers of heads and bodies: why a message is refused."""

from __future__ import annotations


class BadMessage(Exception):  # noqa: N818 - named by what happened, like the exceptions below
    """Raised for a message that breaks the grammar. `detail` is one clause for people."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Refused(BadMessage):
    """Raised for a request that is answered with `status` and not forwarded; the connection closes after the answer."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title


class BadAnswer(BadMessage):
    """Raised for an upstream's answer that is not HTTP/1, or whose framing cannot be trusted."""


class BadBody(BadMessage):
    """Raised for a body whose framing is broken: 400 if it is a request's, a fault of the attempt if it is an
    answer's.
    """


def malformed(detail: str) -> Refused:
    """Return the exception for a malformed or ambiguous request, status 400."""
    return Refused(400, "Bad Request", detail)
