"""Credentials over HTTP/2: each stream carries one, in the place of what came, never to be indexed by anybody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance_kit import Proxy, Upstream
from http2_kit import HEADERS, Fields, Http2Proxy, Place, headers, string

OK: Fields = [(":status", "200")]
THROTTLED: Fields = [(":status", "429"), ("retry-after", "30")]
CONFIG = """
upstreams:
  keyed:
    url: "http://AUTHORITY"
    hosts: [keyed.test]
    credentials: {{header: {header}, format: "{format}", values: [value-a, value-b]}}
"""


class KeyedProxy(Http2Proxy):
    def __init__(self, folder: Path, header: str, form: str = "{}") -> None:
        listener = Upstream()
        self._listeners = [listener]
        self._free = iter([Place("keyed.test", listener)])
        config = CONFIG.format(header=header, format=form).replace("AUTHORITY", listener.authority)
        Proxy.__init__(self, folder, config)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[KeyedProxy]:
    with KeyedProxy(tmp_path, "Authorization", "Bearer {}") as started:
        yield started


def values(fields: Fields, name: str) -> list[str]:
    return [value for key, value in fields if key == name]


def test_each_stream_carries_one_and_a_throttled_one_goes_on_with_the_next(proxy: KeyedProxy) -> None:
    place, app = proxy.place(), proxy.http2()
    app.send(headers(1, place.fields("GET", "/a", ("authorization", "Bearer mine"), ("x-kept", "yes"))))
    upstream = place.accept()
    number, fields, _ = upstream.request()
    assert values(fields, "authorization") == ["Bearer value-a"]
    assert values(fields, "x-kept") == ["yes"]
    upstream.send(headers(number, THROTTLED))
    number, fields, _ = upstream.request()
    assert values(fields, "authorization") == ["Bearer value-b"]
    upstream.send(headers(number, OK))
    assert app.answer(1).status == 200
    app.send(headers(3, place.fields("GET", "/a", ("x-kept", "yes"))))
    number, fields, _ = upstream.request()
    assert values(fields, "authorization") == ["Bearer value-b"]
    upstream.send(headers(number, OK))
    assert app.answer(3).status == 200


def test_it_is_never_to_be_indexed(proxy: KeyedProxy) -> None:
    place, app = proxy.place(), proxy.http2()
    app.send(headers(1, place.fields()))
    upstream = place.accept()
    block = upstream.until(HEADERS).payload
    at = block.index(string(b"Bearer value-a"))
    assert block[at - 2] & 0xF0 == 0x10  # RFC 7541 section 6.2.3, the name by its index in the static table
