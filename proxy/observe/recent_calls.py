"""The last calls, for /requests and /events: bounded rings of records, which keep no body and no connection of a call
alive.

A call's JSON is made on request. Calls that succeeded without retries have a ring of their own, so that a thousand of
them a second don't push out the one failure that somebody is looking for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from json.encoder import encode_basestring_ascii as quote
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from proxy.observe.call_record import CallRecord
from proxy.observe.compiled import call_json
from proxy.observe.remedies import remedy_of

#: Calls kept of each sort: those that were sent once and succeeded, and the others.
KEPT = 500
#: Longest path kept; a longer one ends in an ellipsis.
_PATH = 2048


class NumberedCall(NamedTuple):
    """A call in the form in which it is shown, and in which a worker reports it. `number`: the call's number among all
    calls of its process, from 1; `wall`: when the call began (seconds since the epoch); `notable`: the call was retried
    or refused, or did not succeed.
    """

    number: int
    json: str
    wall: float
    notable: bool

    @property
    def text(self) -> str:
        """The call's JSON with its number in it."""
        return f'{{"number":{self.number},{self.json[1:]}'


Entry: TypeAlias = CallRecord | NumberedCall


class RecentCalls:
    """The last calls of a process in two rings: one of notable calls (retried, refused or failed), and one of calls
    that simply succeeded. Calls are numbered in the order in which they ended, from 1.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._plain: deque[Entry] = deque(maxlen=kept)
        self._notable: deque[Entry] = deque(maxlen=kept)
        self._seen = 0
        self.catch_up: Callable[[], None] = lambda: None  # keeps what is gathered (`proxy.observe.observers`)

    @property
    def seen(self) -> int:
        """The number of calls that have ended."""
        self.catch_up()
        return self._seen

    def add(self, calls: Iterable[CallRecord]) -> None:
        """Number these calls and keep them."""
        keep_plain, keep_notable, number = self._plain.append, self._notable.append, self._seen
        for call in calls:
            number += 1
            call.number = number
            kept = call if len(call.path) <= _PATH else call.with_path(call.path[:_PATH] + "…")
            if kept.course.was_sent_once:
                keep_plain(kept)
            else:
                keep_notable(kept)
        self._seen = number

    def since(self, number: int, limit: int = KEPT) -> list[NumberedCall]:
        """The kept calls whose numbers are higher than `number`, in the form in which they are shown: the last `limit`
        of them at most, oldest first.
        """
        return list(self.show(self.choose(number, limit)))

    def choose(self, number: int, limit: int = KEPT) -> list[Entry]:
        """The entries of the kept calls whose numbers are higher than `number`: the last `limit` of them at most,
        oldest first. An entry is a record, or the JSON that a worker reported.
        """
        self.catch_up()
        entries = [*_after(self._plain, number), *_after(self._notable, number)]
        return _last(sorted(entries, key=_NUMBER), limit)

    def choose_notable(self, number: int, limit: int = KEPT) -> list[Entry]:
        """The entries of the kept notable calls (retried, refused or failed) whose numbers are higher than `number`:
        the last `limit` of them at most, oldest first.
        """
        self.catch_up()
        return _last(_after(self._notable, number), limit)

    def choose_news(self, number: int, most: int) -> list[Entry]:
        """The entries of kept calls whose numbers are higher than `number`, oldest first. At most `most` entries: the
        newest notable ones (retried, refused or failed) and, if there is room left, the newest others.
        """
        self.catch_up()
        notable = _last(_after(self._notable, number), most)
        plain = _last(_after(self._plain, number), most - len(notable))
        return sorted([*plain, *notable], key=_NUMBER)

    def find(self, number: int) -> NumberedCall | None:
        """The call of this number in the form in which it is shown; None if it was not kept, or is no longer."""
        self.catch_up()
        for ring in (self._plain, self._notable):
            entry = next((each for each in reversed(ring) if each.number <= number), None)
            if entry is not None and entry.number == number:
                return _shown(entry)
        return None

    def last_calls(self) -> list[CallRecord]:
        """The kept calls of this process, in no particular order."""
        self.catch_up()
        return [each for ring in (self._plain, self._notable) for each in ring if isinstance(each, CallRecord)]

    def show(self, entries: Iterable[Entry]) -> Iterator[NumberedCall]:
        """Yield the shown form of each entry. The forms are made one by one, because making a thousand at once would
        block the loop for too long.
        """
        return map(_shown, entries)


_NUMBER = attrgetter("number")


def _shown(call: Entry) -> NumberedCall:
    if isinstance(call, NumberedCall):  # a worker has made it
        return call
    if call.was_sent_once:
        return NumberedCall(call.number, call_json(call), call.wall_started, False)
    why = next((record.why for record in reversed(call.history) if record.why), call.detail)
    last = call.history[-1] if call.history else None
    detail, status = (last.detail, last.status) if last is not None else ("", None)
    is_grpc = call.grpc_status is not None
    remedy = remedy_of(call.outcome, why, call.policy, call.method, detail, status, is_grpc=is_grpc)
    said = f'{call_json(call)[:-1]},"remedy":{quote(remedy)}}}' if remedy else call_json(call)
    return NumberedCall(call.number, said, call.wall_started, True)


def _after(ring: deque[Entry], number: int) -> list[Entry]:
    """The entries of a ring with a larger number than this, oldest first. The search begins with the newest: few are
    new.
    """
    found = list(takewhile(lambda entry: entry.number > number, reversed(ring)))
    found.reverse()
    return found


def _last(entries: list[Entry], limit: int) -> list[Entry]:
    return entries[max(len(entries) - limit, 0) :]
