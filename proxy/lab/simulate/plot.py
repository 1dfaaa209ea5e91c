"""A picture of a simulation: how many calls succeed, and what the upstream is asked, over time. SVG by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from proxy.lab.simulate.figures import Figures
from proxy.lab.simulate.scenario import Scenario

_WIDE, _HIGH, _LEFT, _TOP, _GAP = 860, 190, 64, 84, 56
_COLOURS = ("#0b7285", "#e8590c", "#862e9c", "#2b8a3e", "#c92a2a", "#364fc7")
#: Columns that are beside the point are dashed.
_DASHED = ("none", "naive")
_POINTS = 300


def picture(scenario: Scenario, done: Sequence[Figures]) -> str:
    """The whole SVG."""
    seconds = max(1, int(scenario.duration))
    step = max(1, seconds // _POINTS)
    load = max([1.0, *(value for each in done for _, value in _points(each, seconds, step, _requests))])
    high = _TOP + 2 * _HIGH + _GAP + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDE + 24} {high}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(scenario.name)}</title>",
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{_LEFT}" y="24" font-size="16" font-weight="600">'
        f"{escape(scenario.name)}</text>",
        *_legend(done),
        *_panel(scenario, done, 0, "calls that succeed", 1.0, "{:.0%}", seconds, step, _share),
        *_panel(scenario, done, 1, "requests a second at the upstream", load, "{:.0f}", seconds, step, _requests),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


#: Seconds together: calls begun, succeeded, requests; and how many seconds.
_Sums = tuple[int, int, int]
_Read = Callable[[_Sums, int], float | None]


def _share(sums: _Sums, step: int) -> float | None:
    return sums[1] / sums[0] if sums[0] else None


def _requests(sums: _Sums, step: int) -> float | None:
    return sums[2] / step


def _points(each: Figures, seconds: int, step: int, read: _Read) -> list[tuple[float, float]]:
    points = []
    for start in range(0, seconds, step):
        part = each.series[start : start + step]
        value = read((sum(s[0] for s in part), sum(s[1] for s in part), sum(s[2] for s in part)), step)
        if value is not None:
            points.append((start + step / 2, value))
    return points


def _panel(
    scenario: Scenario,
    done: Sequence[Figures],
    number: int,
    title: str,
    highest: float,
    spelled: str,
    seconds: int,
    step: int,
    read: _Read,
) -> list[str]:
    top = _TOP + number * (_HIGH + _GAP)

    def x(at: float) -> float:
        return round(_LEFT + at / seconds * _WIDE, 1)

    def y(value: float) -> float:
        return round(top + _HIGH * (1 - value / highest), 1)

    parts = [f'<text x="{_LEFT}" y="{top - 8}" fill="#495057">{title}</text>']
    for outage in scenario.outages:
        width = round(x(min(outage.until, seconds)) - x(outage.at), 1)
        parts.append(f'<rect x="{x(outage.at)}" y="{top}" width="{width}" height="{_HIGH}" fill="#ffe3e3"/>')
    for line in range(5):
        value = highest * line / 4
        parts.append(f'<path d="M{_LEFT} {y(value)}h{_WIDE}" stroke="#dee2e6"/>')
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y(value) + 4}" text-anchor="end" fill="#868e96">{spelled.format(value)}</text>'
        )
    for tick in range(7):
        at = seconds * tick / 6
        parts.append(f'<text x="{x(at)}" y="{top + _HIGH + 18}" text-anchor="middle" fill="#868e96">{at:.0f} s</text>')
    for index, each in enumerate(done):
        path = "L".join(f"{x(at)} {y(value)}" for at, value in _points(each, seconds, step, read))
        parts.append(f'<path d="M{path}" fill="none" {_stroke(index, each)}/>' if path else "")
    return parts


def _stroke(index: int, each: Figures) -> str:
    dashed = ' stroke-dasharray="5 3"' if each.name.startswith(_DASHED) else ""
    return f'stroke="{_COLOURS[index % len(_COLOURS)]}" stroke-width="1.8"{dashed}'


def _legend(done: Sequence[Figures]) -> list[str]:
    parts = []
    at = _LEFT
    for index, each in enumerate(done):
        parts.append(f'<path d="M{at} 40h24" {_stroke(index, each)}/>')
        parts.append(f'<text x="{at + 30}" y="44">{escape(each.name)}</text>')
        at += 54 + 7 * len(each.name)
    return parts
