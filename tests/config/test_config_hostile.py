"""Files that are made to do harm: deep, full of control characters, or long."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from configs import lines, loaded
from support.process import verb

from proxy.config.load import load
from proxy.config.problems import printable

DEEP = {
    "lists": "a: " + "[" * 100_000,
    "closed lists": "a: " + "[" * 50_000 + "]" * 50_000,
    "mappings": "{a: " * 100_000,
    "lists of one line": "- " * 100_000 + "x",
    "keys of keys": "? " * 100_000 + "x",
    "lists by indentation": "\n".join(" " * depth + "-" for depth in range(3000)),
}


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("asked", [("check", "-c"), ("test",)], ids=["check", "test"])
def test_a_deep_file_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, asked: tuple[str, ...]
) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(DEEP[name])
    status, _, err = verb(capsys, *asked, str(file))
    assert status == 2
    (problems,) = [line for line in err.splitlines() if "redrive.yaml:" in line]
    assert "nested more than 60 levels deep" in problems
    assert len(problems) < 300


@pytest.mark.parametrize(
    "text", ["include: [/dev/zero]\n", "upstreams: {a: {url: 'http://a', service_config: /dev/zero}}\n"]
)
def test_a_file_without_an_end_is_refused(tmp_path: Path, text: str) -> None:
    (problems,) = lines(tmp_path, loaded(tmp_path, text))
    assert "larger than 64 MiB" in problems


def test_policy_tests_without_an_end_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = verb(capsys, "test", "/dev/zero")
    assert (status, "larger than 64 MiB" in err) == (2, True)


def test_a_file_as_deep_as_it_may_be_is_read(tmp_path: Path) -> None:
    deep = "[" * 50 + "x" + "]" * 50
    many = "".join(f"  u{n}: {{url: 'http://u{n}.example'}}\n" for n in range(600))  # so many that depth is looked at
    result = loaded(tmp_path, f"upstreams:\n{many}strategies: {{a: {{kind: 'nowhere:Class', deep: {deep}}}}}\n")
    (problems,) = lines(tmp_path, result)
    assert "cannot import nowhere" in problems


@pytest.mark.parametrize("bad", ["\x1b[2J", "\x07", "\x7f", "\x9b31m", "\n", "\r", "\u2028", "\u202e", "\u200b"])
def test_no_control_character_is_told_raw(tmp_path: Path, bad: str) -> None:
    written = "".join(f"\\u{ord(each):04x}" for each in bad)
    result = loaded(
        tmp_path,
        f'"a{written}b": 1\nupstreams: {{"u{written}": {{url: x}}, ok: {{url: "http://x{written}"}}}}\n'
        f'buckets: {{b: {{kind: "k{written}"}}}}\ndrain: "1{written}"\ninclude: ["none{written}*"]\n',
    )
    problems = lines(tmp_path, result, "error", "warning")
    assert len(problems) >= 4
    assert all(line.isprintable() for line in problems)
    assert any(printable(bad) in line for line in problems)


def work(folder: Path, text: str) -> int:
    """Lines of the program that are run while a file is loaded."""
    file = folder / "redrive.yaml"
    file.write_text(text)
    count = 0

    def each(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return each

    before = sys.gettrace()
    sys.settrace(each)
    try:
        result = load(str(file), {})
    finally:
        sys.settrace(before)
    assert result.settings is not None
    return count


def many_upstreams(number: int) -> str:
    return "upstreams:\n" + "".join(f"  u{n}: {{url: 'https://h{n}.example'}}\n" for n in range(number))


def many_equal_routes(number: int) -> str:
    return "upstreams: {a: {url: 'http://x', routes: [" + "{match: {path: /x}}, " * number + "]}}\n"


@pytest.mark.parametrize("text", [many_upstreams, many_equal_routes])
def test_a_file_costs_in_proportion_to_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: Any) -> None:
    monkeypatch.setattr("proxy.config.policy_advice.MOST_EARLIER", 10)
    monkeypatch.setattr("proxy.config.upstream_advice.MOST_EARLIER", 10)
    work(tmp_path, text(1))  # what is made once
    few, more, most = (work(tmp_path, text(number)) for number in (150, 300, 600))
    assert (most - more) < 2.1 * (more - few)
