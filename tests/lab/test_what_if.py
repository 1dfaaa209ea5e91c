"""What a draft of a policy would have done to calls that are kept; and what a page cannot get out of it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.config.settings import Settings
from proxy.lab.what_if import draft, shown, tried

MAIN = """
include: [more.yaml]
strategies: {fast: {kind: standard, max_attempts: 3, backoff: {base: 100ms, jitter: none}}}
defaults: {strategy: fast, timeouts: {attempt: 2s}}
upstreams:
  payments:
    url: http://10.0.0.1
    # a comment with hunter2
    headers: {request: {set: {X-Tenant: hunter3}}}
    strategy: fast
    bucket: {kind: quota, capacity: 500}
    classify:
      rules: [{status: 409, header: {X-Plan: hunter4}, as: transient}]
    timeouts: {total: "${TOTAL:-1m}"}
    dialects: [http, packs/own.yaml]
    fallback: [backup]
    routes:
      - match: {path: /v1/*}
        headers: {request: {set: {X-Key: hunter5}}}
        strategy: none
  backup: {url: 'http://10.0.0.2'}
  other: {url: 'http://10.0.0.3', strategy: no-such-strategy-as-this}
"""
MORE = "upstreams: {included: {url: 'http://10.0.0.4', mode: observe}}\n"
PACK = "name: own\nsource: [https://example.com]\nrules: [{status: 418, as: transient}]\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs/own.yaml").write_text(PACK)
    (tmp_path / "more.yaml").write_text(MORE)
    (tmp_path / "redrive.yaml").write_text(MAIN.replace(", strategy: no-such-strategy-as-this", ""))
    return str(tmp_path / "redrive.yaml")


def settings(file: str) -> Settings:
    found = load(file, {})
    assert found.settings is not None, found.errors
    return found.settings


def ask(file: str, text: str, *calls: dict[str, Any], **environ: str) -> dict[str, Any]:
    made = tried(file, environ, settings(file), "payments", text, calls)
    assert made is not None
    return made


def attempt(number: int, status: int, at: float, took: float = 0.05, **more: Any) -> dict[str, Any]:
    cls = {"2": "success", "4": "throttling", "5": "transient"}[str(status)[0]]
    return {"attempt": number, "start": at, "duration": took, "status": status, "class": cls, **more}


def call(number: int, outcome: str, *history: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = {
        "number": number,
        "time": f"2026-01-01T00:00:{number:02}.000Z",
        "upstream": "backup" if more.pop("at_backup", False) else "payments",
        "route": "",
        "method": "GET",
        "host": "10.0.0.1",
        "path": "/orders",
        "outcome": outcome,
        "attempts": len(history),
        "duration": 0.1,
        "history": list(history),
    }
    return {**made, **more}


RETRIED = call(1, "success", attempt(1, 503, 0.0), attempt(2, 200, 0.15), duration=0.2)
PLAIN = call(2, "success", attempt(1, 200, 0.0), duration=0.05)


# -- how calls would have gone -----------------------------------------------------------------------------------------


def rows(made: dict[str, Any]) -> dict[int, dict[str, Any]]:
    assert made["errors"] == []
    return {row["number"]: row for row in made["played"]["calls"]}


def test_fewer_attempts_and_longer_waits(file: str) -> None:
    none = ask(file, "strategy: none\n", RETRIED, PLAIN)
    found = rows(none)
    assert found[1]["before"] == {"outcome": "success", "attempts": 2, "waited": 0.1, "took": 0.2}
    assert found[1]["after"]["outcome"] == "attempts_exhausted"
    assert found[2]["before"] == found[2]["after"]
    sums = {name: value for name, value in none["played"].items() if name != "calls"}
    assert sums == {
        "buckets": "full",
        "played": 2, "otherwise": 1, "unknown": 0, "left_out": 0,
        "attempts_before": 3, "attempts_after": 2, "waited_before": 0.1, "waited_after": 0.0,
    }  # fmt: skip
    slow = ask(file, "strategy: {kind: standard, backoff: {base: 2s, jitter: none}}\n", RETRIED, PLAIN)
    assert rows(slow)[1]["after"] == {"outcome": "success", "attempts": 2, "waited": 2.0, "took": 2.1}
    assert slow["played"]["otherwise"] == 0


def test_what_is_not_known_is_not_made_up(file: str) -> None:
    spent = call(1, "attempts_exhausted", *(attempt(n, 503, n * 0.2) for n in (1, 2, 3)))
    none_elsewhere = "fallback: []\nstrategy: {kind: standard, max_attempts: 5}\n"
    Path(file).write_text(Path(file).read_text().replace("    fallback: [backup]\n", ""))
    made = ask(file, none_elsewhere, spent)
    after = rows(made)[1]["after"]
    assert (after["outcome"], after["attempts"]) == (None, 4)
    assert after["unknown"] == "attempt 4 would be made; its result is not known"
    assert (made["played"]["unknown"], made["played"]["otherwise"]) == (1, 0)
    # An attempt that was given up after 2 s says nothing of what a longer wait would have brought.
    late = attempt(1, 200, 0.0, 2.0)
    late |= {"fault": "attempt_timeout", "class": "timeout"}
    del late["status"]
    given_up = call(1, "success", late, attempt(2, 200, 2.1), duration=2.15)
    assert rows(ask(file, "timeouts: {attempt: 1s}\n", given_up))[1]["after"]["outcome"] == "success"
    longer = rows(ask(file, "timeouts: {attempt: 9s}\n", given_up))[1]["after"]
    assert longer["unknown"] == "attempt 1 would have had more time than it had; what would have come is not known"


def test_a_cooldown_holds_the_calls_behind_it(file: str) -> None:
    slow_down = attempt(1, 429, 0.0, pushback="retry-after", pushback_delay=3.0, decision="retried")
    first = call(1, "success", slow_down, attempt(2, 200, 3.05), duration=3.1)
    held = call(2, "success", attempt(1, 200, 2.0), duration=2.1)
    refused = call(3, "cooling", attempts=0)
    made = ask(file, "pushback: {cooldown: 'off'}\n", first, held, refused)
    found = rows(made)
    assert found[2]["before"]["waited"] > 1.9
    assert found[2]["after"]["waited"] == 0.0
    assert "it ended with cooling after 0 attempts; played under" in found[3]["left_out"]


def test_an_outage_that_has_lasted_begins_with_an_empty_bucket(file: str) -> None:
    Path(file).write_text(Path(file).read_text().replace("    fallback: [backup]\n", ""))
    spent = [call(n, "bucket_empty", attempt(1, 503, 0.0)) for n in range(1, 9)]
    made = ask(file, "fallback: []\nbucket: 'off'\n", *spent)
    assert (made["played"]["buckets"], made["played"]["left_out"], made["played"]["unknown"]) == ("empty", 0, 8)
    same = ask(file, "bucket: {kind: quota, capacity: 500}\n", *spent)
    assert same["played"]["otherwise"] == 0
    throttle = ask(file, "bucket: {kind: throttle, max_tokens: 10}\n", *spent)
    assert (throttle["played"]["otherwise"], throttle["played"]["unknown"]) == (0, 0)


def test_a_call_that_another_upstream_took_over(file: str) -> None:
    history = [attempt(n, 503, n * 0.2, upstream="payments") for n in (1, 2, 3)]
    history.append(attempt(4, 200, 1.0, upstream="backup"))
    gone = call(1, "success", *history)
    made = ask(file, "fallback: []\n", gone)
    assert rows(made)[1]["before"]["attempts"] == 4
    assert rows(made)[1]["after"] == {"outcome": "attempts_exhausted", "attempts": 3, "waited": 0.3, "took": 0.45}


def test_what_a_body_or_a_field_decided_is_left_out(file: str) -> None:
    by_rule = call(1, "success", attempt(1, 500, 0.0, because="rule 1"), attempt(2, 200, 0.2))
    by_rule["history"][0] |= {"status": 400, "class": "transient"}
    gold = call(2, "attempts_exhausted", attempt(1, 503, 0.0))
    made = ask(file, "", by_rule, gold, call(3, "bad_request", method=""))
    assert made["played"]["left_out"] == 3
    assert rows(made)[3]["left_out"].startswith("the request could not be read")


def test_calls_that_take_no_end_are_bounded(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hedges = "strategy: {kind: hedging, hedging_delay: 0s, max_attempts: 100000}\n"
    after = rows(ask(file, hedges, RETRIED))[1]["after"]
    assert after["unknown"] == "attempt 3 would be made; its result is not known"
    assert after["attempts"] < 1000  # the rest would have gone in later turns
    many = "fallback: []\nstrategy: {kind: standard, max_attempts: 1000000000, backoff: {base: 0s}}\n"
    assert rows(ask(file, many, RETRIED))[1]["after"]["outcome"] == "success"
    monkeypatch.setattr("proxy.lab.what_if.replay.MOST_STEPS", 3)
    made = ask(file, "", RETRIED, PLAIN, PLAIN)
    assert made["played"] is None
    assert made["errors"] == ["edit:1:1: playing the calls takes too many steps; try fewer of them"]


# -- what may stand in a draft -----------------------------------------------------------------------------------------


def test_what_is_shown_can_be_tried_as_it_is_and_holds_no_secret(file: str) -> None:
    found = shown(file, "payments")
    assert found is not None
    assert "hunter" not in json.dumps(found)
    assert found["locked"] == ["url", "headers"]
    assert found["from"] == f"{file}:6"
    assert "***" in found["yaml"]
    made = ask(file, found["yaml"], RETRIED)
    assert (made["errors"], made["played"]["otherwise"]) == ([], 0)
    assert shown(file, "included") == {
        "upstream": "included", "yaml": "mode: observe\n", "locked": ["url"],
        "from": f"{Path(file).parent / 'more.yaml'}:1",
    }  # fmt: skip
    assert shown(file, "nobody") is None
    assert shown(None, "payments") is None


def test_masked_values_are_the_files_own(file: str) -> None:
    found = shown(file, "payments")
    assert found is not None
    whole = settings(file)
    written = draft.find_written(file, "payments")
    assert written is not None
    again = draft.check(file, {}, written, found["yaml"]).result
    assert again is not None
    assert again.settings is not None
    was, now = (each.router.by_name["payments"] for each in (whole, again.settings))
    assert now.policy.classify.rules == was.policy.classify.rules
    assert now.routes[0].policy.request_headers == was.routes[0].policy.request_headers
    assert now.policy.request_headers == was.policy.request_headers
    assert now.policy.timeouts == was.policy.timeouts
    assert [each.name for each in now.policy.classify.dialects] == ["http", "own"]


def test_mistakes_are_told_as_check_tells_them(file: str) -> None:
    assert ask(file, "strategie: fast\n")["errors"] == [
        "edit:1:1: strategie: cannot be tried here; what can is " + ", ".join(draft.TRIED)
    ]
    (line,) = ask(file, "mode: enforce\ntimeouts: {total: soon}\n")["errors"]
    assert line.startswith("edit:2:19: timeouts.total: ")
    (line,) = ask(file, "fallback: [nobody]\n")["errors"]
    assert line.startswith("edit:1:12: fallback[0]: ")
    (line,) = ask(file, "a: [\n")["errors"]
    assert line.startswith("edit:1:5: this is not valid YAML")
    for text in ("- a\n", "just a text\n"):
        assert ask(file, text)["errors"] == ["edit:1:1: a policy is a mapping of keys"]


SECRET = "s3cret-of-the-environment"


@pytest.mark.parametrize(
    "text",
    [
        "timeouts: {total: '${SECRET}'}",
        "strategy: ${SECRET}",
        "mode: '${SECRET:-x}'",
        "routes: [{match: {path: '${SECRET}'}}]",
        "scope: {header: '${SECRET}'}",
        "fallback: [{to: backup, json: {a: '${SECRET}'}}]",
        "strategy: !include /etc/passwd",
        "strategy: !!python/object/apply:os.system [id]",
        "url: file:///etc/passwd",
        "url: http://169.254.169.254/",
        "verify: /etc/passwd",
        "client_cert: {cert: /etc/passwd, key: /etc/shadow}",
        "service_config: /etc/passwd",
        "routes: [{match: {path: /x}, service_config: /etc/passwd}]",
        "routes: [{match: {path: /x}, verify: /etc/passwd}]",
        "credentials: {header: x, values: ['${SECRET}']}",
        "via_proxy: http://10.9.9.9:1",
        "include: [/etc/passwd]",
        "dialects: [/etc/passwd.yaml]",
        "dialects: ['../../secret.yml']",
        "dialects: ['../../../../etc/passwd']",
        "routes: [{match: {path: /x}, dialects: [packs/own.yaml]}]",
        "strategy: antigravity:fly_to",
        "strategy: {kind: 'antigravity:fly_to'}",
        "strategy: {kind: 'antigravity:fly_to', name: '***'}",
        "routes: [{match: {path: /x}, strategy: 'antigravity:fly_to'}]",
        "bucket: {kind: 'antigravity:fly_to'}",
        "classify: {rules: [{status: 409, header: {X-Other: '***'}, as: transient}]}",
        "timeouts: {total: '***'}",
        "routes: [{match: {path: /x}, headers: {request: {set: {X-Key: '***'}}}}]",
        "classify: {retryable: [" + "a, " * 3000 + "]}",
        "x: " + "y" * draft.LONGEST,
        "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{f'*{a}, ' * 9}]\n" for a, b in pairwise("abcdef")) + "mode: *f",
    ],
)  # fmt: skip
def test_a_page_gets_nothing_out_of_the_process(file: str, text: str) -> None:
    import sys

    made = ask(file, f"{text}\n", RETRIED, SECRET=SECRET)
    assert made["errors"]
    assert made["played"] is None
    said = json.dumps(made)
    assert SECRET not in said
    assert "root:" not in said
    assert "hunter" not in said
    assert "antigravity" not in sys.modules


def test_a_reference_of_the_file_stays_where_it_is(file: str) -> None:
    made = ask(file, "timeouts: {total: '${TOTAL:-1m}'}\nmode: observe\n", RETRIED, TOTAL="50ms")
    assert made["errors"] == []
    assert ask(file, "timeouts: {attempt: '${TOTAL:-1m}'}\n", TOTAL="50ms")["errors"] == [
        "edit:1:21: timeouts.attempt: a ${…} is allowed here only if the file has the same one"
    ]


def test_code_of_the_files_own_may_stay(file: str) -> None:
    text = Path(file).read_text().replace("    strategy: fast\n", "    strategy: 'proxy.nowhere:Class'\n")
    Path(file).write_text(text)
    written = draft.find_written(file, "payments")
    assert written is not None
    kept = draft.check(file, {}, written, "strategy: 'proxy.nowhere:Class'\n")
    assert kept.errors
    assert not any("code of your own" in line for line in kept.errors)
