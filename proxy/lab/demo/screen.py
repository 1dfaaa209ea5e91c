"""The demo's picture: three columns under one sky. Figures come in, a rich renderable goes out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from proxy.lab.demo import weather
from proxy.lab.demo.apps import EVERY, App, Counts
from proxy.lab.demo.play import CALLS_PER_SECOND, Play

_BARS = " ▁▂▃▄▅▆▇█"
#: Samples that a line of bars shows, and that "lately" means.
_WIDE, _LATELY = 18, 10
#: Width of the bucket.
_GAUGE = 24
_COLOURS = {
    "calm": "green",
    "failures": "yellow",
    "outage": "red",
    "throttling": "magenta",
    "slow": "blue",
}
_EXPLAINED = {
    "calm": "hardly anything fails",
    "failures": "three of ten requests fail with 503",
    "outage": "every request fails",
    "throttling": "it takes less than is asked: 429",
    "slow": "answers take longer, and one of seven hangs",
}


def picture(play: Play) -> RenderableType:
    """Everything, as it is now."""
    return Group(_sky(play), _columns(play), _below(play))


def _sky(play: Play) -> RenderableType:
    now = weather.at(play.elapsed, play.round_seconds)
    colour = _COLOURS[now.name]
    left = weather.left(play.elapsed, play.round_seconds)
    line = Text.assemble(
        ("the upstream: ", "dim"),
        (now.name, f"bold {colour}"),
        (f"  {_EXPLAINED[now.name]}; {left:.0f} s left", "dim"),
    )
    return Panel(line, box=box.ROUNDED, border_style=colour)


def _columns(play: Play) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, expand=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"{CALLS_PER_SECOND:.0f} calls/s each", style="dim", no_wrap=True, min_width=14)
    for app in play.apps:
        style = "bold cyan" if app is play.apps[-1] else "bold"
        table.add_column(Text(app.name, style=style), no_wrap=True, min_width=_WIDE)
    lately = [_lately(app) for app in play.apps]
    skies = list(play.skies)[-_WIDE:]
    table.add_row("weather", *(_strip(skies) for _ in play.apps))
    table.add_row("succeeded", *(_share(counts) for counts in lately))
    table.add_row("", *(Text.assemble(_rate_bars(app)) for app in play.apps))
    table.add_row("  in all", *(_share(app.counts) for app in play.apps))
    table.add_row("attempts/call", *(_attempts(counts) for counts in lately))
    table.add_row("  in all", *(_attempts(app.counts) for app in play.apps))
    table.add_row("load upstream", *(_load(counts) for counts in lately))
    highest = max([8.0, *(sample.requests for app in play.apps for sample in islice(reversed(app.samples), _WIDE))])
    table.add_row("", *(_bars([sample.requests for sample in app.samples], highest, "cyan") for app in play.apps))
    table.add_row("half/95 % take", *(Text(_seconds(app)) for app in play.apps))
    return table


def _below(play: Play) -> RenderableType:
    watched = play.watched
    share = watched.level / watched.capacity if watched.capacity else 0.0
    full = round(share * _GAUGE)
    colour = "green" if share > 0.5 else "yellow" if share > 0.1 else "red"
    bucket = Text.assemble(
        ("redrive's bucket  ", "dim"),
        ("█" * full, colour),
        ("░" * (_GAUGE - full), "dim"),
        f" {watched.level:.0f} of {watched.capacity:.0f} tokens",
        (", a retry costs 5", "dim"),
    )
    cooling = f"calls are held for another {watched.cooldown:.1f} s" if watched.cooldown else "none"
    lines = [
        bucket,
        Text.assemble(("its cooldown      ", "dim"), (cooling, "magenta" if watched.cooldown else "dim")),
        Text(),
        Text.assemble(("look inside: ", "dim"), (play.sidecar.admin, "underline"), ("   end: Ctrl-C", "dim")),
    ]
    return Group(*lines)


def _lately(app: App) -> Counts:
    total = Counts()
    for sample in islice(reversed(app.samples), _LATELY):
        total.calls += sample.calls
        total.succeeded += sample.succeeded
        total.attempts += sample.attempts
        total.requests += sample.requests
    return total


def _share(counts: Counts) -> Text:
    if not counts.calls:
        return Text("–", style="dim")
    share = counts.succeeded / counts.calls
    return Text(f"{share:.1%}", style="bold " + _how_good(share))


def _how_good(share: float) -> str:
    return "green" if share >= 0.99 else "yellow" if share >= 0.9 else "red"


def _attempts(counts: Counts) -> Text:
    if not counts.calls:
        return Text("–", style="dim")
    mean = counts.attempts / counts.calls
    return Text(f"{mean:.2f}", style="" if mean < 1.5 else "yellow" if mean < 2.5 else "red")


def _load(counts: Counts) -> Text:
    span = _LATELY * EVERY
    rate = counts.requests / span
    style = "" if rate < 1.5 * CALLS_PER_SECOND else "yellow" if rate < 2.5 * CALLS_PER_SECOND else "red"
    return Text(f"{rate:.0f} requests/s", style=style)


def _rate_bars(app: App) -> Text:
    text = Text()
    for sample in list(app.samples)[-_WIDE:]:
        share = sample.succeeded / sample.calls if sample.calls else None
        text.append(_BARS[0] if share is None else _bar(share), style=None if share is None else _how_good(share))
    return text


def _bars(values: Sequence[float], highest: float, style: str) -> Text:
    return Text("".join(_bar(value / highest) for value in values[-_WIDE:]), style=style)


def _bar(share: float) -> str:
    return _BARS[max(1, min(8, round(share * 8)))]


def _strip(skies: Iterable[str]) -> Text:
    text = Text()
    for name in skies:
        text.append("▀", style=_COLOURS[name])
    return text


def _seconds(app: App) -> str:
    return f"{app.quantile(0.5) * 1000:.0f} ms / {app.quantile(0.95):.2f} s"
