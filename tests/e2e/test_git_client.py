"""git through redrive, as the recipe has it: git's own client and git's own server, which fails each request once."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from support.process import Redrive, environment, redrive, run

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.skipif(
    shutil.which("git") is None
    or not (Path(subprocess.check_output(["git", "--exec-path"], text=True).strip()) / "git-http-backend").exists(),
    reason="git, or its HTTP backend, is not installed",
)
#: Nothing of the developer's own settings.
QUIET = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    **{f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


class GitServer:
    """A repository behind `git http-backend`. `fails` is how the first request for each path is answered; `seen` counts
    the requests for what stands behind the repository's name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fails = 0
        self.headers: dict[str, str] = {}
        self.seen: Counter[str] = Counter()

    async def answer(self, request: web.Request) -> web.Response:
        """Fail it, or let git answer."""
        body = await request.read()
        what = request.rel_url.path_qs.partition("repo.git/")[2]
        self.seen[what] += 1
        if self.fails and self.seen[what] == 1:
            return web.Response(status=self.fails, headers=self.headers)
        described = {
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "somebody",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        }
        backend = await asyncio.create_subprocess_exec(
            "git", "http-backend", env=environment(**QUIET, **described),
            stdin=asyncio.subprocess.PIPE if body else asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        head, _, answer = (await backend.communicate(body or None))[0].partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return web.Response(status=int(fields.pop("Status", "200")[:3]), headers=fields, body=answer)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[GitServer, str]]:
    """The server, and its URL."""
    made = GitServer(tmp_path / "served")
    await git("init", "-q", "--bare", "-b", "main", str(made.folder / "team/repo.git"))
    await git("init", "-q", "-b", "main", str(tmp_path / "made"))
    (tmp_path / "made/file").write_text("one\n")
    await git("-C", str(tmp_path / "made"), "add", "file")
    await git("-C", str(tmp_path / "made"), "commit", "-qm", "one")
    await git("-C", str(tmp_path / "made"), "push", "-q", str(made.folder / "team/repo.git"), "main")
    application = web.Application(client_max_size=64 << 20)
    application.router.add_route("*", "/{path:.*}", made.answer)
    served = TestServer(application)
    await served.start_server()
    yield made, f"http://127.0.0.1:{served.port}"
    await served.close()


async def git(*arguments: str, fails: bool = False, **env: str) -> str:
    """One git to its end; what it says."""
    status, out, err = await run("git", *arguments, **{**QUIET, **env})
    assert (status != 0) is fails, err
    return out + err


async def test_the_recipe(server: tuple[GitServer, str], tmp_path: Path) -> None:
    made, url = server
    config = yaml.safe_load((ROOT / "config/examples/git.yaml").read_text())
    recipe = config["upstreams"]["git"]
    assert recipe["url"] == "https://git.example.com"
    recipe |= {"url": url, "hosts": ["git.example.com:80", "git.example.com:443"], "connect": "intercept"}
    recipe["strategy"]["backoff"]["base"] = "1ms"
    config["ca"] = {"cert": "ca/cert.pem", "key": "ca/key.pem"}
    (tmp_path / "for_ca.yaml").write_text(yaml.safe_dump(config))
    assert (await redrive("ca", "init", "-c", str(tmp_path / "for_ca.yaml")))[0] == 0
    upload = "git-upload-pack"

    async with Redrive(tmp_path, yaml.safe_dump(config)) as proxy:
        repository = "https://git.example.com/team/repo.git"
        base = ("-c", f"url.{proxy.url}/git/.insteadOf=https://git.example.com/")
        by_proxy = ("-c", f"http.proxy={proxy.url}")
        ways = {
            "base": (base, repository),
            "proxy": (by_proxy, repository.replace("https:", "http:")),
            "intercepted": (by_proxy, repository),
        }

        made.fails = 503
        assert "503" in await git("clone", f"{url}/team/repo.git", str(tmp_path / "direct"), fails=True)
        for name, (options, where) in ways.items():
            made.seen.clear()
            await git(*options, "clone", "-q", where, str(tmp_path / name), GIT_SSL_CAINFO=f"{tmp_path}/ca/bundle.pem")
            assert made.seen[f"info/refs?service={upload}"] == 2, "the question was repeated"
            assert made.seen[upload] >= 3, "and so was the fetch"
            assert (tmp_path / name / "file").read_text() == "one\n"

        clone = tmp_path / "base"
        (clone / "file").write_text("two\n")
        await git("-C", str(clone), "commit", "-qam", "two")
        made.seen.clear()
        await git("-C", str(clone), *base, "push", "-q", fails=True)
        assert made.seen["git-receive-pack"] == 1, "what may have moved a branch is not repeated"
        made.fails, made.headers = 429, {"Retry-After": "0"}
        made.seen.clear()
        await git("-C", str(clone), *base, "push", "-q")
        assert made.seen["git-receive-pack"] == 2, "what was throttled is"

        # More than http.postBuffer, 1 MiB: git streams it, behind a POST of four bytes that only asks for a password.
        (clone / "file").write_bytes(os.urandom(3 << 20))
        await git("-C", str(clone), "commit", "-qam", "three")
        made.fails = 0
        made.seen.clear()
        await git("-C", str(clone), *base, "push", "-q")
        assert made.seen["git-receive-pack"] >= 1
        assert await git("--git-dir", str(made.folder / "team/repo.git"), "log", "--format=%s") == "three\ntwo\none\n"
