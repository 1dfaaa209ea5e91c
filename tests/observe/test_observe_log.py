from __future__ import annotations

import contextlib
import json
import os
import pty
import resource
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observed import WALL, ended, retried, shown

from proxy.hidden_values import HiddenValues
from proxy.observe.access_log import MOST, AccessLog
from proxy.observe.aggregate import Aggregate, AggregatedCalls, Report
from proxy.observe.call_record import refused
from proxy.observe.compiled import attempt_json
from proxy.observe.metrics import Metrics
from proxy.observe.notices import LogTrouble
from proxy.observe.observers import Observers
from proxy.observe.recent_calls import RecentCalls
from proxy.observe.sink import LineSink
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.facts import Class, FaultKind, Outcome, Request


class Kept:
    """A sink that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, lines: str) -> None:
        assert lines.endswith("\n")
        self.lines += [f"{line}\n" for line in lines[:-1].split("\n")]


REFUSAL = refused(WALL, "127.0.0.1:1", 400, Outcome.BAD_REQUEST, 'two "lengths"', "GET", "u:s3cret@h", "/x?k=s3cret")


def test_the_line_of_a_first_attempt_success() -> None:
    kept = Kept()
    AccessLog(kept).add([ended()])
    assert json.loads(kept.lines[0]) == {
        "time": "2026-01-01T00:00:00.250Z",
        "event": "call",
        "upstream": "payments",
        "route": "",
        "strategy": "standard",
        "method": "GET",
        "host": "api.payments.example",
        "path": "/v1/x?key=***",
        "client": "127.0.0.1:4000",
        "status": 200,
        "outcome": "success",
        "attempts": 1,
        "duration": 0.004,
        "bytes_in": 0,
        "bytes_out": 12,
        "endpoint": "127.0.0.1:8081",
        "history": [{"attempt": 1, "start": 0, "duration": 0.004, "status": 200, "class": "success"}
                    | {"decision": "delivered"}],
    }  # fmt: skip


@pytest.mark.parametrize("console", [False, True])
def test_no_line_shows_what_is_hidden(console: bool) -> None:
    """Neither in the log, for people or as JSON, nor where its lines go too."""
    kept, also = Kept(), Kept()
    log = AccessLog(kept, console=console)
    log.also, log.hidden = also, HiddenValues({"payments.example": "${file:host}"})
    log.add([ended(), ended(path="/payments.example/y")])
    assert len(kept.lines) == len(also.lines) == 2
    assert "payments.example" not in repr((kept.lines, also.lines))
    assert [json.loads(line)["host"] for line in also.lines] == ["api.${file:host}"] * 2
    assert "/${file:host}/y" in kept.lines[1] and "/${file:host}/y" in also.lines[1]
    assert console or kept.lines == also.lines


def test_the_line_of_a_retried_call_says_why() -> None:
    kept = Kept()
    AccessLog(kept).add([retried()])
    line = json.loads(kept.lines[0])
    assert line["attempts"] == 3
    assert [a["decision"] for a in line["history"]] == ["retried", "retried", "delivered"]
    assert line["history"][0] == {
        "attempt": 1,
        "start": 0.0,
        "duration": 0.01,
        "status": 503,
        "class": "transient",
        "because": "transient: 503",
        "decision": "retried",
        "delay": 0.1,
    }
    assert line["history"][1]["fault"] == "reset"
    assert line["history"][2]["price"] == 5


def test_the_log_and_the_ring_show_the_same() -> None:
    for call in (
        ended(),
        retried(),
        ended(outcome=Outcome.DENIED, status=403, attempts=0, detail="denied", app_retry=True),
    ):
        kept, recent = Kept(), RecentCalls()
        Observers(Metrics(), recent, AccessLog(kept)).call_ended(call)
        line = json.loads(kept.lines[0])
        (told,) = shown(recent.since(0))
        assert told == {"number": 1, **line}


def test_hostile_strings_stay_inside_their_quotes() -> None:
    kept = Kept()
    request = Request("GET", 'h"\n\x1b[2J', '/"\\\n\udcff\x00?x"=1')
    log = AccessLog(kept)
    log.add([ended(request=request)])
    line = json.loads(kept.lines[0])
    assert line["host"] == 'h"\n\x1b[2J'
    assert line["path"] == '/"\\\n\udcff\x00?x"=***'
    log.configure(console=True, level="info")
    log.add([ended(request=request)])
    assert kept.lines[1][:-1].isprintable()


def test_levels() -> None:
    kept = Kept()
    log = AccessLog(kept, level="warning")
    log.add([ended()])
    log.add([ended(outcome=Outcome.NOT_RETRYABLE, status=404)])
    assert len(kept.lines) == 1
    log.configure(console=False, level="error")
    log.add([ended(outcome=Outcome.NOT_RETRYABLE, status=404)])
    log.add([REFUSAL])
    log.add([ended(outcome=Outcome.ATTEMPTS_EXHAUSTED, status=503)])
    assert len(kept.lines) == 2


def test_console_lines_are_short() -> None:
    kept = Kept()
    log = AccessLog(kept, console=True)
    log.add([ended()])
    log.add([retried()])
    log.add([REFUSAL])
    assert kept.lines == [
        "00:00:00.250 GET api.payments.example/v1/x?key=*** -> 200 success 4ms [payments]\n",
        "00:00:00.250 GET api.payments.example/v1/x?key=*** -> 200 success 340ms · "
        "503 (+100ms), reset (+200ms), 200 [payments]\n",
        '00:00:00.250 GET ***@h/x?k=*** -> 400 bad_request: two "lengths"\n',
    ]


def test_console_lines_say_why_and_what_held() -> None:
    kept = Kept()
    log = AccessLog(kept, console=True)
    poor = AttemptRecord(1, 10.0, 10.004, 503, cls=Class.TRANSIENT, decision="bucket_empty", why="the bucket has 4")
    log.add([ended(outcome=Outcome.BUCKET_EMPTY, status=503, history=[poor])])
    held = AttemptRecord(1, 12.0, 12.5, 200, cls=Class.SUCCESS, decision="delivered", held=2.0, held_by="cooldown")
    log.add([ended(history=[held], ended=12.5)])
    log.add([REFUSAL.with_path("/\x9b2J\x1b[1m")])
    assert kept.lines == [
        "00:00:00.250 GET api.payments.example/v1/x?key=*** -> 503 bucket_empty 4ms · 503 [payments]: "
        "the bucket has 4\n",
        "00:00:00.250 GET api.payments.example/v1/x?key=*** -> 200 success 2.50s · "
        "2.00s held by cooldown, 200 [payments]\n",
        '00:00:00.250 GET ***@h/?2J?[1m -> 400 bad_request: two "lengths"\n',
    ]


def test_a_refusal_has_the_fields_of_any_call() -> None:
    kept, recent = Kept(), RecentCalls()
    told = Observers(Metrics(), recent, AccessLog(kept))
    answered = copy(REFUSAL)
    answered.bytes_out = 99
    told.call_ended(answered)
    told.call_ended(ended())
    refused, call = map(json.loads, kept.lines)
    assert list(refused) == [*list(call)[:-1], "detail", "history"]
    nothing = ("strategy", "attempts", "duration", "bytes_in", "bytes_out", "endpoint")
    assert [refused[name] for name in nothing] == ["", 0, 0.0, 0, 99, ""]
    told = {tuple(sorted(set(each) - {"detail"})) for each in shown(recent.since(0))}
    assert len(told) == 1


def test_refusals_are_masked_too() -> None:
    kept, recent = Kept(), RecentCalls()
    Observers(Metrics(), recent, AccessLog(kept)).call_ended(REFUSAL)
    line = json.loads(kept.lines[0])
    assert (line["host"], line["path"], line["detail"]) == ("***@h", "/x?k=***", 'two "lengths"')
    assert "s3cret" not in kept.lines[0] + repr(recent.since(0))


def test_one_failure_over_and_over_is_told_in_part_and_counted_in_full() -> None:
    kept, alarms = Kept(), []
    log = AccessLog(kept, later=lambda seconds, function: alarms.append((seconds, function)))
    same = ended(outcome=Outcome.BUCKET_EMPTY, status=503, attempts=2)
    for _ in range(MOST + 7):
        log.add([same])
        log.add([ended()])
    log.add([ended(outcome=Outcome.BUCKET_EMPTY, status=502, attempts=2)])
    outcomes = Counter((line["outcome"], line["status"]) for line in map(json.loads, kept.lines))
    assert outcomes == {("bucket_empty", 503): MOST, ("success", 200): MOST + 7, ("bucket_empty", 502): 1}
    ((seconds, function),) = alarms
    assert seconds == 1.0
    kept.lines.clear()
    function()
    assert [json.loads(line) for line in kept.lines] == [
        {
            "time": "2026-01-01T00:00:00.250Z",
            "event": "repeated",
            "upstream": "payments",
            "route": "",
            "outcome": "bucket_empty",
            "status": 503,
            "lines": 7,
        }
    ]
    log.add([same])  # the next second begins with the next failure
    assert len(kept.lines) == 2
    assert len(alarms) == 2
    log.configure(console=True, level="info")
    for _ in range(MOST):
        log.add([same])
    kept.lines.clear()
    log.close()
    assert kept.lines == ["… 1 more like it within a second: payments -> 503 bucket_empty\n"]


def test_what_failed_is_not_pushed_out_by_what_succeeded() -> None:
    ring = RecentCalls(kept=3)
    ring.add([ended(outcome=Outcome.DEADLINE, status=504)])
    for _ in range(10):
        ring.add([ended()])
    ring.add([retried()])
    assert [call.number for call in ring.since(0)] == [1, 9, 10, 11, 12]
    assert [call.number for call in ring.since(0, 2)] == [11, 12]
    assert [call.number for call in ring.show(ring.choose_notable(0))] == [1, 12]
    assert [call.number for call in ring.show(ring.choose_notable(1))] == [12]
    assert [call.number for call in ring.show(ring.choose_news(0, 3))] == [1, 11, 12]
    assert [call.number for call in ring.show(ring.choose_news(9, 5))] == [10, 11, 12]
    assert (
        list(ring.show(ring.choose_news(12, 5))) == ring.since(12) == list(ring.show(ring.choose_notable(0, 0))) == []
    )


def test_calls_of_workers_are_all_shown_whoever_asks_in_between() -> None:
    worker, told = RecentCalls(), AggregatedCalls()
    gathered = Aggregate(Metrics(), told)

    def report(*, calls: bool) -> None:
        asked = worker.since(gathered.seen(7)) if calls else None
        gathered.keep(7, Report([], worker.seen, asked))
        gathered.take()

    worker.add([ended()])
    report(calls=True)
    worker.add([retried()])
    report(calls=False)
    worker.add([ended()])
    report(calls=True)
    report(calls=True)
    assert [call.number for call in told.since(0)] == [1, 2, 3]
    assert [call["attempts"] for call in shown(told.show(told.choose_notable(0)))] == [3]
    gathered.keep(7, Report([], worker.seen, worker.since(0)))  # its last word tells everything again
    gathered.ended(7)
    assert told.seen == 3


def test_the_ring_is_bounded_and_numbered() -> None:
    recent = RecentCalls(kept=3)
    for n in range(5):
        recent.add([ended(status=200 + n, request=Request("GET", "h", "/" + "x" * 70_000))])
    assert [(e["number"], e["status"]) for e in shown(recent.since(0))] == [(3, 202), (4, 203), (5, 204)]
    assert [e.number for e in recent.since(4)] == [5]
    assert recent.since(5) == []
    assert [e.number for e in recent.since(0, limit=1)] == [5]
    assert len(shown(recent.since(4))[0]["path"]) < 3000


class Loop:
    """`call_later` without a loop: what was asked for waits to be run."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], None]] = []

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        self.asked.append(function)

    def run(self) -> None:
        asked, self.asked = self.asked, []
        for function in asked:
            function()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_lines_are_gathered_and_written_together(pipe: tuple[int, int]) -> None:
    loop = Loop()
    sink = LineSink(pipe[1], loop.later)
    sink.add("a\n")
    sink.add("é\n")
    assert len(loop.asked) == 1
    loop.run()
    assert os.read(pipe[0], 100) == "a\né\n".encode()
    assert loop.asked == []


def test_lines_that_were_gathered_are_written_at_once(pipe: tuple[int, int]) -> None:
    loop = Loop()
    sink = LineSink(pipe[1], loop.later)
    sink.add_now("a\nb\n")
    assert os.read(pipe[0], 100) == b"a\nb\n"
    assert loop.asked == []
    sink.add("c\n")
    sink.add_now("d\n")
    assert os.read(pipe[0], 100) == b"c\nd\n"
    loop.run()
    assert loop.asked == []


def test_a_line_for_which_there_is_no_room_now_is_written_later(pipe: tuple[int, int]) -> None:
    loop = Loop()
    sink = LineSink(pipe[1], loop.later)
    os.set_blocking(pipe[1], False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe[1], b"x" * 4096)
    sink.add_now("a\n")
    assert len(loop.asked) == 1
    os.set_blocking(pipe[0], False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.read(pipe[0], 1 << 20)
    loop.run()
    assert os.read(pipe[0], 100) == b"a\n"
    assert loop.asked == []


def test_a_reader_that_stands_still_holds_nobody_up(pipe: tuple[int, int]) -> None:
    loop = Loop()
    sink = LineSink(pipe[1], loop.later)
    line = "x" * 1023 + "\n"
    for _ in range(16 * 1024):  # twice what is kept
        sink.add(line)
        if len(loop.asked) and len(sink._lines) == 1024:
            loop.run()
    os.set_blocking(pipe[0], False)
    read = bytearray()
    for _ in range(10_000):
        loop.run()
        try:
            read += os.read(pipe[0], 1 << 20)
        except BlockingIOError:
            break
        sink.add("later\n")
    lines = read.decode().splitlines()
    assert any(line.startswith('{"event":"dropped","lines":') for line in lines)
    assert lines[-1] == "later"
    assert len(read) < 11 * 1024 * 1024


def test_a_reader_that_is_gone_is_forgotten() -> None:
    loop = Loop()
    reader, writer = os.pipe()
    sink = LineSink(writer, loop.later)
    os.close(reader)
    for _ in range(3):
        sink.add("x\n")
        loop.run()
    sink.close()
    os.close(writer)
    assert loop.asked == []


def test_a_full_disk_takes_lines_again_once_there_is_room(tmp_path: Path) -> None:
    """Also the rest of the line that it broke off in."""
    loop, lost = Loop(), list[int]()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = tmp_path / "log"
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    sink = LineSink(descriptor, loop.later, lost=lost.append)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        for _ in range(3):
            sink.add("one line\n")
            loop.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_text() == "one line\no"
    loop.run()
    assert file.read_text() == "one line\n" * 3
    sink.close()
    os.close(descriptor)
    assert lost == []


def test_trouble_is_reported_once_until_lines_are_written_again(tmp_path: Path) -> None:
    loop, said = Loop(), list[str]()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = tmp_path / "log"
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    sink = LineSink(descriptor, loop.later, trouble=said.append)
    sink.add("one line\n")
    loop.run()
    assert said == []
    for turn in (1, 2):
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 4, before[1]))
        try:
            for _ in range(3):
                sink.add("one line\n")
                loop.run()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert said == ["File too large", ""] * (turn - 1) + ["File too large"]
        loop.run()
        assert said == ["File too large", ""] * turn
    sink.close()
    os.close(descriptor)


def test_a_reader_that_stands_still_is_reported_when_lines_are_dropped(pipe: tuple[int, int]) -> None:
    loop, said = Loop(), list[str]()
    sink = LineSink(pipe[1], loop.later, trouble=said.append)
    for _ in range(3):
        sink.add(f"{'x' * 5_000_000}\n")
        loop.run()
    assert said == ["nothing reads it, and lines are dropped"]


def test_a_reader_that_is_gone_is_reported_for_good() -> None:
    loop, said = Loop(), list[str]()
    reader, writer = os.pipe()
    sink = LineSink(writer, loop.later, trouble=said.append)
    os.close(reader)
    for _ in range(3):
        sink.add("x\n")
        loop.run()
    sink.close()
    os.close(writer)
    assert said == ["Broken pipe"]


def test_the_trouble_of_several_processes_is_one_line_and_its_end_another() -> None:
    said = list[str]()
    trouble = LogTrouble(said.append)
    trouble.report(1, "No space left on device")
    trouble.report(2, "No space left on device")
    trouble.report(1, "")
    assert len(said) == 1
    trouble.report(2, "")
    assert said[1:] == ["redrive: the log is written again"]
    trouble.report(3, "Broken pipe")
    trouble.ended(3)
    trouble.report(4, "Broken pipe")
    assert len(said) == 4


def test_lines_that_will_never_be_written_are_counted(pipe: tuple[int, int]) -> None:
    loop, lost = Loop(), list[int]()
    full = os.open("/dev/full", os.O_WRONLY)
    sink = LineSink(full, loop.later, lost=lost.append)
    sink.add("one\n")
    sink.add("two\nthree\n")
    sink.close()
    os.close(full)
    assert lost == [3]
    reader, writer = os.pipe()
    gone = LineSink(writer, loop.later, lost=lost.append)
    os.close(reader)
    gone.add("four\n")
    loop.run()
    gone.add("five\nsix\n")
    loop.run()
    os.close(writer)
    assert lost == [3, 1, 2]


def test_an_end_waits_a_second_for_a_reader_that_hardly_reads(pipe: tuple[int, int]) -> None:
    """It takes a little now and then, so that there is always room again soon."""
    loop, lost = Loop(), list[int]()
    sink = LineSink(pipe[1], loop.later, lost=lost.append)
    for _ in range(8 * 1024):
        sink.add("x" * 1023 + "\n")
    over = threading.Event()

    def drip() -> None:
        while not over.wait(0.02):
            os.read(pipe[0], 4096)

    reader = threading.Thread(target=drip)
    reader.start()
    ended = threading.Thread(target=sink.close, daemon=True)
    ended.start()
    ended.join(20)  # it would take 40 s to the last line
    over.set()
    reader.join()
    assert not ended.is_alive()
    assert sum(lost) > 1000


def test_a_terminal_that_nobody_reads_holds_nobody_up() -> None:
    """It says that there is room where there is less than what is written."""
    ours, theirs = pty.openpty()
    loop = Loop()
    sink = LineSink(theirs, loop.later)
    wrote = threading.Thread(target=lambda: [(sink.add("x" * 3000 + "\n"), loop.run()) for _ in range(60)], daemon=True)
    wrote.start()
    wrote.join(20)
    assert not wrote.is_alive()
    assert os.get_blocking(theirs)  # it is others' too
    os.close(ours)
    os.close(theirs)


def expected(record: AttemptRecord, started: float) -> dict[str, object]:
    """What is shown of an attempt; what is absent is left out."""
    said = {
        "attempt": record.attempt,
        "start": round(record.started - started, 6),
        "duration": None if record.ended is None else round(record.ended - record.started, 6),
        "endpoint": record.endpoint or None,
        "status": record.status,
        "grpc_status": record.grpc_status,
        "fault": record.fault and record.fault.value,
        "detail": record.detail or None,
        "class": record.cls and record.cls.value,
        "because": record.because or None,
        "pushback": record.pushback or None,
        "pushback_delay": None if record.pushback_delay is None else round(record.pushback_delay, 3),
        "price": record.price or None,
        "held": round(record.held, 6) or None,
        "held_by": record.held_by or None,
        "decision": record.decision,
        "why": record.why or None,
        "delay": None if record.delay is None else round(record.delay, 6),
    }
    return {key: value for key, value in said.items() if value is not None}


@given(
    st.builds(
        AttemptRecord,
        attempt=st.integers(1, 30),
        started=st.floats(0, 1e6),
        ended=st.none() | st.floats(0, 1e6),
        status=st.none() | st.integers(100, 999),
        grpc_status=st.none() | st.integers(0, 16),
        fault=st.none() | st.sampled_from(FaultKind),
        detail=st.text(),
        cls=st.none() | st.sampled_from(Class),
        because=st.text(),
        decision=st.sampled_from(["delivered", "retried", Outcome.DENIED]),
        why=st.text(),
        delay=st.none() | st.floats(0, 1e6),
        pushback=st.text(),
        pushback_delay=st.none() | st.floats(0, 1e6),
        price=st.just(0.0) | st.integers(0, 10) | st.floats(0, 100),
        held=st.just(0.0) | st.floats(0, 1e6),
        held_by=st.sampled_from(["", "cooldown"]),
        endpoint=st.text(),
    )
)
def test_an_attempt_in_a_line_and_in_the_admin_api_are_the_same(record: AttemptRecord) -> None:
    written, said = json.loads(attempt_json(record, 3.5)), expected(record, 3.5)
    assert written.keys() == said.keys()
    for key, value in said.items():
        assert written[key] == (pytest.approx(value, abs=2e-3) if isinstance(value, float) else value)


def test_what_an_attempt_cost_is_written_as_it_is_whatever_was_written_before() -> None:
    written = [attempt_json(AttemptRecord(2, 0.0, price=price, decision="retried"), 0.0) for price in (5.0, 5)]
    assert [type(json.loads(line)["price"]) for line in written] == [float, int]


def test_whatever_is_written_at_once_ends_with_a_line() -> None:
    reading, writing = os.pipe2(os.O_DIRECT)  # a read is what one write was
    try:
        sink = LineSink(writing, lambda seconds, function: None)
        for number in range(100):
            sink.add(f"{number} {'x' * 150}\n")
        sink.close()
        assert os.read(reading, 4096).endswith(b"x\n")
    finally:
        os.close(reading)
        os.close(writing)
