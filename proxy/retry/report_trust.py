"""Whether the limits that an upstream's answers report can be believed.

Some servers report a remainder that has nothing to do with what they let through: always 0, or that of another key.
Calls that waited for it would wait in vain. A report that nothing is left is disproved by an attempt that succeeds all
the same, if the attempt was sent after the report had come and before the limit's reset. If the limit refills
continuously, such a success disproves nothing: the report in that attempt's answer shows it.

Calls that wait for the reset test nothing. So a report that nothing is left is ignored, and one call is sent as if it
had not come, in two cases: three such reports came in a row before it, each after the reset that the one before named;
or such a report came at least once before, and this process has not used most of the limit itself, so that others use
it too, or the report is wrong. If the call succeeds, the reports are wrong; if it is refused, they are believed for ten
minutes.

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
class _Trust:
    """How far the reports of one limit have been tested. `empty`: the first report since the last reset that nothing is
    left, which came at `came`; `spent`: what had been spent of the limit in all by then. `row`: how many such reports
    came in a row, each after the reset of the one before; `times`: how often nothing was left. `tested`: the latest one
    is being ignored, to see whether it is right. `doubted_until`, `proven_until`: the times until which the reports
    count as wrong, or as right.
    """

    empty: ReportedLimit | None = None
    came: float = 0.0
    spent: float = 0.0
    row: int = 0
    times: int = 0
    tested: bool = False
    doubted_until: float = -1.0
    proven_until: float = -1.0


class ReportTrust:
    """The reports on the limits of one endpoint and credential: which of them are believed."""

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[str, _Trust] = {}

    def doubts(self, name: str, now: float) -> bool:
        """Whether the reports of the limit with this name are not believed now."""
        trust = self._limits.get(name)
        return trust is not None and now < trust.doubted_until

    def forget(self, name: str) -> None:
        """Forget the limit with this name."""
        self._limits.pop(name, None)

    def refused(self, since: float, now: float) -> None:
        """Note that an attempt, sent at `since`, was refused because a limit was exceeded. This proves each report
        right that nothing is left, if it had come when the attempt was sent, and the reset that it names was still
        ahead then.
        """
        for trust in self._limits.values():
            if trust.empty is not None and trust.came <= since < trust.came + trust.empty.reset * (1 - _CLOCKS):
                trust.proven_until = now + LASTS
                trust.tested, trust.row = False, 0

    def takes(self, reported: ReportedLimit, spent: float, since: float, now: float, *, explained: bool = True) -> bool:
        """Whether to believe `reported`, which is in the answer to an attempt that succeeded and was sent at `since`.
        `spent`: what had been spent of the limit in all when that attempt was sent; `explained`: this process has used
        the most of what the report says is used.
        """
        trust = self._limits.get(reported.name)
        if trust is None:
            if reported.remaining >= 1:
                return True
            trust = self._limits[reported.name] = _Trust()
        before = trust.empty
        is_late = before is not None and since >= trust.came + before.reset * (1 - _CLOCKS)
        if before is not None and since >= trust.came:
            if not is_late and self._is_wrong(before, reported, spent - trust.spent, since - trust.came):
                trust.doubted_until = now + LASTS
            trust.row = trust.row + 1 if is_late else trust.row
            trust.tested = False
        if reported.remaining >= 1:
            trust.empty, trust.row = None, 0
            return True
        if before is None or is_late:
            trust.empty, trust.came, trust.spent = reported, now, spent
            trust.times += 1
        if (trust.row >= _IN_A_ROW or (trust.times > 1 and not explained)) and now >= max(
            trust.proven_until, trust.doubted_until
        ):
            trust.tested, trust.row = True, 0
        return not trust.tested

    @staticmethod
    def _is_wrong(before: ReportedLimit, reported: ReportedLimit, spent: float, seconds: float) -> bool:
        """Whether a report that nothing is left (`before`) must have been wrong, since an attempt succeeded `seconds`
        seconds later, when `spent` had been spent of the limit since. `reported`: the report in that attempt's answer.
        """
        filled = 0.0 if before.limit is None else before.limit / before.reset * seconds
        return reported.remaining < 1 if filled < 1 else reported.remaining < _PART * (filled - spent)
