"""The demo's picture: three columns under the same weather, made from figures as a rich renderable; and its last line,
the verdict, which says what was counted, also where redrive is not ahead.

The picture fits the terminal, and says the same without colours. From 60 columns on nothing is cut off; a wider
terminal shows more of the past.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from itertools import islice

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from proxy.lab.demo import weather
from proxy.lab.demo.play import CALLS_PER_SECOND, EVERY, App, Counts, DemoRun

_BARS = " ▁▂▃▄▅▆▇█"
#: The number of samples in "the last 5 s".
_LATELY = 10
#: Widths in characters: of the labels, of the space between columns, of the narrowest and the widest column, and of the
#: bucket's gauge.
_LABELS, _BETWEEN, _NARROW, _WIDE, _GAUGE = 15, 2, 8, 40, 24
#: Colour and explanation of each weather.
_SKIES = {
    "calm": ("green", "all is well"),
    "failures": ("yellow", "three in ten requests get a 503, by chance"),
    "restart": ("red", "connections are refused"),
    "no queue": ("cyan", "two requests at once are one too many: 503"),
    "limit": ("magenta", "a limit below what is asked for: 429"),
    "third": ("blue", "a third of its usual capacity; requests wait in a queue"),
}


def picture(play: DemoRun, width: int, *, over: bool = False) -> RenderableType:
    """The whole picture as it is now, for a terminal of so many columns. `over`: the picture after the end."""
    column = (width - _LABELS) // max(1, len(play.apps)) - _BETWEEN
    return Group(_sky(play, over), _columns(play, max(_NARROW, min(_WIDE, column))), _below(play, over))


def line(name: str, play: DemoRun, before: Sequence[Counts]) -> str:
    """A line in words about a part of the demo's scripted weather that is over, called `name`, for output that is no
    terminal: how each app's calls fared in it. `before`: each app's counts when that part began.
    """
    parts = []
    for app, earlier in zip(play.apps, before, strict=True):
        now = app.counts - earlier
        parts.append(f"{app.name} {_percent(now)}, {_mean(now)} attempts/call")
    return f"{play.elapsed:6.1f} s  {name + ':':12}{'; '.join(parts)}"


def _sky(play: DemoRun, over: bool) -> RenderableType:
    if over:
        return Panel(Text(f"the end, after {play.elapsed:.0f} s", style="bold"), box=box.ROUNDED)
    now = weather.at(play.elapsed, play.round_seconds)
    colour, explained = _SKIES[now.name]
    left = weather.left(play.elapsed, play.round_seconds)
    words = Text.assemble(
        ("upstream: ", "dim"),
        (now.name, f"bold {colour}"),
        (f", {explained}; {left:.0f} s left", "dim"),
    )
    return Panel(words, box=box.ROUNDED, border_style=colour)


def _columns(play: DemoRun, wide: int) -> RenderableType:
    table = Table.grid(padding=(0, _BETWEEN, 0, 0))
    table.add_column(width=_LABELS, style="dim", no_wrap=True)
    for _ in play.apps:
        table.add_column(width=wide, no_wrap=True)

    def row(label: str | Text, cell: Callable[[App], Text]) -> None:
        table.add_row(label, *map(cell, play.apps))

    rule = Rule(style="dim")
    lately = {id(app): _lately(app) for app in play.apps}
    highest = max([8.0, *(sample.requests for app in play.apps for sample in islice(reversed(app.samples), wide))])
    ours = play.apps[-1]
    row(f"{CALLS_PER_SECOND:.0f} calls/s each", lambda app: Text(app.name, "bold cyan" if app is ours else "bold"))
    table.add_row(rule, *(rule for _ in play.apps))
    skies = list(play.skies)[-wide:]  # by their initials; calm is a dot
    strip = Text.assemble(*(("·" if name == "calm" else name[0], _SKIES[name][0]) for name in skies))
    row("weather", lambda _: strip)
    row(Text("the last 5 s", style="bold"), lambda _: Text())
    row("succeeded", lambda app: _share(lately[id(app)]))
    row("", lambda app: _rate_bars(app, wide))
    row("attempts/call", lambda app: _attempts(lately[id(app)]))
    row("upstream sees", lambda app: _load(lately[id(app)], min(_LATELY, len(app.samples)) * EVERY))
    row("", lambda app: _bars([sample.requests for sample in app.samples][-wide:], highest))
    row(Text("since the start", style="bold"), lambda _: Text())
    row("succeeded", lambda app: _share(app.counts))
    row("attempts/call", lambda app: _attempts(app.counts))
    row("median / 95 %", _seconds)
    return table


def _below(play: DemoRun, over: bool) -> RenderableType:
    watched = play.watched.now
    share = watched.level / watched.capacity if watched.capacity else 0.0
    full = round(share * _GAUGE)
    colour = "green" if share > 0.5 else "yellow" if share > 0.1 else "red"
    bucket = Text.assemble(
        ("its bucket      ", "dim"),
        ("█" * full, colour),
        ("░" * (_GAUGE - full), "dim"),
        f" {watched.level:.0f} of {watched.capacity:.0f} tokens",
    )
    held = f"{watched.held} calls" + "".join(f", {reason}" for reason in watched.reasons)
    lines = [
        Text("redrive", style="bold cyan"),
        bucket,
        Text.assemble(("it holds        ", "dim"), (held, "magenta" if watched.held else "dim")),
    ]
    if not over:  # then the dashboard is gone
        inside = (play.sidecar.admin + "/", "underline")
        lines.append(Text.assemble(("its dashboard   ", "dim"), inside, ("   end: Ctrl-C", "dim")))
    return Group(*lines)


def _lately(app: App) -> Counts:
    return Counts(*map(sum, zip(*map(astuple, islice(reversed(app.samples), _LATELY)), strict=True)))


def _percent(counts: Counts) -> str:
    return f"{counts.succeeded / counts.calls:.1%}" if counts.calls else "–"


def _mean(counts: Counts) -> str:
    return f"{counts.attempts / counts.calls:.2f}" if counts.calls else "–"


def _share(counts: Counts) -> Text:
    return Text(_percent(counts), style="bold " + _how_good(counts.succeeded / counts.calls) if counts.calls else "dim")


def _how_good(share: float) -> str:
    return "green" if share >= 0.99 else "yellow" if share >= 0.9 else "red"


def _attempts(counts: Counts) -> Text:
    mean = counts.attempts / counts.calls if counts.calls else 0.0
    return Text(_mean(counts), style="" if mean < 1.5 else "yellow" if mean < 2 else "red")


def _load(counts: Counts, span: float) -> Text:
    if not span:
        return Text("–", style="dim")
    rate = counts.requests / span
    style = "" if rate < 1.5 * CALLS_PER_SECOND else "yellow" if rate < 2.5 * CALLS_PER_SECOND else "red"
    return Text(f"{rate:.0f} requests/s", style=style)


def _rate_bars(app: App, wide: int) -> Text:
    text = Text()
    for sample in list(app.samples)[-wide:]:
        share = sample.succeeded / sample.calls if sample.calls else None
        text.append(_BARS[0] if share is None else _bar(share), style=None if share is None else _how_good(share))
    return text


def _bars(values: Sequence[float], highest: float) -> Text:
    return Text("".join(_bar(value / highest) for value in values), style="cyan")


def _bar(share: float) -> str:
    return _BARS[max(1, min(8, round(share * 8)))]


def _seconds(app: App) -> Text:
    if not app.seconds:
        return Text("–")
    half, most = app.quantile(0.5), app.quantile(0.95)
    return Text(f"{half:.1f} / {most:.1f} s" if half >= 1 else f"{half * 1000:.0f} / {most * 1000:.0f} ms")


def verdict(play: DemoRun) -> str:
    """The demo's last line: the shares of calls that succeeded with redrive and with the two other ways to call, the
    calls that redrive saved, and what that cost in requests and in time. `play`: the run so far.
    """
    none, at_once, ours = play.apps
    if not all(app.counts.calls for app in play.apps):
        return "verdict: none yet, since no call has ended"
    lost = min(none.failed, at_once.failed) - ours.failed
    saved = f"{lost:,} calls fewer failed" if lost > 0 else "it saved no calls"
    others = ", ".join(f"{_succeeded(app)} with {app.name}" for app in (none, at_once))
    sent = ", ".join(f"{100 * app.counts.attempts / app.counts.calls:.0f}" for app in play.apps)
    slow = f"{ours.quantile(0.5):.1f} and {ours.quantile(0.95):.1f} s"
    return (
        f"verdict: {_succeeded(ours)} succeeded with redrive, {others}: {saved}; requests sent for 100 calls: {sent} "
        f"(redrive last); the price: half of redrive's calls, and 95 % of them, took at most {slow}"
    )


def _succeeded(app: App) -> str:
    return f"{app.counts.succeeded / app.counts.calls:.1%}"
