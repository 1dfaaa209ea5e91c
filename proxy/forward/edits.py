"""Edits: the changes of header fields that a policy asks for, made once for each policy.

Edits are for calls whose first attempt may be sent before anything is decided (`Plan.plain`), and for the retries of
such calls: all such calls of a policy get the same changes, whatever their own fields. `proxy.forward.headers` computes
the changes.
"""

from __future__ import annotations

from proxy.forward.headers import CallEnd, answer_fields, answers_plainly, attempt_fields, is_plain
from proxy.retry.facts import Outcome, Request
from proxy.retry.policies.policy import Policy
from proxy.wire.field_names import ANSWER_MERELY_CUT, REQUEST_MERELY_CUT
from proxy.wire.fields import FEW, NO_NAMES, FieldBlock, needle
from proxy.wire.head import RequestHead

#: The edits of policies by their policy, and the most that are kept.
_OF: dict[Policy, Edits] = {}
_MOST = 256
#: The names that policies cut from requests: equal ones are one object, by which compiled code knows them again.
_CUTS: dict[frozenset[bytes], frozenset[bytes]] = {}
#: The most attempts whose lines are kept with a policy's edits.
_MOST_ATTEMPTS = 64
#: A request whose own header fields change nothing about the edits.
_ANY = Request("GET", "", "/")


class Edits:
    """The field lines that a policy adds to a request and to an answer, and the names of the fields that it removes
    first. The lines include the count of attempts. They do not include Via, which depends on the message's protocol
    (`proxy.forward.headers.via_line`). `cuts_answers`: whether any field is removed from answers.
    """

    __slots__ = (
        "_cut", "_from_answers", "_from_requests", "_is_short", "_policy", "_to_requests", "cuts_answers", "to_answers",
    )  # fmt: skip

    def __init__(self, policy: Policy) -> None:
        request = attempt_fields(_ANY, policy, 1)
        answer = answer_fields(policy, None, CallEnd(Outcome.SUCCESS, 1, grpc=False))
        self._policy = policy
        self._to_requests = {1: request.lines()}  # by the number of the attempt
        self.to_answers = answer.lines()
        # Every head leaves out the fields that are merely cut; named here, they would cost each head a search.
        self._cut = request.names() - REQUEST_MERELY_CUT
        self._cut = _CUTS.setdefault(self._cut, self._cut)
        self._is_short = len(self._cut) <= FEW
        self._from_requests = _marks(self._cut)
        self._from_answers = _marks(answer.names() - ANSWER_MERELY_CUT)
        self.cuts_answers = bool(self._from_answers)

    def to_request(self, attempt: int) -> bytes:
        """The field lines to add to a request as the attempt of this number sends it."""
        lines = self._to_requests.get(attempt)
        if lines is None:
            lines = attempt_fields(_ANY, self._policy, attempt).lines()
            if len(self._to_requests) < _MOST_ATTEMPTS:
                self._to_requests[attempt] = lines
        return lines

    def from_request(self, head: RequestHead) -> frozenset[bytes]:
        """The lower-case names of the fields to remove from a request with this head, in addition to the fields that
        are never forwarded. The request need not have all of them.
        """
        # Compiled code leaves the lines out as it copies such a head: a search for them before would be a second one.
        if self._is_short and head.scanned:
            return self._cut
        return _found(self._from_requests, head)

    def from_answer(self, head: FieldBlock) -> frozenset[bytes]:
        """The lower-case names of the fields to remove from an answer with this head, in addition to the fields that
        are never forwarded.
        """
        return _found(self._from_answers, head)


def edits_of(policy: Policy) -> Edits | None:
    """The edits of this policy; None if it adds nothing but the count of attempts and Via, and removes nothing."""
    if is_plain(policy) and answers_plainly(policy):
        return None
    edits = _OF.get(policy)
    if edits is None:
        if len(_OF) >= _MOST:
            _OF.clear()
            _CUTS.clear()
        edits = _OF[policy] = Edits(policy)
    return edits


def _marks(names: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    """Make a pair for each of these lower-case field names: the bytes with which a line of that field begins, and the
    name. A search for these bytes in the lower-cased head shows fast whether the head has the field.
    """
    return [(needle(name.decode("latin-1")), name) for name in sorted(names)]


def _found(marks: list[tuple[bytes, bytes]], head: FieldBlock) -> frozenset[bytes]:
    if not marks:
        return NO_NAMES
    lowered = head.lowered
    found = [name for mark, name in marks if lowered.find(mark) >= 0]
    return frozenset(found) if found else NO_NAMES
