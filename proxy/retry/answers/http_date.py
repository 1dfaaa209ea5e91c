"""HTTP dates: the three forms of RFC 9110 section 5.6.7, strictly, without locale and without a clock.

    IMF-fixdate  Sun, 06 Nov 1994 08:49:37 GMT       RFC 850  Sunday, 06-Nov-94 08:49:37 GMT
    asctime      Sun Nov  6 08:49:37 1994

Names are case-sensitive and must be names of days and months; whether a day's name fits its date is not checked, as the
date alone determines the day. A two-digit year is the nearest one that is not more than 50 years in the future. A leap
second counts as the second after it, as in POSIX time, so that nothing begins before it.
"""

from __future__ import annotations

import re
from datetime import date

_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_LONG_DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "(?P<month>" + "|".join(_MONTHS) + ")"
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"(?:{_DAYS}), (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT",
        rf"(?:{_LONG_DAYS}), (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT",
        rf"(?:{_DAYS}) {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} (?P<year>[0-9]{{4}})",
    )
)
_SHORT_DAYS = _DAYS.split("|")
_EPOCH = date(1970, 1, 1).toordinal()


def http_date(wall: float) -> str:
    """Format a time, in seconds since the epoch, as IMF-fixdate."""
    days, seconds = divmod(int(wall), 86400)
    day = date.fromordinal(_EPOCH + days)
    named = f"{_SHORT_DAYS[day.weekday()]}, {day.day:02} {_MONTHS[day.month - 1]} {day.year:04}"
    return f"{named} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02} GMT"


def read_http_date(text: str, wall: float) -> float | None:
    """The time that the text names, in seconds since the epoch; None if the text is no HTTP date. `wall`: the present
    time, in seconds since the epoch, from which a two-digit year gets its century.
    """
    match = next(filter(None, (form.fullmatch(text) for form in _FORMS)), None)
    if match is None:
        return None
    month = _MONTHS.index(match["month"]) + 1
    year, day = int(match["year"]), int(match["day"])
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"])
    if hour > 23 or minute > 59 or second > 60:
        return None
    seconds = 3600 * hour + 60 * minute + second
    if len(match["year"]) == 2:
        return _nearest_century(year, month, day, seconds, wall)
    return _seconds(year, month, day, seconds)


def _seconds(year: int, month: int, day: int, seconds: int) -> float | None:
    try:
        return float((date(year, month, day).toordinal() - _EPOCH) * 86400 + seconds)
    except ValueError:  # the month has no such day
        return None


def _nearest_century(year: int, month: int, day: int, seconds: int, wall: float) -> float | None:
    """The seconds since the epoch for a date whose `year` has two digits. The year is the latest with these last two
    digits for which the date is at most 50 years after the time `wall`. None if there is no such date. `seconds`: the
    time of day.
    """
    try:
        this_year = date.fromordinal(_EPOCH + int(wall // 86400)).year
    except (ValueError, OverflowError):
        this_year = 1970
    limit = _seconds(this_year + 50, 12, 31, 86399)
    candidate = this_year + 50 - (this_year + 50 - year) % 100
    for full in (candidate, candidate - 100):
        moment = _seconds(full, month, day, seconds) if full >= 1 else None
        if moment is not None and limit is not None and moment - wall <= 50 * 365.2425 * 86400:
            return moment
    return None
