"""One call has one JSON: in the log, on /requests, in /events, and in what a worker reports to its parent."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from observed import WALL, ended, retried
from pytest_aiohttp import AiohttpClient

from proxy.admin.app import admin_app
from proxy.admin.views import Readiness, View
from proxy.observe.access_log import AccessLog
from proxy.observe.aggregate import Aggregate, AggregatedCalls, Report
from proxy.observe.call_record import AT_ONCE, SUCCESS, CallRecord, Course, at_once_with, refused
from proxy.observe.compiled import attempt_json, call_json
from proxy.observe.exposition import Gauges, render
from proxy.observe.metrics import Metrics
from proxy.observe.observers import Observers
from proxy.observe.recent_calls import RecentCalls
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.facts import Class, FaultKind, Outcome

HELD = AttemptRecord(1, 12.0, 12.5, 200, cls=Class.SUCCESS, decision="delivered", held=2.0, held_by="cooldown")
CALLS = {
    "at once": ended(),
    "retried": retried(),
    "held": ended(history=[HELD], ended=12.5),
    "an app's retry": ended(app_retry=True),
    "denied": ended(outcome=Outcome.DENIED, status=403, attempts=0, detail='no "way"', app_retry=True),
    "refused": refused(WALL, "", 400, Outcome.BAD_REQUEST, "two lengths", "GET", "u:s3cret@h", "/x?k=s3cret"),
}


class Lines(list[str]):
    add = list.append


async def nothing() -> list[dict[str, Any]]:
    return []


async def shown_by(recent: RecentCalls, client: AiohttpClient) -> tuple[str, str]:
    """The only call's text on /requests and in /events."""
    view = View(
        readiness=lambda: Readiness(ready=True, draining=False, config_file=""),
        metrics=None,  # type: ignore[arg-type]
        config=dict,
        upstreams=lambda only: nothing(),
        buckets=nothing,
        recent=recent,
        reload=None,  # type: ignore[arg-type]
        drain=lambda: None,
    )
    admin: TestClient[web.Request, web.Application] = await client(admin_app(view))
    page = await (await admin.get("/requests")).text()
    assert page == json.dumps(json.loads(page), indent=2) + "\n"
    (call,) = json.loads(page)["requests"]
    async with admin.get("/events", headers={"Last-Event-ID": "0"}) as stream:
        while not (line := (await stream.content.readline()).decode()).startswith("data: "):
            pass
    return json.dumps(call), line.removeprefix("data: ").rstrip("\n")


@pytest.mark.parametrize("what", list(CALLS))
async def test_a_call_is_the_same_in_all_four_places(what: str, aiohttp_client: AiohttpClient) -> None:
    lines, worker = Lines(), RecentCalls()
    Observers(Metrics(), worker, AccessLog(lines)).call_ended(CALLS[what])
    (line,) = lines
    said = json.loads(line)
    assert list(said)[:2] == ["time", "event"]
    assert len(said["history"]) == said["attempts"]
    numbered = '{"number":1,' + line.removeprefix("{").rstrip("\n")
    shown = (json.dumps(json.loads(numbered)), numbered)  # a page is indented, for people
    assert await shown_by(worker, aiohttp_client) == shown
    report = pickle.loads(pickle.dumps(Report([], worker.seen, worker.since(0))))
    parent = AggregatedCalls()
    aggregate = Aggregate(Metrics(), parent)
    aggregate.keep(1, report)
    aggregate.take()
    assert await shown_by(parent, aiohttp_client) == shown


@pytest.mark.parametrize("more", [{}, {"grpc_status": 0}, {"app": "web"}], ids=str)
def test_a_call_that_shares_its_course_is_written_and_counted_like_any_other(more: dict[str, Any]) -> None:
    def seen(call: CallRecord) -> tuple[str, bytes, int]:
        metrics, recent = Metrics(), RecentCalls()
        Observers(metrics, recent, None).call_ended(call)
        return call_json(call), render(metrics, Gauges())[0], len(recent.choose_notable(0))

    shared = ended(**more)
    shared.course = AT_ONCE
    assert seen(shared) == seen(ended(**more))


def test_a_call_at_once_with_a_credential_shares_its_course_and_has_an_attempt() -> None:
    metrics, own = Metrics(), Metrics()
    shared, written = ended(sent_by="http/1.1"), ended()
    shared.course = at_once_with(1, "it is its turn")
    written.course = Course(SUCCESS, 1, shared.history)
    assert shared.history[0].key == 1 and shared.history[0].key_why == "it is its turn"
    assert call_json(shared) == call_json(written)
    assert json.loads(call_json(shared))["history"][0]["key"] == 2
    Observers(metrics, RecentCalls(), None).call_ended(shared)
    Observers(own, RecentCalls(), None).call_ended(written)
    assert render(metrics, Gauges())[0] == render(own, Gauges())[0]


def test_a_line_of_each_sort_letter_by_letter() -> None:
    def line(call: CallRecord) -> str:
        return call_json(call).partition('"status"')[2]

    assert call_json(CALLS["at once"]) == (
        '{"time":"2026-01-01T00:00:00.250Z","event":"call","upstream":"payments","route":"","strategy":"standard",'
        '"method":"GET","host":"api.payments.example","path":"/v1/x?key=***","client":"127.0.0.1:4000","status":200,'
        '"outcome":"success","attempts":1,"duration":0.004000,"bytes_in":0,"bytes_out":12,"endpoint":"127.0.0.1:8081",'
        '"history":[{"attempt":1,"start":0.0,"duration":0.004000,"status":200,"class":"success",'
        '"decision":"delivered"}]}'
    )
    assert line(CALLS["retried"]) == (
        ':200,"outcome":"success","attempts":3,"duration":0.340000,"bytes_in":0,"bytes_out":12,'
        '"endpoint":"127.0.0.1:8081","history":[{"attempt":1,"start":0.000000,"duration":0.010000,"status":503,'
        '"class":"transient","because":"transient: 503","decision":"retried","delay":0.100000},{"attempt":2,'
        '"start":0.110000,"duration":0.010000,"fault":"reset","class":"transient","because":"reset",'
        '"decision":"retried","delay":0.200000},{"attempt":3,"start":0.320000,"duration":0.010000,"status":200,'
        '"class":"success","price":5,"decision":"delivered"}]}'
    )
    assert line(CALLS["refused"]) == (
        ':400,"outcome":"bad_request","attempts":0,"duration":0.0,"bytes_in":0,"bytes_out":0,"endpoint":"",'
        '"detail":"two lengths","history":[]}'
    )


def test_the_code_that_a_stream_broke_off_with_has_its_name() -> None:
    for code, name in ((8, "CANCEL"), (0xFE, "0xfe")):
        record = AttemptRecord(1, 0.0, 1.0, fault=FaultKind.RESET, rst_code=code)
        assert json.loads(attempt_json(record, 0.0))["rst_code"] == name
    assert "rst_code" not in attempt_json(AttemptRecord(1, 0.0, 1.0, fault=FaultKind.RESET), 0.0)


def test_what_was_spoken_and_what_a_grpc_call_came_to() -> None:
    line = json.loads(call_json(ended(protocol="http/2", sent_by="http/1.1", grpc_status=0)))
    assert (line["protocol"], line["grpc_status"], line["history"][0]["protocol"]) == ("http/2", 0, "http/1.1")
    record = AttemptRecord(1, 10.0, 10.1, 200, decision="delivered", protocol="http/2")
    assert json.loads(attempt_json(record, 10.0))["protocol"] == "http/2"
    unknown = json.loads(call_json(ended()))
    assert "protocol" not in unknown
    assert "grpc_status" not in unknown
