"""What the log says of requests that never became calls: a line of the same shape as any other's."""

from __future__ import annotations

import json

import pytest
from support.front import Front, to
from support.scripted import Upstream, answer

from proxy.config.settings import Limits
from proxy.observe.access_log import AccessLog
from proxy.observe.metrics import Metrics
from proxy.observe.observers import Observers
from proxy.observe.recent_calls import RecentCalls


class Kept(list[str]):
    def add(self, line: str) -> None:
        self.append(line)


REFUSED = {
    "404": b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "421": b"GET /api/x HTTP/1.1\r\nHost: rebound.example\r\n\r\n",
    "403": b"GET /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nSec-Fetch-Site: cross-site\r\n\r\n",
    "400": b"GET /api/x HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
    "431": b"GET /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    "505": b"GET /api/x HTTP/2.0\r\nHost: 127.0.0.1\r\n\r\n",
    "508": b"GET /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nVia: 1.1 %b\r\n\r\n",
    "403 denied": b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
    "403 port": b"CONNECT example.test:25 HTTP/1.1\r\nHost: example.test:25\r\n\r\n",
    "503 to HEAD": b"HEAD /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "503": b"GET /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}


@pytest.mark.parametrize("what", list(REFUSED))
async def test_a_line_of_the_same_shape(what: str) -> None:
    limits = Limits(65536, 256, 1 if what.startswith("503") else 10000, 2000, frozenset({443}))
    async with Upstream(answer(200)) as upstream, Front(to("api", upstream.url), limits=limits) as front:
        kept = Kept()
        front.path.context.observer = Observers(Metrics(), RecentCalls(), AccessLog(kept))
        async with front.app() as first, front.app() as app:
            assert (await first.ask("GET", "/api/x", "Host: 127.0.0.1")).status == 200
            app.send(REFUSED[what].replace(b"%b", front.path.context.via.encode()))
            refused = await app.read(what.rpartition(" ")[2])
            assert what != "503 to HEAD" or await app.rest() == b""
            assert f"{refused.status}" == what[:3]
        served, line = map(json.loads, kept)
        assert set(line) - {"detail"} == set(served)
        assert (line["status"], line["bytes_out"]) == (refused.status, len(refused.body))
        assert None not in line.values()
