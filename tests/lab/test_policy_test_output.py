"""`redrive test`: exit status, the array, the table, and the transcript of what failed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.lab.policy_tests import run_files
from proxy.lab.policy_tests.runner import duration

TEXT = """\
config: {upstreams: {u: {hosts: [u.test]}, h: {hosts: [h.test], strategy: {kind: hedging, hedging_delay: 1s}}}}
tests:
  - name: a retry
    calls:
      - request: {url: "http://u.test/"}
        attempts: [{status: 503, after: 10ms}, {status: 200, after: 5ms}]
        expect: {attempts: 2, delays: [100ms], status: 200}
  - name: hedged
    calls:
      - {request: {url: "http://h.test/"}, attempts: [{status: 200, after: 1500ms}], expect: {attempts: 2}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.yaml"
    path.write_text(TEXT)
    return path


def test_all_hold(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_files([str(file)], environ={}) == 0
    out = capsys.readouterr().out
    assert "✓" in out
    assert "a retry" in out
    assert "2 of 2 tests pass" in out


def test_one_that_does_not_shows_what_happened_beside_what_was_expected(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        TEXT.replace("delays: [100ms]", "delays: [150ms]").replace("status: 200}\n  -", "outcome: deadline}\n  -")
    )
    assert run_files([str(file)], environ={}) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("backoff" in line and "150ms" in line and "100ms" in line and "✗" in line for line in lines)
    assert any("outcome" in line and "deadline" in line and "success" in line and "✗" in line for line in lines)
    assert any("503 after 10ms (transient: 503) → retried" in line for line in lines)
    assert any(f"{file}:3" in line for line in lines)
    assert "1 of 2 tests pass" in lines[-1]


def test_a_success_at_once_shows_what_came_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "once.test.yaml"
    file.write_text("""\
config: {upstreams: {u: {url: http://u.test}}}
tests:
  - name: once
    calls:
      - request: {method: GET, url: "http://u.test/"}
        attempts: [{status: 201, after: 30ms}]
        expect: {outcome: deadline}
""")
    assert run_files([str(file)], environ={}) == 1
    assert "201 after 30ms → delivered" in capsys.readouterr().out


def test_the_array(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(TEXT.replace("attempts: 2, delays", "attempts: 3, delays"))
    assert run_files([str(file), str(file)], True, {}) == 1
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 4
    row = rows[0]
    sent = row.pop("sent")
    assert row == {
        "name": "a retry",
        "call": 1,
        "ok": False,
        "mismatches": ["attempts: expected 3, got 2"],
        "attempts": 2,
        "delays": [0.1],
        "starts": [0.0, 0.11],
        "status": 200,
        "outcome": "success",
        "tokens": 500,
        "tokens_after_each": [495, 500],
        "elapsed": 0.115,
        "fill_rate": None,
        "measured_rate": None,
    }
    assert [fields["x-attempt-count"] for fields in sent] == ["1", "2"]
    assert rows[1]["ok"] is True
    assert rows[1]["delays"] == []
    assert rows[1]["tokens_after_each"] == [None]


def test_bad_input_is_2_with_lines_on_standard_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(TEXT.replace("status: 503", "staus: 503"))
    assert run_files([str(file), "/none.yaml"], True, {}) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0] == (f"{file}:6:21: tests[0].calls[0].attempts[0].staus: unknown key (did you mean status?)")
    assert lines[-1].startswith("/none.yaml:1:1: cannot be read")


def test_the_command(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "test", str(file), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [row["ok"] for row in json.loads(done.stdout)] == [True, True]


HELD = """\
config:
  upstreams:
    a: {url: "http://a.test", strategy: none, rate: {kind: rate, rate: 1/s, burst: 1}}
tests:
  - name: the second waits for the rate
    calls:
      - {request: {url: /a/x}, attempts: [{status: 200}], expect: {sent: [{held_by: null}]}}
      - {request: {url: /a/x}, attempts: [{status: 200}], expect: {sent: [{held_by: %s, held: %s}]}}
"""


@pytest.mark.parametrize(
    ("by", "seconds", "says"),
    [
        ("rate", "1.0004s", ()),  # within a millisecond
        ("limit", "1s", ("held_by", "limit", "rate", "✗")),
        ("rate", "2s", ("held", "2s", "1s", "✗")),
        ("rate", "long", ("held", "long", "1s", "✗")),
    ],
)
def test_what_held_an_attempt_and_for_how_long_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str, seconds: str, says: tuple[str, ...]
) -> None:
    script = tmp_path / "held.yaml"
    script.write_text(HELD % (by, seconds))
    assert run_files([str(script)], environ={}) == (1 if says else 0)
    rows = [tuple(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert not says or says in rows


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0s"), (0.25, "250ms"), (1.1 - 0.1, "1s"), (1.0 - 1e-12, "1s"), (2.01, "2.01s")]
)
def test_durations_are_shown_to_the_nanosecond(seconds: float, text: str) -> None:
    assert duration(seconds) == text
