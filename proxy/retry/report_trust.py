"""Whether the limits that an upstream's answers report can be believed.

Some servers report a remainder that has nothing to do with what they let through: always 0, or that of another key.
Calls that waited for it would wait in vain. A report that nothing is left is found to be wrong by an attempt that
succeeds all the same: one that was sent after the report had come, and before the limit was to be whole again; unless
the limit fills up all the time, which the next report then shows.

Calls that wait until the limit is whole test nothing. So, after three reports in a row that say that nothing is left,
each after the time at which the limit was to be whole again, the next such report is put aside, and a call is sent as
if it had not come. If it succeeds, the reports are wrong; if it is refused, they are believed from then on.

A limit whose reports were found to be wrong is not believed for ten minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.retry.limit_fields import ReportedLimit

#: Seconds for which a limit is not believed, or is believed without further tests.
LASTS = 600.0
#: After so many reports in a row that nothing is left, after the reset, the next one is tested.
_IN_A_ROW = 3
#: A limit that fills up all the time has at least this part of what is expected; and clocks differ by this part of the
#: time to the reset.
_PART, _CLOCKS = 0.25, 0.1


@dataclass(slots=True)
class _Word:
    """The reports of one limit, as far as they have been tested. `empty`: the first report that nothing is left since
    the last reset, which came at `came`; `spent`: what had been spent of the limit in all by then. `row`: how many such
    reports came in a row, each after the reset of the one before. `tested`: the last one is put aside, to see whether
    it is right. `doubted_until`, `proven_until`: the times until which the reports count as wrong, or as right.
    """

    empty: ReportedLimit | None = None
    came: float = 0.0
    spent: float = 0.0
    row: int = 0
    tested: bool = False
    doubted_until: float = -1.0
    proven_until: float = -1.0


class ReportTrust:
    """The reports on the limits of one endpoint and credential: which of them are believed."""

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words: dict[str, _Word] = {}

    def doubts(self, name: str, now: float) -> bool:
        """Whether the reports of the limit with this name are not believed now."""
        word = self._words.get(name)
        return word is not None and now < word.doubted_until

    def forget(self, name: str) -> None:
        """Forget the limit with this name."""
        self._words.pop(name, None)

    def refused(self, since: float, now: float) -> None:
        """Note that an attempt, sent at `since`, was refused because a limit was exceeded: the reports that nothing was
        left by then, of limits that were not to be whole yet, are right.
        """
        for word in self._words.values():
            if word.empty is not None and word.came <= since < word.came + word.empty.reset * (1 - _CLOCKS):
                word.proven_until = now + LASTS
                word.tested, word.row = False, 0

    def takes(self, said: ReportedLimit, spent: float, since: float, now: float) -> bool:
        """Whether to believe the report `said`, in the answer to an attempt that succeeded and was sent at `since`.
        `spent`: what had been spent of the limit in all when that attempt was sent.
        """
        word = self._words.get(said.name)
        if word is None:
            if said.remaining >= 1:
                return True
            word = self._words[said.name] = _Word()
        before = word.empty
        is_late = before is not None and since >= word.came + before.reset * (1 - _CLOCKS)
        if before is not None and since >= word.came:
            if not is_late and self._is_wrong(before, said, spent - word.spent, since - word.came):
                word.doubted_until = now + LASTS
            word.row = word.row + 1 if is_late else word.row
            word.tested = False
        if said.remaining >= 1:
            word.empty, word.row = None, 0
            return True
        if before is None or is_late:
            word.empty, word.came, word.spent = said, now, spent
        if word.row >= _IN_A_ROW and now >= max(word.proven_until, word.doubted_until):
            word.tested, word.row = True, 0
        return not word.tested

    @staticmethod
    def _is_wrong(before: ReportedLimit, said: ReportedLimit, spent: float, seconds: float) -> bool:
        """Whether a report that nothing is left (`before`) must have been wrong, since an attempt succeeded `seconds`
        seconds later, when `spent` had been spent of the limit since. `said`: the report in that attempt's answer.
        """
        filled = 0.0 if before.limit is None else before.limit / before.reset * seconds
        return said.remaining < 1 if filled < 1 else said.remaining < _PART * (filled - spent)
