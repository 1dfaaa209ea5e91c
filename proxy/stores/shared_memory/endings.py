"""How a few attempts failed, as one number of a record: their statuses and kinds of faults."""

from __future__ import annotations

#: How many fit into a number that a double holds exactly, each as a digit of this base.
KEPT, _BASE = 5, 1024
#: The kinds of endings that are no statuses, by their numbers.
_KINDS = ("", "connect_failure", "reset", "attempt_timeout", "refused_stream", "upstream_timeout")


def packed(endings: list[str]) -> float:
    """The latest of these endings as one number."""
    number = 0
    for how in endings[-KEPT:]:
        number = number * _BASE + (int(how) if how.isdigit() else _KINDS.index(how) if how in _KINDS else 0)
    return float(number)


def unpacked(number: float, count: int = 0) -> list[str]:
    """The endings of which `packed` has made this number. `count`: how many there were, if some of the first may have
    been unknown ("").
    """
    left, endings = int(number), []
    while left:
        left, one = divmod(left, _BASE)
        endings.append(str(one) if one >= len(_KINDS) else _KINDS[one])
    return [""] * (count - len(endings)) + endings[::-1]
