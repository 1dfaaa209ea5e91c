"""What /metrics says of connections, streams and HTTP/2's errors, of both sides."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from http2_kit import (
    CALM,
    CANCEL,
    HEADERS,
    INTERNAL_ERROR,
    PROTOCOL_ERROR,
    RST_STREAM,
    STREAM_CLOSED,
    Http2Proxy,
    Wire,
    data,
    goaway,
    headers,
    rst,
    window_update,
)
from prometheus_client.parser import text_string_to_metric_families

CONFIG = "{listen}\ndefaults: {{strategy: none}}\n"
ALONE = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0"
TWO = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nworkers: 2"

Samples = dict[tuple[str, ...], float]


def scrape(proxy: Http2Proxy) -> Samples:
    """Samples by name and labels: those of connections, streams and errors."""
    with urllib.request.urlopen(f"http://{proxy.ready['admin'][0]}/metrics") as reply:
        text = reply.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in ("redrive_connections", "redrive_streams", "redrive_http2_errors_total"):
                found[(sample.name[8:], *(sample.labels[each] for each in sorted(sample.labels, reverse=True)))] = (
                    sample.value
                )
    return found


def errors(said: Samples) -> dict[tuple[str, ...], float]:
    return {key[1:]: value for key, value in said.items() if key[0] == "http2_errors_total"}


@pytest.mark.parametrize("listen", [ALONE, TWO], ids=["alone", "two workers"])
def test_connections_and_streams_by_side(listen: str, tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, CONFIG.format(listen=listen), number=1) as proxy:
        place = proxy.place()
        before = scrape(proxy)
        sides = [("connections", side, spoken) for side in ("app", "upstream") for spoken in ("http/1.1", "http/2")]
        assert before == dict.fromkeys([*sides, ("streams", "app"), ("streams", "upstream")], 0)
        with proxy.app() as silent, proxy.http2().peer as peer:
            app = Wire(peer)
            app.send(headers(1, place.fields()), headers(3, place.fields()))
            upstream = place.accept()
            flying = [upstream.until(HEADERS).stream for _ in range(2)]
            while (said := scrape(proxy))["connections", "app", "http/1.1"] == 0:  # accepted by another worker
                assert silent.is_silent()
            assert said == {
                ("connections", "app", "http/1.1"): 1,
                ("connections", "app", "http/2"): 1,
                ("connections", "upstream", "http/1.1"): 0,
                ("connections", "upstream", "http/2"): 1,
                ("streams", "app"): 2,
                ("streams", "upstream"): 2,
            }
            upstream.send(headers(flying[0], [(":status", "200")]))
            assert app.answer(1).status == 200
            said = scrape(proxy)
            assert (said["streams", "app"], said["streams", "upstream"]) == (1, 1)
            assert not errors(said)
        while scrape(proxy)["connections", "app", "http/2"]:
            pass
        said = scrape(proxy)
        assert (said["streams", "app"], said["streams", "upstream"]) == (0, 0)
        assert not errors(said)  # an app that leaves, and the CANCEL that its call ends with, are no errors


@pytest.mark.parametrize("listen", [ALONE, TWO], ids=["alone", "two workers"])
def test_errors_by_side_and_code(listen: str, tmp_path: Path) -> None:
    with Http2Proxy(tmp_path, CONFIG.format(listen=listen), number=2) as proxy:
        place = proxy.place()
        app = proxy.http2()
        app.send(headers(1, place.fields()))
        upstream = place.accept()
        for number, code in ((1, INTERNAL_ERROR), (3, CANCEL), (5, 0xBAD)):
            if number > 1:
                app.send(headers(number, place.fields()))
            stream, _, _ = upstream.request()
            upstream.send(rst(stream, code))
            assert app.answer(number).status == 502
        app.send(headers(7, place.fields("POST"), end=False))
        stream = upstream.until(HEADERS).stream
        app.send(rst(7, CANCEL))  # which is not counted
        assert upstream.until(RST_STREAM, stream=stream).code == CANCEL
        app.send(headers(9, [*place.fields(), ("Upper", "1")]))
        assert app.answer(9).reset == PROTOCOL_ERROR
        app.send(headers(11, place.fields()))
        stream, _, _ = upstream.request()
        upstream.send(headers(stream, [(":status", "200")], end=False), goaway(stream, CALM), data(stream, end=True))
        assert app.answer(11).status == 200
        app.send(headers(11, place.fields()))  # behind its end
        assert app.until(RST_STREAM, stream=11).code == STREAM_CLOSED
        app.send(window_update(0, 0))
        assert app.last_goaway() == PROTOCOL_ERROR
        assert errors(scrape(proxy)) == {
            ("app", "PROTOCOL_ERROR"): 2,
            ("app", "STREAM_CLOSED"): 1,
            ("upstream", "INTERNAL_ERROR"): 2,
            ("upstream", "CANCEL"): 1,
            ("upstream", "ENHANCE_YOUR_CALM"): 1,
        }
