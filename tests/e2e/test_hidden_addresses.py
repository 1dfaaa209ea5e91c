"""Addresses that files complete: calls go there, and nothing that redrive shows has what the files contain."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest
from support.ports import free_port
from support.process import Redrive, verb
from support.scripted import Upstream, answer

SECRETS = {
    "token": "t0ken-of-the-webhook",
    "tenant": "tenant-in-the-prefix",
    "host": "billing-in-hosts.test",
    "field": "x-field-of-the-scope",
    "base": "/base-of-a-whole-url",
}
CONFIG = """
upstreams:
  hook: {url: "URL/services/${file:secrets/token}/in"}
  tenant: {url: URL, prefix: "/${file:secrets/tenant}", scope: {header: "${file:secrets/field}"}}
  billing: {url: URL, hosts: ["${file:secrets/host}"]}
  whole: {url: "${file:secrets/whole}"}
  closed: {url: "http://${file:secrets/closed}", strategy: none, circuit_breaker: {minimum_attempts: 1, open: 1h}}
"""
PAGES = [
    "readyz?verbose",
    "config",
    "config/places",
    "upstreams",
    "buckets",
    "requests",
    "series",
    "series?name=tenant",
]
PAGES += [f"config/places?upstream={name}" for name in ("hook", "tenant", "billing", "whole", "closed")]
PAGES += ["metrics", "series?name=tenant", "what-if?upstream=closed"]


def write(folder: Path, url: str) -> dict[str, str]:
    """Write the files; return what must not be seen, by file."""
    port, closed = url.rpartition(":")[2], free_port()
    found = {**SECRETS, "whole": f"http://localhost:{port}{SECRETS['base']}/", "closed": f"localhost:{closed}"}
    (folder / "secrets").mkdir()
    for name, content in found.items():
        (folder / "secrets" / name).write_text(f"{content}\n")
    return found | {"place": "localhost", "whole": f"localhost:{port}"}


async def pages(running: Redrive, calls: int) -> dict[str, str]:
    """The admin port's pages, and its events up to this number of calls and the board."""
    found = {}
    async with aiohttp.ClientSession() as session:
        for name in [*PAGES, *(f"requests/{number}/explain" for number in range(1, calls + 1))]:
            async with session.get(f"{running.admin}/{name}") as got:
                assert got.status == 200, name
                found[name] = await got.text()
        async with session.get(f"{running.admin}/events?board", headers={"Last-Event-ID": "0"}) as got:
            events = ""
            async with asyncio.timeout(60):
                while "event: board" not in events or events.count("event: call") < calls:
                    events += (await got.content.readany()).decode()
            found["events"] = events
    return found


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_content_completes_an_address_and_is_shown_nowhere(tmp_path: Path, workers: int) -> None:
    async with Upstream(*[answer(200)] * 4) as upstream:
        hidden = write(tmp_path, upstream.url)
        listen = f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nworkers: {workers}\n"
        async with Redrive(tmp_path, CONFIG.replace("URL", upstream.url), listen=listen) as running:
            async with aiohttp.ClientSession() as session:
                ways = {f"{running.url}/{name}/x": {} for name in ("hook", SECRETS["tenant"], "whole", "closed")}
                ways |= {f"{running.url}/y": {"Host": SECRETS["host"]}}
                said = []
                for url, fields in ways.items():
                    async with session.get(url, headers=fields) as got:
                        said.append(f"{got.status} {sorted(got.headers.items())} {await got.text()}")
            for number in range(1, len(ways) + 1):
                await running.call(number)
            seen = await pages(running, len(ways))
            running.signal(signal.SIGTERM)
            assert await running.ended() == 0
        sent = sorted(request.target for request in upstream.requests)
    assert sent == sorted([f"/services/{SECRETS['token']}/in/x", "/x", f"{SECRETS['base']}/x", "/y"])
    seen |= {"answers": "\n".join(said), "log": str(running.lines), "errors": running.errors}
    assert not [(page, secret) for page, text in seen.items() for secret in hidden.values() if secret in text.lower()]
    assert "${file:secrets/host}" in seen["log"] and "/${file:secrets/tenant}/x" in seen["log"]
    assert "${file:secrets/closed}" in seen["upstreams"] and "${file:secrets/closed}" in seen["answers"]
    (circuit,) = [line for line in seen["metrics"].splitlines() if line.startswith("redrive_circuit_open{")]
    assert 'endpoint="${file:secrets/closed}"' in circuit and circuit.endswith("} 1.0")
    assert any(line["event"] == "circuit_open" and "${file:" in line["endpoint"] for line in running.lines)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_explain_shows_the_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: tuple[str, ...]) -> None:
    hidden = write(tmp_path, "http://127.0.0.1:1")
    file = tmp_path / "redrive.yaml"
    file.write_text(CONFIG.replace("URL", "http://127.0.0.1:1"))
    for way in ("/hook/x", f"/{SECRETS['tenant']}/x", "/whole/x", "/closed/x", f"http://{SECRETS['host']}/x"):
        status, out, errors = verb(capsys, "explain", "-c", str(file), *form, "GET", way)
        assert status == 0, errors
        assert not [secret for secret in hidden.values() if secret in (out + errors).lower()], out
        assert "${file:secrets/" in out


async def test_calls_before_a_reload_hide_what_the_file_had_then(tmp_path: Path) -> None:
    async with Upstream(answer(200), answer(200)) as upstream:
        write(tmp_path, upstream.url)
        async with (
            Redrive(tmp_path, CONFIG.replace("URL", upstream.url)) as running,
            aiohttp.ClientSession() as session,
        ):
            for tenant in (SECRETS["tenant"], "another-tenant"):
                (tmp_path / "secrets" / "tenant").write_text(tenant)
                async with session.post(f"{running.admin}/reload") as reloaded:
                    assert await reloaded.json() == {"reloaded": True, "errors": []}
                async with session.get(f"{running.url}/{tenant}/x") as got:
                    assert got.status == 200
            async with session.get(f"{running.admin}/requests") as got:
                calls = (await got.json())["requests"]
    assert [call["path"] for call in calls] == ["/${file:secrets/tenant}/x"] * 2
