"""git over HTTP through the recipe of config/examples/git.yaml: the system's git, and git's own server behind it.

git repeats nothing by itself, so that a clone ends with the first failure. What is shown: a fetch is repeated, whatever
happened to it, and a push only where it was not carried out.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.process import Redrive
from support.scripted import Step, Turn, Upstream, answer, reset

RECIPE = Path(__file__).parent.parent.parent / "config" / "examples" / "git.yaml"


def _has_a_server() -> bool:
    git = shutil.which("git")
    if git is None:
        return False
    folder = subprocess.run([git, "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    return Path(folder, "git-http-backend").exists()


pytestmark = pytest.mark.skipif(not _has_a_server(), reason="git is not installed, or without git-http-backend")

#: What goes wrong, once, with the first POST.
FAILURES = {"500": answer(500), "503": answer(503), "reset": reset}


class Git:
    """git without the developer's own configuration, and a repository that it serves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.served = folder, folder / "served"
        for name in list(os.environ):
            if name.startswith("GIT_") or name.lower().endswith("_proxy"):
                monkeypatch.delenv(name)
        settings = {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
        people = {f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        for name, value in {**settings, **people}.items():
            monkeypatch.setenv(name, value)
        self.run("init", "-q", "-b", "main", "work")
        self.run("-C", "work", "commit", "-q", "--allow-empty", "-m", "first")
        self.run("clone", "-q", "--bare", "work", "served/repo.git")
        self.run("-C", "served/repo.git", "config", "http.receivepack", "true")

    def run(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, arguments, done.stdout, done.stderr)
        return done.stdout.strip()

    async def through(self, redrive: Redrive | None, upstream: Upstream, *arguments: str) -> str:
        """A command, as the recipe says: the remote's URL is put in redrive's place."""
        here = f"{redrive.url}/git/" if redrive is not None else f"{upstream.url}/"
        return await asyncio.to_thread(self.run, "-c", f"url.{here}.insteadOf=https://git.example.com/", *arguments)

    def serves(self, failing: Step | None = None, when: Callable[[str], bool] = lambda line: False) -> Step:
        """git's own server. The first request of which `when` holds gets `failing`."""
        left = [failing] if failing is not None else []

        async def step(turn: Turn) -> None:
            if left and when(turn.request.line):
                failure = left.pop()
                if isinstance(failure, bytes):
                    await turn.read_body()
                    await turn.write(failure)
                else:
                    await failure(turn)
                return
            await turn.write(await self._served(turn))

        return step

    async def _served(self, turn: Turn) -> bytes:
        request = turn.request
        body = await turn.read_body()
        path, _, query = request.target.partition("?")
        variables = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.served),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": request.method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": request.one("content-type") or "",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": request.one("content-encoding") or "",
            "GIT_PROTOCOL": request.one("git-protocol") or "",
        }
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL  # to one that reads nothing nothing is fed
        server = await asyncio.create_subprocess_exec(
            "git", "http-backend", stdin=pipe if body else nothing, stdout=pipe, env=variables
        )
        out, _ = await server.communicate(body or None)
        head, _, content = out.partition(b"\r\n\r\n")
        fields = [line for line in head.decode().split("\r\n") if line]
        status = [line for line in fields if line.startswith("Status: ")]
        code = int(status[0].split()[1]) if status else 200
        return answer(code, content, *(line for line in fields if line not in status))


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    return Git(tmp_path, monkeypatch)


def recipe(upstream: Upstream) -> str:
    """The recipe, for this upstream and without its waits."""
    policy = yaml.safe_load(RECIPE.read_text())
    policy["upstreams"]["git"]["url"] = upstream.url
    policy["upstreams"]["git"]["strategy"]["backoff"] = {"base": "0s"}
    return yaml.safe_dump(policy)


def fetches(line: str) -> bool:
    return line.startswith("POST") and "/git-upload-pack" in line


def pushes(line: str) -> bool:
    return line.startswith("POST") and "/git-receive-pack" in line


def lines(upstream: Upstream, wanted: Callable[[str], bool]) -> int:
    return sum(wanted(request.line) for request in upstream.requests)


async def test_git_alone_ends_with_the_first_failure(git: Git) -> None:
    async with Upstream(git.serves(answer(503), fetches)) as upstream:
        with pytest.raises(subprocess.CalledProcessError) as failed:
            await git.through(None, upstream, "clone", "-q", "https://git.example.com/repo.git", "copy")
    assert "503" in failed.value.stderr
    assert lines(upstream, fetches) == 1


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_clone_rides_out_a_failure(git: Git, tmp_path: Path, failure: str) -> None:
    async with (
        Upstream(git.serves(FAILURES[failure], fetches)) as upstream,
        Redrive(tmp_path, recipe(upstream)) as redrive,
    ):
        await git.through(redrive, upstream, "clone", "-q", "https://git.example.com/repo.git", "copy")
        assert git.run("-C", "copy", "log", "--format=%s") == "first"
        git.run("-C", "work", "commit", "-q", "--allow-empty", "-m", "second")
        git.run("-C", "work", "push", "-q", "../served/repo.git", "main")
        upstream.steps = (git.serves(FAILURES[failure], fetches),)
        await git.through(redrive, upstream, "-C", "copy", "pull", "-q")
        assert git.run("-C", "copy", "log", "--format=%s") == "second\nfirst"
    counts = [request.one("x-attempt-count") for request in upstream.requests if fetches(request.line)]
    assert counts.count("2") == 2  # one for the clone, one for the pull


async def test_the_question_before_it_is_repeated_too(git: Git, tmp_path: Path) -> None:
    async with (
        Upstream(git.serves(answer(502), lambda line: line.startswith("GET"))) as upstream,
        Redrive(tmp_path, recipe(upstream)) as redrive,
    ):
        heads = await git.through(redrive, upstream, "ls-remote", "https://git.example.com/repo.git", "main")
    assert heads.endswith("refs/heads/main")


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_push_that_may_have_been_carried_out_is_not_repeated(git: Git, tmp_path: Path, failure: str) -> None:
    git.run("-C", "work", "commit", "-q", "--allow-empty", "-m", "second")
    async with (
        Upstream(git.serves(FAILURES[failure], pushes)) as upstream,
        Redrive(tmp_path, recipe(upstream)) as redrive,
    ):
        with pytest.raises(subprocess.CalledProcessError):
            await git.through(redrive, upstream, "-C", "work", "push", "-q", "https://git.example.com/repo.git", "main")
    assert lines(upstream, pushes) == 1


async def test_a_push_that_was_throttled_is_repeated(git: Git, tmp_path: Path) -> None:
    git.run("-C", "work", "commit", "-q", "--allow-empty", "-m", "second")
    async with (
        Upstream(git.serves(answer(429), pushes)) as upstream,
        Redrive(tmp_path, recipe(upstream)) as redrive,
    ):
        await git.through(redrive, upstream, "-C", "work", "push", "-q", "https://git.example.com/repo.git", "main")
    assert lines(upstream, pushes) == 2
    assert git.run("-C", "served/repo.git", "log", "--format=%s", "main") == "second\nfirst"
