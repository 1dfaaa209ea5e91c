"""Why a message is refused: what the readers of heads and bodies raise."""

from __future__ import annotations


class BadMessage(Exception):  # noqa: N818 - named by what happened, as those below
    """A message that breaks the grammar. `detail` is for people: one clause."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Refused(BadMessage):
    """A request that is answered with `status` and goes no further; the connection closes after the answer."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title


class BadAnswer(BadMessage):
    """An upstream's answer that is not HTTP/1, or whose framing cannot be trusted."""


class BadBody(BadMessage):
    """A body whose framing is broken: of a request 400, of an answer a fault."""


def malformed(detail: str) -> Refused:
    """The refusal of a malformed or ambiguous request."""
    return Refused(400, "Bad Request", detail)
