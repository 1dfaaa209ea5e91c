"""`/events`: calls as they end, and the dashboard's board: the rows of upstreams and buckets whose figures changed.

A reader costs little, and a slow reader costs the others nothing. Every reader is sent calls as they end. A reader of
the board (`?board`) is also sent the rows that changed, and at most a number of calls with each update (`?most`); calls
that were retried or failed come before those that succeeded at once.

All readers share one update of the rows. Updating takes at most a fiftieth of a core: the longer an update took, the
longer the next one is put off. Rows are made in pieces (`turns`), because calls share the loop. A row is sent again
only if a figure in it has changed.

Theory: counters only grow. The figures of the last minute are the difference between a counter now and at the beginning
of a window. Two marks, thirty seconds apart, are kept, so that the window covers the last 30 to 60 seconds. Counters
and bucket levels are also sampled every five seconds for the last fifteen minutes (`timeline`), so that a page that is
opened shows what happened before. Samples, too, are made in pieces, and take at most a fiftieth of a core. While no
call comes and no figure changes, the last sample is repeated, and a new one is made every thirty seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web

from proxy.admin.connections import has_said_all
from proxy.admin.handlers import is_count, refusal, write_in_pieces
from proxy.admin.timeline import SAMPLE, Timeline, quantile
from proxy.admin.turns import gradually, in_turns, rest
from proxy.admin.upstream_state import STATES, beside, is_drained, only_keys_cool, states_of
from proxy.admin.upstream_view import Live, Provision
from proxy.admin.views import View
from proxy.hidden_values import HiddenValues, shown_data
from proxy.observe.recent_calls import NumberedCall

#: How many levels of each bucket a new reader of the board is sent: those of five minutes.
LEVELS = 60
#: Seconds from one mark of the window to the next.
_WINDOW = 30.0
#: Samples in a row without a change, from which on the last one is repeated as long as no call comes: longer than the
#: quiet in which levels change again (a budget forgets calls after its window, a quota refills in quiet).
_STILL = 4
#: The most seconds between samples: in a busy process a sample can take long without costing much.
_LONGEST = 15.0
#: The least seconds between two updates of the rows, and the part of a core that updates may take.
_LOOK, _SHARE = 1.0, 0.02
#: Seconds between looks at new calls, for a reader of calls alone; and of silence before a comment shows that the
#: stream is alive.
_LOOK_AT_CALLS, _ALIVE = 0.25, 15.0
#: The most calls in one update for a reader of the board, unless its request says otherwise.
_MOST = 50

#: The provision of an upstream that the configuration does not name.
_NOTHING = Provision()

#: Set once the application shuts down.
CLOSING = web.AppKey("closing", asyncio.Event)


@dataclass(slots=True)
class _Row:
    version: int
    seen: Any
    text: str


class LiveBoard:
    """The board of one admin port. `clock` gives seconds, to measure how long an update takes; `name` tells this
    process's board from that of another.
    """

    def __init__(self, view: View, clock: Callable[[], float], name: str) -> None:
        self._view = view
        self._clock = clock
        self._name = name
        self._version = 0
        self._full = 0  # the version in which a row was last removed or moved: older readers are sent everything again
        self._rows: dict[str, _Row] = {}
        self._buckets: dict[str, _Row] = {}
        self._loads = -1  # the number of the configuration that `_provisions` belongs to
        self._provisions: dict[str, Provision] = {}
        self.timeline = Timeline()
        self._marks: deque[tuple[float, dict[str, Live]]] = deque(maxlen=2)
        self._looked = float("-inf")
        self._looking = asyncio.Lock()
        self._rested: tuple[int, int] | None = None  # what `View.at_rest` gave at the last sample
        self.wait = _LOOK

    async def keep_sampling(self, closing: asyncio.Event) -> None:
        """Take samples until `closing` is set, when the application shuts down."""
        while not closing.is_set():
            await self._view.refresh()
            began = self._clock()
            await self.sample()
            await rest(closing, pause_after(self._clock() - began))

    async def sample(self) -> None:
        """Take a sample of counters and levels, and every _WINDOW seconds mark the beginning of a window. To be called
        every SAMPLE seconds.
        """
        began, timeline = self._clock(), self.timeline
        is_due = not self._marks or began - self._marks[-1][0] >= _WINDOW * 0.9
        before, self._rested = self._rested, self._view.at_rest()
        if timeline.still >= _STILL and before is not None and before == self._rested and not is_due:
            timeline.repeat(began)
            return
        live = await self._view.live()
        if is_due:
            self._marks.append((began, {row.name: row for row in live}))
        timeline.begin(began)
        async for row in gradually(live):
            timeline.note(row)
        async for bucket in gradually(await _lowest(await self._view.buckets())):
            timeline.level(bucket["bucket"], bucket["level"])
        timeline.end()

    async def look(self) -> None:
        """Update the rows of the board, unless that was done less than `wait` seconds ago (the longer the last update
        took, the longer that is).
        """
        async with self._looking:
            began = self._clock()
            if began - self._looked < self.wait * 0.9:
                return
            self._looked = began
            marked = self._marks[0][1] if self._marks else {}
            live, lowest = await self._view.live(), await _lowest(await self._view.buckets())
            if self._loads != self._view.loads():
                self._loads, self._provisions = self._view.loads(), await self._view.provisions()
            version, buckets = self._version + 1, {each["bucket"]: each for each in lowest}
            rows = (
                (row.name, _upstream(row, marked.get(row.name), self._provisions.get(row.name, _NOTHING), buckets))
                for row in live
            )
            await self._take(version, self._rows, rows, in_order=True)
            found = ((each["bucket"], each) for each in lowest)
            await self._take(version, self._buckets, found, in_order=False)
            self._version = version  # last: a row that a reader is sent before this is sent again
            self.wait = max(_LOOK, (self._clock() - began) / _SHARE)

    def since(self, version: int, **more: Any) -> tuple[str, int]:
        """A message, as JSON, with the board's rows that changed after `version` (0: all rows), and the version of the
        rows now. `more` are further members of the message.
        """
        full = version < self._full or version == 0
        after = 0 if full else version
        began = self._marks[0][0] if self._marks else self._clock()
        message: dict[str, Any] = {
            "board": self._name,
            "full": full,
            "window": round(self._clock() - began, 1),
            "sample": self.timeline.number,
            "sampled_every": SAMPLE,
            "loads": self._view.loads(),
            "calls": self._view.recent.seen,
            "ready": asdict(self._view.readiness()),
            **more,
        }
        if full:
            message["states"] = {name: asdict(state) for name, state in STATES.items()}
            message["history"] = {label: self.timeline.levels(label, LEVELS) for label in self.timeline.labels()}
        hidden = self._view.hidden()
        head = json.dumps(shown_data(message, hidden), separators=(",", ":"))
        upstreams, buckets = _changed(self._rows, after), _changed(self._buckets, after)
        return f'{head[:-1]},"upstreams":[{upstreams}],"buckets":[{buckets}]}}', self._version

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """`/events`. With `Last-Event-ID`, the stream goes on after that call, as far back as the last calls are
        kept.
        """
        await self._view.refresh()
        reader = EventReader(request, self._view, self)
        if reader.most and not is_count(reader.most):
            return refusal(400, "most must be a whole number.")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if request.version < (1, 1):  # such a stream ends with its connection
            response.force_close()
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        await response.write(b"retry: 1000\n\n")
        closing, quiet = request.app[CLOSING], 0.0
        while not closing.is_set() and not has_said_all(request):  # a reader that leaves fails a write or cancels this
            news = await reader.news()
            if not news and quiet >= _ALIVE:
                news = ": alive\n\n"
            if news:
                await write_in_pieces(response, news.encode())
            quiet = 0.0 if news else quiet + reader.wait
            await rest(closing, reader.wait)
        return response

    async def _take(
        self, version: int, known: dict[str, _Row], found: Iterable[tuple[str, dict[str, Any]]], *, in_order: bool
    ) -> None:
        """Make `known`, the rows as they were last made, the ones that were `found`. `in_order`: readers list them, and
        can't see a change of their order; they look buckets up by name, whose order changes as scopes come and go.
        """
        hidden = self._view.hidden()
        names = await in_turns(_update_row(version, known, name, seen, hidden) for name, seen in found)
        is_moved = in_order and names != list(known)
        if is_moved or len(names) < len(known):
            kept = {name: known[name] for name in names}
            known.clear()
            known.update(kept)
            self._full = version


def pause_after(took: float) -> float:
    """Seconds to wait after a sample that took `took` seconds. Samples begin every SAMPLE seconds, or later if they
    would otherwise take more than _SHARE of a core.
    """
    return min(max(SAMPLE - took, took / _SHARE - took), _LONGEST)


def _update_row(
    version: int, known: dict[str, _Row], name: str, seen: dict[str, Any], hidden: HiddenValues | None
) -> str:
    """Store the figures `seen` of the row `name` in `known`, the rows as they were last made, if they differ or the row
    is new. A row that is stored gets `version`, the number of the board's version that is being made. `hidden`: what
    readers are not sent, None for nothing. Return the row's name.
    """
    row = known.get(name)
    if row is None or row.seen != seen:
        text = json.dumps(shown_data(seen, hidden), separators=(",", ":"))
        known[name] = _Row(version, seen, text)
    return name


def _changed(rows: dict[str, _Row], after: int) -> str:
    return ",".join(row.text for row in rows.values() if row.version > after)


def _upstream(
    row: Live, marked: Live | None, provision: Provision, buckets: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """An upstream's row. `marked` has its counters when the window began, None if there was no such row then;
    `provision`: the buckets, rates and credentials that the configuration gives it; `buckets` the rows of all
    buckets.
    """
    figures, slots, took = row.figures(), row.slots, row.seconds
    recent: dict[str, Any] = figures
    if marked is not None:
        before = marked.figures()
        recent = {name: count - before[name] for name, count in figures.items()}
        slots = [now - then for now, then in zip(slots, marked.slots, strict=True)]
        took -= marked.seconds
    bucket, rate = _least(buckets, provision.buckets), _least(buckets, provision.rates)
    drained = bucket is not None and bool(bucket["drained"])
    states = states_of(row, recent, drained=drained, keys=provision.keys)
    recent = {**recent, **{f"p{percent}": quantile(slots, percent / 100, took) for percent in (50, 95, 99)}}
    return {
        "name": row.name,
        "state": states[0],
        "also": beside(states),
        "bucket": bucket and bucket["bucket"],
        "rate": rate and rate["bucket"],
        **figures,
        "cooldown": round(row.cooldown, 1),
        "began": _began(row),
        "held": row.held,
        "held_by": {cause: count for cause, count in row.by.items() if count},
        "weather": [_weather(each) for each in row.weather],
        "under_way": row.under_way,
        "queued": row.queued,
        "open": [[endpoint, round(left, 1)] for endpoint, left in row.open],
        "aside": [[key, round(left)] for key, left in row.aside],
        "cooling": [[key, round(left, 1)] for key, left in row.cooling],
        "unreadable": list(row.unreadable),
        "keys": provision.keys,
        "only_keys_cool": only_keys_cool(row, provision.keys),
        "recent": recent,
    }


def _began(row: Live) -> dict[str, Any] | None:
    """The answer that began the cooldown in force: when it came, its status, and the seconds that it asked for."""
    if row.began is None:
        return None
    said = {name: row.began[name] for name in ("status", "seconds", "elsewhere")}
    return {"began": round(row.began["began"]), **said}  # whole seconds, so that the row does not change with each look


def _weather(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of an upstream's weather with its durations rounded to whole seconds, so that the row changes, and is sent
    again, at most once a second.
    """
    rounded = {
        name: {**said, "seconds": round(said["seconds"])} if said is not None else None
        for name, said in (("outage", row["outage"]), ("limit", row["limit"]))
    }
    return {**row, **rounded}


def _least(buckets: Mapping[str, Mapping[str, Any]], labels: Iterable[str]) -> Mapping[str, Any] | None:
    """The bucket among those with these labels that has the smallest part of its capacity left; None if none is in
    use.
    """
    found = (buckets[label] for label in labels if label in buckets)
    return min(found, key=lambda bucket: bucket["level"] / (bucket["capacity"] or 1), default=None)


#: Suffixes that tell a strategy's limiter and its bound on hedges apart from its retry bucket: all have one label.
_SUFFIXES = {"adaptive limiter": " (limiter)", "hedging": " (hedges)"}


async def _lowest(buckets: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of buckets, with one row in place of several that differ only in their scope: the row with the lowest
    level, to which the number of these scopes is added.
    """
    lowest: dict[str, dict[str, Any]] = {}
    async for bucket in gradually(buckets):
        label = f"{bucket['bucket']}{_SUFFIXES.get(bucket['kind'], '')}"
        shown = {**bucket, "bucket": label}
        known = lowest.get(label)
        if known is None:
            lowest[label] = {**shown, "scopes": 1}
        else:
            scopes = known["scopes"] + 1
            lowest[label] = {**(shown if shown["level"] < known["level"] else known), "scopes": scopes}
    return [{**bucket, "drained": is_drained(bucket)} for bucket in lowest.values()]


class EventReader:
    """A reader of `/events`: what it was sent, and what it is sent next. `most`: the most calls that it is sent with
    each update, as the text of its request's parameter; "" for all.
    """

    def __init__(self, request: web.Request, view: View, board: LiveBoard) -> None:
        self._view = view
        self._board = board if "board" in request.query else None
        self.most = request.query.get("most", str(_MOST) if self._board is not None else "")
        self._version = 0
        self._skipped = 0
        last = request.headers.get("Last-Event-ID", "")
        self._at = view.recent.seen
        if is_count(last):  # a number beyond all seen is from before a restart
            self._at = int(last) if int(last) <= view.recent.seen else 0

    @property
    def wait(self) -> float:
        """Seconds to wait before new calls and changed rows are looked for again."""
        return _LOOK_AT_CALLS if self._board is None else self._board.wait

    async def news(self) -> str:
        """The text of the events that this reader has not been sent yet: calls that ended and, for a reader of the
        board, the changed rows; "" if there is nothing new.
        """
        await self._view.refresh()
        hidden = self._view.hidden()
        calls = ((call.number, call.text if hidden is None else hidden.json(call.text)) for call in self._calls())
        text = "".join(await in_turns(_event("call", said, number) for number, said in calls))
        if self._board is not None:
            await self._board.look()
            data, self._version = self._board.since(self._version, skipped=self._skipped)
            text += _event("board", data)
        return text

    def _calls(self) -> Iterator[NumberedCall]:
        recent, at = self._view.recent, self._at
        self._at = recent.seen
        if not self.most:
            return recent.show(recent.choose(at))
        chosen = recent.choose_news(at, int(self.most))
        self._skipped += recent.seen - at - len(chosen)
        return recent.show(chosen)


def _event(name: str, data: str, number: int | None = None) -> str:
    line = f"id: {number}\n" if number is not None else ""
    return f"{line}event: {name}\ndata: {data}\n\n"
