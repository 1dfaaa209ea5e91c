"""`redrive requests` and `redrive why`: the calls of a running redrive in a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import aiohttp
from support.process import Redrive, redrive
from support.scripted import Upstream, answer

from proxy.retry.call.gates import GATES
from proxy.top.calls import cause_of, fold, line, story

CONFIG = "    strategy: {max_attempts: 2, backoff: {base: 0s, jitter: none}}\n"


async def ask(url: str, method: str = "GET") -> int:
    async with (
        aiohttp.ClientSession(headers={"User-Agent": "shop/1.2 (x)"}) as session,
        session.request(method, url) as got,
    ):
        return got.status


async def test_the_last_calls_and_why_one_was_not_retried(tmp_path: Path) -> None:
    async with Upstream(answer(200), answer(500), answer(503), answer(200)) as upstream:
        config = f"upstreams:\n  api:\n    url: {upstream.url}\n{CONFIG}"
        async with Redrive(tmp_path, config) as proxy:
            assert await ask(f"{proxy.url}/api/well") == 200
            assert await ask(f"{proxy.url}/api/order", "POST") == 500
            assert await ask(f"{proxy.url}/api/again") == 200
            at = ("--admin", proxy.admin)

            status, out, err = await redrive("requests", *at)
            assert (status, err) == (0, "")
            well, order, again = out.splitlines()
            assert "GET /api/well  200  success  1 attempt, " in well
            assert "POST /api/order  500  not_retryable  1 attempt, " in order
            assert order.endswith("  by shop/1.2")
            assert "GET /api/again  200  success  2 attempts, " in again

            for typed, lines in [
                (("--notable",), [order, again]),
                (("--status", "5xx"), [order]),
                (("--outcome", "success", "--app", "shop", "--notable"), [again]),
                (("--upstream", "unmatched"), []),
                (("--limit", "1"), [again]),
            ]:
                status, out, err = await redrive("requests", *at, *typed)
                none = "" if lines else f"redrive: {proxy.admin.removeprefix('http://')} remembers no such call\n"
                assert (status, out.splitlines(), err) == (0, lines, none), typed
            status, out, _ = await redrive("requests", *at, "--json", "--limit", "1")
            assert (status, json.loads(out)["agent"]) == (0, "shop/1.2")
            status, _, err = await redrive("requests", *at, "--upstream", "appi")
            assert (status, err) == (
                2,
                f"redrive: {proxy.admin.removeprefix('http://')} has no upstream appi (did you mean api?)\n",
            )
            status, _, err = await redrive("requests", *at, "--outcome", "failed")
            assert status == 2
            assert err.startswith("redrive: there is no outcome failed: use one of success, ")

            status, out, err = await redrive("why", *at, "2")
            assert (status, err) == (0, "")
            first, second, attempt, remedy = out.splitlines()
            assert first.startswith("POST /api/order to api, by shop/1.2, at ")
            assert second.startswith("not_retryable: the app got 500 after ")
            assert attempt.startswith("  1. 500 from 127.0.0.1:")
            assert attempt.endswith(
                ": not retried: not_retryable, since POST may have been carried out, and is not idempotent"
            )
            assert remedy == (
                "what helps: send an Idempotency-Key, or say unsafe_methods: always on this upstream if repeating a "
                "POST is harmless"
            )
            status, out, _ = await redrive("why", *at)
            assert out.startswith("GET /api/again to api")  # without a number: the last call that was retried or failed
            status, out, _ = await redrive("why", *at, "3")
            assert ": retried after 0 ms" in out and "this answer went to the app" in out
            status, out, _ = await redrive("why", *at, "1")
            assert "  1. 200 from 127.0.0.1:" in out  # at once: the endpoint is the call's, not the attempt's
            status, out, err = await redrive("why", *at, "99")
            assert (status, out, err) == (1, "", "redrive: call 99 is not kept, or is no longer\n")


def test_a_line_fits_the_terminal_and_a_path_keeps_its_end() -> None:
    call = {"number": 7, "time": "2026-01-01T09:14:03.120Z", "upstream": "shop", "host": "", "method": "GET"}
    call |= {"path": "/v1/warehouses/of/the/west/orders/81", "status": 503, "outcome": "attempts_exhausted"}
    call |= {"attempts": 3, "duration": 65.102, "agent": "python-requests/2.32.3"}
    whole = line(call)
    assert whole.endswith("/orders/81  503  attempts_exhausted  3 attempts, 65 s  by python-requests/2.32.3")
    assert line(call, len(whole)) == whole
    shorter = line(call, len(whole) - 10)
    assert len(shorter) == len(whole) - 10
    assert "GET …ses/of/the/west/orders/81  503" in shorter
    assert line(call, 80) == "     7  09:14:03  shop              GET …est/orders/81  503  attempts_exhausted"
    assert line(call, 40) == "     7  09:14:03  shop              GET…"


def test_a_long_reason_is_folded_between_words_and_stays_under_its_attempt() -> None:
    attempt = "  2. 503 from 127.0.0.1:8081 after 3.1 ms (transient: 503): retried after 112 ms"
    assert list(fold(["first", attempt], None)) == ["first", attempt]
    assert list(fold(["first", attempt], 50)) == [
        "first",
        "  2. 503 from 127.0.0.1:8081 after 3.1 ms",
        "     (transient: 503): retried after 112 ms",
    ]
    assert list(fold(["what helps: another word"], 1)) == ["what helps: another word"]


async def test_why_names_the_answer_that_began_what_held_a_call(tmp_path: Path) -> None:
    async with Upstream(answer(429, b"", "Retry-After: 50")) as upstream:
        config = f"upstreams:\n  api:\n    url: {upstream.url}\n    pushback: {{cooldown: reject}}\n"
        async with Redrive(tmp_path, config) as proxy:
            assert await ask(f"{proxy.url}/api/first", "POST") == 429
            assert await ask(f"{proxy.url}/api/second") == 429
            status, out, err = await redrive("why", "--admin", proxy.admin, "2")
            assert (status, err) == (0, "")
            place = re.escape(upstream.url.removeprefix("http://"))
            assert re.search(
                rf"^what held it: the retry-after of a 429 from {place} asked for 50 s, at [\d:]{{8}} UTC$",
                out,
                re.MULTILINE,
            )
            status, out, _ = await redrive("why", "--admin", proxy.admin, "1")
            assert "what held it" not in out


def test_what_held_a_call_is_the_last_that_began_before_its_end() -> None:
    call = {"time": "2026-01-01T09:14:03.120Z", "duration": 20.0, "outcome": "overloaded", "upstream": "a"}
    call |= {"detail": f"{GATES['limit']} did not let it go before its deadline", "history": []}
    end = 1767258863.12
    changes = [
        {"event": "limit_began", "at": end - 60, "says": "a limit of 2 attempts at a time began: …"},
        {"event": "outage_began", "at": end - 30, "says": "an outage began: …"},
        {"event": "limit_over", "at": end - 10, "says": "the limit is over"},
        {"event": "limit_began", "at": end + 1, "says": "a later one"},
    ]
    series = {"cooldowns": [], "weather": changes}
    assert cause_of(call, series) == "a limit of 2 attempts at a time began: …, at 09:13:23 UTC"
    outage = call | {"outcome": "outage", "detail": ""}
    assert cause_of(outage, series) == "an outage began: …, at 09:13:53 UTC"
    held = call | {"outcome": "success", "detail": "", "history": [{"attempt": 1, "held": 2.0, "held_by": "outage"}]}
    held["history"][0]["start"] = 2.0
    own = {"began": end - 1.0, "seconds": 1.0, "status": 503, "field": "retry-after", "endpoint": "a:80"}
    assert cause_of(held, {"cooldowns": [own], "weather": [*changes, changes[1] | {"at": end - 5.0}]}) == (
        "an outage began: …, at 09:13:53 UTC"
    ), "what began after the hold did not hold it"
    assert cause_of(held, series) == "an outage began: …, at 09:13:53 UTC"
    assert cause_of(held, {"cooldowns": [], "weather": []}) == ""
    *_, told, helps = story(call | {"method": "GET", "path": "/", "status": 503, "remedy": "wait"}, "an outage")
    assert (told, helps) == ("what held it: an outage", "what helps: wait")


async def test_why_without_a_number_says_that_there_is_no_such_call(tmp_path: Path) -> None:
    async with Upstream(answer(200)) as upstream:
        config = f'upstreams: {{a: {{url: "{upstream.url}"}}}}\n'
        async with Redrive(tmp_path, config) as proxy, aiohttp.ClientSession() as client:
            status, out, err = await redrive("why", "--admin", proxy.admin)
            assert (status, out) == (1, "")
            assert err.endswith(" has had no calls yet\n")
            async with client.get(f"{proxy.url}/a/"):
                pass
            status, out, err = await redrive("why", "--admin", proxy.admin)
            assert (status, out) == (1, "")
            assert err.endswith(" remembers was retried or refused, and all succeeded\n")


def test_why_says_in_words_what_was_decided() -> None:
    refused = {"attempt": 1, "fault": "connect_failure", "detail": "the connection was refused"}
    history = [
        {**refused, "decision": "transparent"},
        {**refused, "decision": "fell back", "why": "attempts_exhausted"},
        {"attempt": 2, "decision": "cancelled"},
        {"attempt": 3},
        {"attempt": 4, "status": 429, "because": "throttling: 429", "pushback": "retry-after", "pushback_delay": 1.0}
        | {"decision": "retried", "delay": 1.02},
        {"attempt": 5, "status": 503, "pushback": "x-should-retry"},
    ]
    call = {"method": "GET", "path": "/", "upstream": "a", "host": "", "time": "09:14:03", "outcome": "success"}
    _, _, *attempts = story({**call, "status": 200, "duration": 0.0, "history": history})
    assert attempts == [
        "  1. connect_failure (the connection was refused): sent again at once, for free: the upstream cannot have "
        "seen it",
        "  1. connect_failure (the connection was refused): the call went on at another upstream, since "
        "attempts_exhausted",
        "  2. no answer: cancelled: another attempt ended the call",
        "  3. no answer",
        "  4. 429 (throttling: 429; the upstream said retry-after: 1.0 s): retried after 1.0 s",
        "  5. 503 (the upstream said x-should-retry)",
    ]


def test_why_says_a_detail_of_an_attempt_once() -> None:
    call = {"method": "GET", "path": "/", "upstream": "a", "host": "", "time": "09:14:03", "outcome": "outage"}
    call |= {"status": 502, "duration": 0.0, "detail": "the connection was refused"}
    attempt = {"attempt": 1, "fault": "connect_failure", "detail": "the connection was refused"}
    assert [*story({**call, "history": [attempt]})][2:] == ["  1. connect_failure (the connection was refused)"]
    assert [*story({**call, "history": []})][2:] == ["detail: the connection was refused"]


def test_why_says_of_a_request_that_could_not_be_read_no_more_than_that() -> None:
    call = {"method": "", "path": "", "upstream": "", "host": "", "time": "09:14:03", "outcome": "bad_request"}
    first, _ = story({**call, "status": 400, "duration": 0.0, "history": []})
    assert first == "a request that could not be read, at 09:14:03"


def test_why_leaves_no_room_for_the_path_that_a_connect_lacks() -> None:
    call = {"method": "CONNECT", "path": "", "upstream": "", "host": "a.test:443", "time": "09:14:03"}
    first, *_ = story({**call, "outcome": "denied", "status": 403, "duration": 0.0, "history": []})
    assert first == "CONNECT to a.test:443, at 09:14:03"


async def test_new_calls_are_followed(tmp_path: Path) -> None:
    async with Upstream(answer(200)) as upstream:
        config = f"upstreams:\n  api:\n    url: {upstream.url}\n{CONFIG}"
        async with Redrive(tmp_path, config) as proxy:
            assert await ask(f"{proxy.url}/api/first") == 200
            following = await proxy._begin("requests", "--admin", proxy.admin, "--follow")
            assert following.stdout is not None
            assert b"/api/first" in await following.stdout.readline()
            assert await ask(f"{proxy.url}/api/second") == 200
            assert b"/api/second" in await following.stdout.readline()
            following.kill()
            await following.wait()


def test_a_grpc_status_is_named_since_200_is_the_status_of_its_failures_too() -> None:
    call = {"number": 7, "time": "2026-01-01T09:14:03.120Z", "upstream": "greeter", "host": "", "method": "POST"}
    call |= {"path": "/a.B/C", "status": 200, "outcome": "committed", "attempts": 1, "duration": 0.001}
    attempt = {"attempt": 1, "status": 200, "decision": "committed"}
    assert "POST /a.B/C  200 UNAVAILABLE  committed" in line({**call, "grpc_status": 14})
    _, ended, attempted = story({**call, "grpc_status": 14, "history": [{**attempt, "grpc_status": 14}]})
    assert ended == "committed: the app got 200 UNAVAILABLE after 1.0 ms"
    assert attempted == "  1. 200 UNAVAILABLE: not retried: committed"
    assert "POST /a.B/C  200  success" in line({**call, "outcome": "success", "grpc_status": 0})
    assert "POST /a.B/C  200 grpc-status 99  committed" in line({**call, "grpc_status": 99})
