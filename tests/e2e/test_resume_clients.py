"""Downloads that break, with clients as they come: curl, wget, requests, boto3, pip, apt and git LFS (contract, section
15, "Resume"). Their own retries are off. What they get is the file, by its SHA-256, or an error; never a third thing.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import json
import random
import re
import shutil
import sys
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests
from support.late import Late
from support.process import Redrive, environment
from support.scripted import Turn, Upstream, answer

boto3, botocore = Late("boto3"), Late("botocore.config")

CONFIG = """
upstreams:
  files:
    url: {url}
    hosts: [files.test]
    strategy: {{kind: standard, backoff: {{base: 1ms, max: 2ms}}}}
    bucket: off
    resume: {{wait: 20s}}
    answers: {answers}
"""
SIZE = 1_200_000


def tag(body: bytes) -> str:
    return f'ETag: "{hashlib.sha256(body).hexdigest()[:16]}"'


@dataclass
class Files:
    """A server of files. Each answer of more than `small` bytes comes until the next of `cuts`, and breaks there.
    `rest`: what it does instead of sending the rest that is asked for; `batch`: its answer to the POST by which git LFS
    asks where objects are.
    """

    files: dict[str, bytes]
    cuts: list[int] = field(default_factory=list)
    small: int = 0
    rest: Callable[[bytes, int], bytes] | None = None
    ranges: list[str] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    batch: bytes = b""

    async def __call__(self, turn: Turn) -> None:
        path = re.sub(r"^https?://[^/]*", "", turn.request.target).partition("?")[0].replace("/./", "/")
        if path.endswith("/objects/batch"):
            await turn.read_body()
            await turn.write(answer(200, self.batch, "Content-Type: application/vnd.git-lfs+json"))
            return
        body = self.files.get(path)
        if body is None:
            await turn.write(answer(404))
            return
        wanted = turn.request.one("range")
        kind = self.kinds.get(path, "application/octet-stream")
        lines = (tag(body), "Accept-Ranges: bytes", f"Content-Type: {kind}")
        if wanted is not None:
            self.ranges.append(wanted)
            first = int(wanted.removeprefix("bytes=").partition("-")[0])
            if turn.request.one("if-range") is not None and self.rest is not None:
                await turn.write(self.rest(body, first))
                return
            said = f"Content-Range: bytes {first}-{len(body) - 1}/{len(body)}"
            whole = answer(206, body[first:], *lines, said)
        else:
            whole = answer(200, body, *lines)
        size = len(whole) - whole.index(b"\r\n\r\n") - 4
        if size <= self.small or not self.cuts:
            await turn.write(whole)
            return
        cut = min(self.cuts.pop(0), size - 1)
        await turn.write(whole[: len(whole) - size + cut])
        turn.close()


@asynccontextmanager
async def served(folder: Path, files: Files, answers: str = "{}") -> AsyncIterator[tuple[Upstream, Redrive]]:
    async with (
        Upstream(files) as upstream,
        Redrive(folder, CONFIG.format(url=upstream.url, answers=answers)) as redrive,
    ):
        yield upstream, redrive


async def run(*command: str | Path, **env: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment(**env),
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(errors="replace")


# -- clients: each downloads /file by the proxy, and returns its bytes, or None if it says that it failed --------------

Client = Callable[[Redrive, Path], Awaitable[bytes | None]]


async def by_curl(redrive: Redrive, folder: Path) -> bytes | None:
    out = folder / "curl.out"
    status, _ = await run("curl", "-sSf", "-o", out, "-x", redrive.url, "http://files.test/file")
    return out.read_bytes() if status == 0 else None


async def by_wget(redrive: Redrive, folder: Path) -> bytes | None:
    out = folder / "wget.out"
    command = ("wget", "-q", "--no-config", "--tries=1", "-O", out, f"{redrive.url}/files/file")
    status, _ = await run(*command)
    return out.read_bytes() if status == 0 else None


async def by_requests(redrive: Redrive, folder: Path) -> bytes | None:
    def ask() -> bytes | None:
        with requests.Session() as session:
            session.trust_env = False
            try:
                return session.get(f"{redrive.url}/files/file", timeout=60).content
            except requests.RequestException:
                return None

    return await asyncio.to_thread(ask)


async def by_boto3(redrive: Redrive, folder: Path) -> bytes | None:
    def ask() -> bytes | None:
        client = boto3.client(
            "s3",
            endpoint_url="http://files.test",
            region_name="eu-central-1",
            aws_access_key_id="AKIDEXAMPLE",
            aws_secret_access_key="secret",
            config=botocore.Config(
                s3={"addressing_style": "path"},
                proxies={"http": redrive.url},
                retries={"max_attempts": 0},
                response_checksum_validation="when_required",
            ),
        )
        try:
            got: bytes = client.get_object(Bucket="bucket", Key="file")["Body"].read()
        except Exception:
            return None
        return got

    return await asyncio.to_thread(ask)


CLIENTS: dict[str, Client] = {"curl": by_curl, "wget": by_wget, "requests": by_requests, "boto3": by_boto3}


def needs(name: str) -> None:
    if name in ("curl", "wget", "apt-get", "dpkg-deb") and shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")


def holding(body: bytes, cuts: list[int]) -> Files:
    return Files({"/file": body, "/bucket/file": body}, cuts)


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_large_file_that_breaks_at_random_offsets(tmp_path: Path, name: str) -> None:
    needs(name)
    chance = random.Random(name)
    body = chance.randbytes(SIZE)
    cuts = [chance.randrange(70_000, 300_000) for _ in range(4)]
    broken, files = tuple(cuts), holding(body, cuts)
    async with served(tmp_path, files) as (upstream, redrive):
        got = await CLIENTS[name](redrive, tmp_path)
        assert got is not None
        assert hashlib.sha256(got).digest() == hashlib.sha256(body).digest()
        assert files.ranges == [f"bytes={at}-" for at in itertools.accumulate(broken)]
        assert len(upstream.requests) == 5


async def test_a_small_file_that_breaks_at_every_offset(tmp_path: Path) -> None:
    needs("curl")
    body = bytes(range(24))
    files = holding(body, [])
    async with served(tmp_path, files, "off") as (_, redrive):
        for cut in range(len(body)):
            files.cuts.append(cut)
            assert await by_curl(redrive, tmp_path) == body
        assert files.ranges == [f"bytes={cut}-" for cut in range(len(body))]


def _ranged(body: bytes, said: str, *lines: str) -> bytes:
    return answer(206, body, *lines, f"Content-Range: bytes {said}")


#: What a server may do with the rest that is asked for, and whether the file is there in the end.
RESTS: dict[str, tuple[Callable[[bytes, int], bytes], bool]] = {
    "the file has changed, and all of it comes": (lambda body, at: answer(200, body[::-1], tag(body[::-1])), False),
    "the file has changed, and a part of it comes": (
        lambda body, at: _ranged(body[::-1][at:], f"{at}-{len(body) - 1}/{len(body)}", tag(body[::-1])),
        False,
    ),
    "all of it comes again": (lambda body, at: answer(200, body, tag(body)), True),
    "its Content-Range lies about the beginning": (
        lambda body, at: _ranged(body[at - 1 :], f"{at - 1}-{len(body) - 1}/{len(body)}", tag(body)),
        False,
    ),
    "its Content-Range lies about the length": (
        lambda body, at: _ranged(body[at:-1], f"{at}-{len(body) - 1}/{len(body)}", tag(body)),
        False,
    ),
    "its Content-Range lies about the whole": (
        lambda body, at: _ranged(body[at:], f"{at}-{len(body) - 1}/{len(body) + 1}", tag(body)),
        False,
    ),
    "416": (lambda body, at: answer(416, b"", f"Content-Range: bytes */{at}"), False),
    "gzip": (
        lambda body, at: _ranged(body[at:], f"{at}-{len(body) - 1}/{len(body)}", tag(body), "Content-Encoding: gzip"),
        False,
    ),
    "404": (lambda body, at: answer(404, b"gone"), False),
}


@pytest.mark.parametrize("rest", RESTS)
@pytest.mark.parametrize("name", CLIENTS)
async def test_a_server_that_sends_something_else(tmp_path: Path, name: str, rest: str) -> None:
    needs(name)
    chance = random.Random(f"{name} {rest}")
    body = chance.randbytes(SIZE)
    files = holding(body, [chance.randrange(70_000, 900_000)])
    files.rest, whole = RESTS[rest]
    async with served(tmp_path, files) as (_, redrive):
        got = await CLIENTS[name](redrive, tmp_path)
        assert got == (body if whole else None)
        assert len(files.ranges) == 1


def wheel(chance: random.Random) -> bytes:
    """A wheel of a package without code, large enough to break after it was committed."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("brk/data.bin", chance.randbytes(400_000))
        archive.writestr("brk-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: brk\nVersion: 1.0\n")
        archive.writestr("brk-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("brk-1.0.dist-info/RECORD", "")
    return made.getvalue()


@pytest.mark.parametrize("changes", [False, True])
async def test_pip_and_its_hashes(tmp_path: Path, changes: bool) -> None:
    """A wheel whose rest is another's fails, by a reset; pip's own check of its hash has nothing to find."""
    status, _ = await run(sys.executable, "-m", "pip", "--version")
    pip = [sys.executable, "-m", "pip"] if status == 0 else [shutil.which("pip") or ""]
    if not pip[0]:
        pytest.skip("pip is not installed")
    body = wheel(random.Random("pip"))
    digest = hashlib.sha256(body).hexdigest()
    name = "brk-1.0-py3-none-any.whl"
    page = f'<!DOCTYPE html><a href="../../{name}#sha256={digest}">{name}</a>'.encode()
    files = Files({"/simple/brk/": page, f"/{name}": body}, [150_000, 120_000], small=10_000)
    files.kinds["/simple/brk/"] = "text/html"
    if changes:
        files.rest, _ = RESTS["the file has changed, and a part of it comes"]
    options = ["--isolated", "--no-cache-dir", "--disable-pip-version-check", "--retries", "0", "--no-deps"]
    if "--resume-retries" in (await run(*pip, "download", "--help"))[1]:
        options += ["--resume-retries", "0"]
    async with served(tmp_path, files) as (_, redrive):
        index = ("--index-url", f"{redrive.url}/files/simple", "--trusted-host", "127.0.0.1")
        place = tmp_path / "pip"
        status, out = await run(*pip, "download", *options, *index, "-d", place, "brk", PIP_CONFIG_FILE="/dev/null")
        if changes:
            assert status != 0
            assert not list(place.glob("*.whl"))
            assert "do not match the hashes" not in out.lower()
        else:
            assert (status, files.ranges) == (0, ["bytes=150000-", "bytes=270000-"]), out
            assert hashlib.sha256((place / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("changes", [False, True])
async def test_apt(tmp_path: Path, changes: bool) -> None:
    needs("apt-get")
    needs("dpkg-deb")
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    control = "Package: brk\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@files.test>\nDescription: breaks\n"
    (tree / "DEBIAN" / "control").write_text(control)
    (tree / "data.bin").write_bytes(random.Random("apt").randbytes(400_000))
    package = tmp_path / "brk_1.0_all.deb"
    status, out = await run("dpkg-deb", "--build", "--root-owner-group", tree, package)
    assert status == 0, out
    body = package.read_bytes()
    digest = hashlib.sha256(body).hexdigest()
    index = f"{control}Filename: ./brk_1.0_all.deb\nSize: {len(body)}\nSHA256: {digest}\n\n".encode()
    files = Files({"/Packages": index, "/brk_1.0_all.deb": body}, [150_000, 120_000], small=10_000)
    if changes:
        files.rest, _ = RESTS["the file has changed, and a part of it comes"]
    root = tmp_path / "apt"
    for name in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "state/lists/partial", "cache/archives/partial"):
        (root / name).mkdir(parents=True)
    (root / "sources.list").write_text("deb [trusted=yes] http://files.test/ ./\n")
    (root / "status").write_text("")
    async with served(tmp_path, files) as (_, redrive):
        settings = {
            "Dir::Etc": f"{root}/etc/apt",
            "Dir::Etc::sourcelist": f"{root}/sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State": f"{root}/state",
            "Dir::State::status": f"{root}/status",
            "Dir::Cache": f"{root}/cache",
            "Acquire::http::Proxy": redrive.url,
            "Acquire::Retries": "0",
            "Acquire::Languages": "none",
            "APT::Sandbox::User": "",
        }
        options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
        status, out = await run("apt-get", *options, "update", LC_ALL="C")
        assert status == 0, out
        process = await asyncio.create_subprocess_exec(
            "apt-get", *options, "download", "brk", cwd=root, env=environment(LC_ALL="C"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out = (await process.communicate())[0].decode()
    got = root / "brk_1.0_all.deb"
    if changes:
        assert process.returncode != 0, out
        assert not got.exists() or got.read_bytes() == body[:150_000]  # apt keeps what came, to go on with it
    else:
        assert (process.returncode, files.ranges) == (0, ["bytes=150000-", "bytes=270000-"]), out
        assert hashlib.sha256(got.read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("changes", [False, True])
async def test_git_lfs(tmp_path: Path, changes: bool) -> None:
    """An object of git LFS (Debian's package `git-lfs`), fetched for a pointer by the filter that a checkout runs."""
    status, out = await run("git", "lfs", "version")
    if status != 0:
        pytest.skip("git-lfs is not installed")
    body = random.Random("lfs").randbytes(SIZE)
    oid = hashlib.sha256(body).hexdigest()
    files = Files({"/file": body}, [150_000, 120_000])
    there = {
        "oid": oid,
        "size": SIZE,
        "authenticated": True,
        "actions": {"download": {"href": "http://files.test/file"}},
    }
    files.batch = json.dumps({"transfer": "basic", "objects": [there]}).encode()
    if changes:
        files.rest, _ = RESTS["the file has changed, and a part of it comes"]
    place = tmp_path / "place"
    status, out = await run("git", "init", "-q", place)
    assert status == 0, out
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {SIZE}\n"
    async with served(tmp_path, files) as (_, redrive):
        settings = {"lfs.url": "http://files.test/lfs", "lfs.transfer.maxretries": "1", "http.proxy": redrive.url}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        process = await asyncio.create_subprocess_exec(
            "git", *options, "lfs", "smudge", cwd=place, env=environment(HOME=str(tmp_path)),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        got, said = await process.communicate(pointer.encode())
    if changes:
        assert process.returncode != 0
        assert body[:100] not in got
    else:
        assert process.returncode == 0, said
        assert hashlib.sha256(got).hexdigest() == oid
        assert files.ranges == ["bytes=150000-", "bytes=270000-"]
