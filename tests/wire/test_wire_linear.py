"""Time is linear in what came: shown by the shape of the expressions and by counted work, never by a clock."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from re import _constants as codes  # the compiled shape has no public door
from re import _parser as shapes
from types import FrameType, ModuleType
from typing import Any

import pytest
from wire_cases import answer, request

from proxy.wire import authority, field_names, fields
from proxy.wire.errors import BadBody
from proxy.wire.http1 import body, syntax
from proxy.wire.http1 import parser as reading
from proxy.wire.http1.body import ChunkedBody, chunk, end_chunked
from proxy.wire.http1.compiled import CORE
from proxy.wire.http1.parser import RequestParser, ResponseParser


def expressions() -> Iterator[tuple[str, re.Pattern[bytes]]]:
    """Every expression that the room compiles, with its name."""
    for module in (authority, body, fields, reading, field_names, syntax):
        for name, value in vars(module).items():
            pattern = getattr(value, "__self__", value)
            if isinstance(pattern, re.Pattern) and not isinstance(value, ModuleType):
                yield f"{module.__name__}.{name}", pattern


def unbounded_repeats(node: Any) -> Iterator[Any]:
    """The operators of all repeats without a bound, at any depth."""
    if isinstance(node, shapes.SubPattern):
        for operator, arguments in node:
            repeats = operator in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
            if repeats and arguments[1] is codes.MAXREPEAT:
                yield operator
            yield from unbounded_repeats(arguments)
    elif isinstance(node, list | tuple):
        for each in node:
            yield from unbounded_repeats(each)


@pytest.mark.parametrize(("name", "pattern"), list(expressions()))
def test_every_unbounded_repeat_is_possessive(name: str, pattern: re.Pattern[bytes]) -> None:
    assert set(unbounded_repeats(shapes.parse(pattern.pattern, pattern.flags))) <= {codes.POSSESSIVE_REPEAT}


def test_the_shape_test_sees_other_repeats() -> None:
    assert set(unbounded_repeats(shapes.parse(b"a*(b++c*?)", 0))) == {
        codes.MAX_REPEAT,
        codes.MIN_REPEAT,
        codes.POSSESSIVE_REPEAT,
    }


class Watched(bytearray):
    """Counts the octets that searches go over."""

    seen = 0

    def find(self, what: Any, start: Any = 0, end: Any = None) -> int:
        end = len(self) if end is None else min(end, len(self))
        found = super().find(what, start, end)
        Watched.seen += (end if found < 0 else found) - start
        return found


def octets_looked_at(monkeypatch: pytest.MonkeyPatch, reader: Any, data: bytes) -> int:
    """What reading `data` byte by byte goes over in all: searches, expressions run, lines checked."""
    Watched.seen = 0

    def counted(match: Callable[..., Any]) -> Callable[..., Any]:
        def run(text: bytes, start: int = 0, end: int | None = None) -> Any:
            Watched.seen += max((len(text) if end is None else min(end, len(text))) - max(start, 0), 0)
            return match(text, start) if end is None else match(text, start, end)

        return run

    class Counted(reader):  # type: ignore[misc]
        _match = staticmethod(counted(reader._match))

    parser = Counted(headers=10000)
    parser._partial = Watched()
    with monkeypatch.context() as patch:
        patch.setattr(reading, "forbidden_octet", counted(syntax.forbidden_octet))
        for octet in data:
            parser.feed(bytes([octet]))
    return Watched.seen


SHAPES: dict[str, Callable[[int], tuple[str, list[str]]]] = {
    "one long field": lambda size: ("", ["X: " + "a" * size]),
    "many fields": lambda size: ("", ["X: y"] * (size // 6)),
    "a long line": lambda size: ("a" * size, []),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reader", [RequestParser, ResponseParser])
def test_a_head_that_drips_is_looked_at_a_few_times(
    monkeypatch: pytest.MonkeyPatch, reader: type[RequestParser | ResponseParser], shape: str
) -> None:
    def looked_at(size: int) -> float:
        line, more = SHAPES[shape](size)
        if reader is RequestParser:
            data = request(f"GET /{line} HTTP/1.1", *more)
        else:
            data = answer(f"HTTP/1.1 200 {line}", *more)
        return octets_looked_at(monkeypatch, reader, data) / len(data)

    assert looked_at(2000) < 12
    assert abs(looked_at(4000) - looked_at(2000)) < 0.2


def calls_made(work: Callable[[], object]) -> int:
    """How many calls, of Python's and of C's functions, the work makes: a measure that no machine changes."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def doubled(work: Callable[[int], Callable[[], object]], size: int) -> float:
    """By how much the number of calls grows when the size doubles."""
    return calls_made(work(2 * size)) / calls_made(work(size))


of_the_interpreter = pytest.mark.skipif(CORE == "compiled", reason="counts calls, of which compiled code makes none")


@of_the_interpreter
def test_pipelined_heads_cost_alike() -> None:
    def work(count: int) -> Callable[[], object]:
        data = request() * count

        def read() -> None:
            parser = RequestParser()
            head = parser.feed(data)
            while head is not None:
                head = parser.feed(b"")

        return read

    assert doubled(work, 500) < 2.1


def test_small_chunks_cost_alike() -> None:
    for data in (chunk(b"x"), b"1;a\r\nx\r\n"):

        def work(count: int, data: bytes = data) -> Callable[[], object]:
            return lambda: ChunkedBody().feed(data * count + end_chunked())

        assert doubled(work, 500) < 2.1


def test_a_connection_that_names_much_costs_alike() -> None:
    """Names that did not come are not looked for one by one."""

    def work(count: int) -> Callable[[], object]:
        tokens = ",".join(f"t{n}" for n in range(count))
        head = RequestParser().feed(request("GET / HTTP/1.1", f"Connection: {tokens}", "T1: cut", "X: y"))
        assert head is not None
        assert head.render() == request("GET / HTTP/1.1", "X: y")
        return head.render

    assert calls_made(work(4000)) == calls_made(work(40))


def test_what_is_held_is_bounded() -> None:
    body_reader = ChunkedBody()
    fed = 0
    with pytest.raises(BadBody):
        body_reader.feed(b"1;")
        while fed < 10**6:
            body_reader.feed(b"x" * 100)
            fed += 100
    assert fed <= body.LINE
