"""Files of policy tests: what is wrong with one is told with its line, and never raises."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.process import redrive

from proxy.lab.policy_tests import load_suite, run_suite
from proxy.lab.policy_tests.script import read_script

GOOD = """\
config: {upstreams: {u: {hosts: [u.test]}}}
random: 1.0
wall: 2026-01-01T00:00:00Z
tests:
  - name: one
    calls:
      - at: 0s
        request: {method: GET, url: "http://u.test/", headers: {accept: a}, body_size: 1KiB}
        attempts:
          - {status: 503, headers: {retry-after: 2, x: [a, b]}, after: 10ms, body: text}
          - {fail: reset, after: 5ms}
          - {status: 200, grpc_status: OK}
        expect: {attempts: 3, delays: [2s, 200ms], tokens: 495}
"""


def problems_of(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "t.yaml"
    file.write_text(text)
    suite, problems = load_suite(file, {})
    assert (suite is None) == bool(problems)
    return [str(problem).removeprefix(f"{file}:") for problem in problems]


def test_a_good_one(tmp_path: Path) -> None:
    assert problems_of(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("was", "is_", "said"),
    [
        ("attempts: 3", "atempts: 3", "13:18: tests[0].calls[0].expect.atempts: unknown key (did you mean attempts?)"),
        (
            "at: 0s",
            "at: 3",
            "7:13: tests[0].calls[0].at: '3' has no unit; write it as 250ms",
        ),
        ("at: 0s", "at: soon", "7:13: tests[0].calls[0].at: 'soon' is not a duration; write it as 250ms, 2s, 1m or 1h"),
        (
            "after: 10ms",
            "after: 10min",
            "after: '10min' has the unit 'min'; durations take ms, s, m or h (did you mean 10m?)",
        ),
        ("fail: reset", "fail: rest", "11:20: tests[0].calls[0].attempts[1].fail: 'rest' is none of"),
        ("fail: reset", "fail: reset, status: 200", "an attempt that fails has no answer"),
        ("fail: reset", "fail: reset, first_byte: 2s", "attempts[1].first_byte: an attempt that fails has no answer"),
        ("fail: reset", "events: [a], body: x", "attempts[1].body: cannot be combined with events, which are its body"),
        ("fail: reset", "fail: reset, qq: 1", "attempts[1].qq: unknown key; docs/reference/commands/test.md lists"),
        ("fail: reset", "events: [{name: a}]", "events[0].name: unknown key; choose from event, data, after"),
        ("fail: reset", 'events: ["a\\nb"]', "events[0]: an event's name is one line: write the event as {event: NAME"),
        ("fail: reset", "events: ping", "attempts[1].events: must be a list, not 'ping' (did you mean [ping]?)"),
        ("status: 503", "status: 103", "must be a final status, from 200 to 999, not 103"),
        ("status: 503", "status: ok", "status: 'ok' is not a whole number"),
        ("grpc_status: OK", "grpc_status: FINE", "12:40: tests[0].calls[0].attempts[2].grpc_status: 'FINE' is none of"),
        ("grpc_status: OK", "grpc_status: 17", "'17' is none of"),
        ("tokens: 495", "tokens: many", "must be a number, not 'many'"),
        ("tokens: 495", "outcome: sucess", "'sucess' is none of"),
        ("tokens: 495", "sent: {}", "must be a list, not a mapping"),
        ("delays: [2s, 200ms]", "delays: 2s", "must be a list, not '2s' (did you mean [2s]?)"),
        ("random: 1.0", "random: 2", "2:9: random: must be from 0 to 1, not 2"),
        ("random: 1.0", "random: {sed: 7}", "unknown key (did you mean seed?)"),
        ("random: 1.0", "random: nan", "must be a number, not 'nan'"),
        ("random: 1.0", "random: 1.0\nrandom: 0", "duplicate key; it is already set on line"),
        ("wall: 2026-01-01T00:00:00Z", "wall: today", "3:7: wall: must be a time such as"),
        ("method: GET", "method: G T", "'G T' is not a method"),
        ('url: "http://u.test/"', 'url: "u.test/"', "must begin with http://, https:// or /"),
        ('url: "http://u.test/", ', "", "tests[0].calls[0].request.url: is missing"),
        ("body_size: 1KiB", "body_size: 1KB", "sizes take B, KiB, MiB or GiB (did you mean 1KiB?)"),
        ("headers: {accept: a}", 'headers: {"a b": a}', "'a b' is not a header name"),
        ("headers: {accept: a}", 'headers: {a: "b\\nc"}', "must be one line: a header field's value"),
        ("  - name: one\n", "  - nam: one\n", "unknown key (did you mean name?)"),
        ("tests:\n", "test:\n", "4:1: test: unknown key (did you mean tests?)"),
        ("at: 0s", "at: 0s\n        at: 1s", "duplicate key; it is already set on line"),
        ("{upstreams:", "{upstream:", "1:10: upstream: unknown key (did you mean upstreams?)"),
        ("hosts: [u.test]", "hosts: [u.test], strategy: {kind: standard, max_attempts: none}", "strategy.max_attempts"),
        ("config: {upstreams: {u: {hosts: [u.test]}}}", "config: none.yaml", "none.yaml"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, was: str, is_: str, said: str) -> None:
    assert was in GOOD
    problems = problems_of(tmp_path, GOOD.replace(was, is_, 1))
    assert any(said in problem for problem in problems), problems


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a",
        "tests",
        "tests: []\n\tb",
        "{",
        "tests: {a: 1}",
        "tests: [{}]",
        "tests: [[]]",
        "\x00",
        "&a [*a]",
        "tests: !!x",
    ],
)
def test_what_is_no_such_file_at_all(tmp_path: Path, text: str) -> None:
    problems = problems_of(tmp_path, text)
    assert problems
    assert all("Traceback" not in problem for problem in problems)


def test_a_file_that_is_not_there_or_is_not_text(tmp_path: Path) -> None:
    _, problems = load_suite(tmp_path / "none.yaml", {})
    assert "cannot be read: no such file" in str(problems[0])
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    _, problems = load_suite(tmp_path / "bytes", {})
    assert "this is not UTF-8" in str(problems[0])
    _, problems = load_suite(tmp_path, {})
    assert "this is a directory, not a file" in str(problems[0])


def test_a_configuration_that_is_not_there_is_told_where_it_is_named(tmp_path: Path) -> None:
    tests = "tests: [{name: a, calls: [{request: {url: http://x}, attempts: [{status: 200}]}]}]\n"
    path = tmp_path / "t.yaml"
    for named, what in (("none.yaml", "cannot be read: no such file"), (".", "this is a directory")):
        path.write_text(f"# here\nconfig: {named}\n{tests}")
        _, problems = load_suite(path, {})
        assert str(problems[0]).startswith(f"{path}:2:9: config: {tmp_path / named}: {what}")


def test_calls_are_in_order_of_time(tmp_path: Path) -> None:
    call = '{at: %s, request: {url: "http://u.test/"}, attempts: [{status: 200}]}'
    text = f"tests: [{{name: a, calls: [{call % '2s'}, {call % '1s'}]}}]"
    assert "tests[0].calls[1].at: calls must be in order of time" in problems_of(tmp_path, text)[0]


def test_a_timeout_without_an_end(tmp_path: Path) -> None:
    text = 'tests: [{name: a, calls: [{request: {url: "http://u.test/"}, attempts: [{fail: attempt_timeout}]}]}]'
    (problem,) = problems_of(tmp_path, text)
    message = "in 'a': attempt_timeout without `after` needs timeouts.attempt, which is off"
    assert f"tests[0].calls[0].attempts: {message}" in problem


def test_every_mistake_is_told_not_only_the_first(tmp_path: Path) -> None:
    text = GOOD.replace("at: 0s", "at: x").replace("fail: reset", "fail: y").replace("random: 1.0", "random: z")
    assert len(problems_of(tmp_path, text)) == 3


def test_mutilated_files_never_raise(tmp_path: Path) -> None:
    """A thousand files with a few characters changed."""
    rng = random.Random(1)
    for _ in range(1000):
        text = list(GOOD)
        for _ in range(rng.randint(1, 4)):
            text[rng.randrange(len(text))] = rng.choice("{}[]:,-#&*!|>'\"%@ \n\t0aé")
        file = tmp_path / "t.yaml"
        file.write_text("".join(text))
        script, problems = read_script(file)
        assert script is not None or problems


def test_a_configuration_by_path_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "redrive.yaml").write_text("upstreams: {u: {hosts: [u.test], strategy: none}}\n")
    file = tmp_path / "sub" / "t.yaml"
    file.write_text(
        'config: ../redrive.yaml\ntests: [{name: a, calls: [{request: {url: "http://u.test/"}, '
        "attempts: [{status: 503}], expect: {attempts: 1, outcome: attempts_exhausted}}]}]"
    )
    suite, problems = load_suite(file, {})
    assert suite is not None, problems
    assert all(result.ok for result in run_suite(suite))


def test_a_seed_gives_the_same_draws_every_time(tmp_path: Path) -> None:
    text = GOOD.replace("random: 1.0", "random: {seed: 7}")
    file = tmp_path / "t.yaml"
    file.write_text(text)
    suite, _ = load_suite(file, {})
    assert suite is not None
    runs = [run_suite(suite)[0].calls[0].played.delays for _ in range(2)]
    assert runs[0] == runs[1]
    assert 0 < runs[0][1] < 0.2


def test_the_environment_sets_the_defaults_strategy(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(
        'tests: [{name: a, calls: [{request: {url: "http://u.test/"}, attempts: [{status: 503}], expect: {attempts: 4, '
        "delays: [50ms, 100ms, 200ms]}}]}]"
    )
    suite, problems = load_suite(file, {"AWS_RETRY_MODE": "standard", "AWS_MAX_ATTEMPTS": "4"})
    assert suite is not None, problems
    assert run_suite(suite)[0].calls[0].played.attempts == 4
    _, problems = load_suite(file, {"AWS_RETRY_MODE": "eager"})
    assert "AWS_RETRY_MODE" in str(problems[0])


def test_an_entry_for_an_endpoint_that_no_attempt_goes_to(tmp_path: Path) -> None:
    entry = "attempts:\n          - {endpoint: 'b:80', status: 200}"
    (problem,) = problems_of(tmp_path, GOOD.replace("attempts:", entry, 1))
    assert "no attempt goes to b:80: the endpoints of u take turns, without weight" in problem
    weighed = GOOD.replace("{hosts: [u.test]}", "{hosts: [u.test], url: ['http://a', {url: 'http://c', weight: 2}]}")
    (problem,) = problems_of(tmp_path, weighed.replace("attempts:", entry, 1))
    assert "no attempt goes to b:80: the endpoints of u are a:80, c:80" in problem


@pytest.mark.parametrize(
    ("text", "verb", "said"),
    [
        (
            "upstreams: {a: {url: 'http://a.test'}}\n",
            ["test"],
            "this is a configuration: `redrive check -c FILE` reads it",
        ),
        ("defaults: {}\n", ["simulate", "--scenario"], "this is a configuration: `redrive check -c FILE` reads it"),
        ("config: {}\ntests: []\n", ["check", "-c"], "these are policy tests: `redrive test FILE` runs them"),
        ("calls: 5/s\n", ["run", "-c"], "this is a scenario: `redrive simulate --scenario FILE` plays it"),
        ("version: 1\ncalls: 5/s\n", ["check", "-c"], "calls: unknown key; redrive schema lists all keys"),
    ],
)
async def test_a_file_of_another_kind_is_told_in_one_line(
    tmp_path: Path, text: str, verb: list[str], said: str
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    status, out, err = await redrive(*verb, str(file))
    told = [line for line in err.splitlines() if not line.startswith("redrive: configuration: ")]
    line = 2 if "unknown" in said else 1
    assert (status, out, told) == (2, "", [f"{file}:{line}:1: {said}"])


ROTATED = """\
config: {upstreams: {a: {url: "http://a.test", credentials: {header: k, values: [one, {file: key}]}}, b: OTHER}}
tests:
  - name: one
    rotations: [ROTATION]
    calls:
      - request: {url: /CALLED/x}
        attempts: [{status: 200, ENTRY}]
"""
OTHER = '{url: "http://b.test"}'
WITH_FILE = '{url: "http://b.test", credentials: {header: k, values: [{file: key}]}}'


@pytest.mark.parametrize(
    ("rotation", "said"),
    [
        ("{at: 1s}", "4:17: tests[0].rotations[0]: in 'one': key 1 of a is not in a file (only 2): write it"),
        ("{at: 1s, key: 3}", "key 3 of a is not in a file (only 2)"),
        ("{at: 1s, upstream: aa}", "there is no upstream aa (did you mean a?)"),
        ("{at: 1s, upstream: b}", "key 1 of b is not in a file (none of its keys is)"),
        ("{at: 1s, key: 0}", "4:31: tests[0].rotations[0].key: must be 1 or more"),
        ("{key: 2}", "4:17: tests[0].rotations[0].at: is missing"),
        ("{at: 1s, file: key}", "4:26: tests[0].rotations[0].file: unknown key"),
        ("1s", "4:17: tests[0].rotations[0]: must be a mapping, not '1s'"),
    ],
)  # fmt: skip
def test_a_rotation_of_no_file(rotation: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a-key")
    text = (
        ROTATED.replace("OTHER", OTHER).replace("ROTATION", rotation).replace("CALLED", "a").replace("ENTRY", "key: 2")
    )
    (told,) = problems_of(tmp_path, text)
    assert said in told


def test_a_rotation_of_one_upstream_among_several(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a-key")
    text = ROTATED.replace("OTHER", WITH_FILE).replace("CALLED", "b").replace("ENTRY", "key_version: 1")
    (told,) = problems_of(tmp_path, text.replace("ROTATION", "{at: 1s, key: 1}"))
    assert "say which upstream's key it is (upstream: NAME): a, b have key files" in told
    assert problems_of(tmp_path, text.replace("ROTATION", "{at: 1s, upstream: b}")) == []


def test_a_version_of_a_key_that_is_in_no_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a-key")
    text = ROTATED.replace("OTHER", OTHER).replace("CALLED", "b").replace("ENTRY", "key_version: 1")
    (told,) = problems_of(tmp_path, text.replace("ROTATION", "{at: 1s, key: 2}"))
    assert told == "6:9: tests[0].calls[0].attempts: in 'one': key_version is for keys in files, and b has none"


def test_an_attempt_whose_key_version_no_entry_is_for(tmp_path: Path) -> None:
    """Nothing passes by accident: an attempt with another value than the entries are for is told of."""
    (tmp_path / "key").write_text("a-key")
    text = ROTATED.replace("OTHER", WITH_FILE).replace("CALLED", "b").replace("ENTRY", "key_version: 2")
    file = tmp_path / "t.yaml"
    file.write_text(text.replace("ROTATION", "{at: 1s, upstream: b}"))
    suite, _ = load_suite(file, {})
    assert suite is not None
    ((call,),) = [result.calls for result in run_suite(suite)]
    told = [str(each) for each in call.mismatches]
    assert "key_version: expected an entry of attempts for it, got key_version 1 in attempt 1" in told
