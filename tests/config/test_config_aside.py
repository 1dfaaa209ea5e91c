"""A large configuration is loaded by a process of its own: it comes to the same, whatever becomes of that process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from proxy.config import aside, watch
from proxy.config.aside import AsideError, load_aside
from proxy.config.load import LoadResult, load
from proxy.config.watch import Watcher

PATIENCE = 20.0
MANY = "".join(f"  u{n}: {{url: 'http://u{n}.test', timeouts: {{total: {n + 1}s}}}}\n" for n in range(500))
OWN = """
import os, signal
from pathlib import Path
from proxy.retry import StandardRetryStrategy
here = Path(__file__).parent
print("a user's module may print")
if (here / "waits").exists():
    (here / "waits").write_text(str(os.getpid()))
    signal.pause()
class Own(StandardRetryStrategy):
    def __init__(self, how):
        super().__init__()
        is_ours = os.getpid() == int(os.environ["OURS"])
        if how == ("here" if is_ours else "there"):
            raise ValueError("unlucky")
        if how == "dies" and not is_ours:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, str]]:
    monkeypatch.setenv("OURS", str(os.getpid()))
    yield os.environ


def written(folder: Path, text: str) -> str:
    file = folder / "redrive.yaml"
    file.write_text(text)
    return str(file)


def with_own(folder: Path, how: str, module: str) -> str:
    """Each test has a module of its own: where one was found once, others are looked for too."""
    (folder / f"{module}.py").write_text(OWN)
    return f"upstreams:\n{MANY}  own: {{url: 'http://own.test', strategy: {{kind: '{module}:Own', how: {how}}}}}\n"


async def test_it_comes_to_the_same(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("upstreams: {more: {url: http://more.test}}\n")
    text = f"include: [more.yaml]\ndrain: 7s\nupstreams:\n{MANY}  twice: {{url: 'http://u7.test'}}\n"
    file = written(tmp_path, text + "defaults: {headers: {request: {set: {X-Key: '${KEY}'}}}}\n")
    environ = {**os.environ, "KEY": "secret"}
    here, there = load(file, environ), await load_aside(file, environ)
    assert (there.problems, there.files, there.patterns) == (here.problems, here.files, here.patterns)
    assert here.problems
    assert here.settings is not None
    assert there.settings is not None
    assert there.settings.drain == 7
    assert [each.name for each in there.settings.router.upstreams] == [
        each.name for each in here.settings.router.upstreams
    ]
    assert there.settings.router.by_name["u41"].policy.timeouts.total == 42
    assert there.settings.router.by_name["more"].policy.request_headers.set == (("X-Key", "secret"),)
    assert there.settings.provenance.of("u41") == here.settings.provenance.of("u41")
    assert there.settings.provenance.effective() == here.settings.provenance.effective()
    assert b"".join(there.packed)
    assert here.packed == ()


async def test_what_is_wrong_is_told_alike(tmp_path: Path) -> None:
    file = written(tmp_path, f"upstreams:\n{MANY}  bad: {{url: 'http://bad.test', strategy: unheard_of}}\ndrain: 7\n")
    here, there = load(file, {}), await load_aside(file, os.environ)
    assert there == here
    assert len(there.errors) == 2


async def test_a_users_strategy_is_made_here_too(tmp_path: Path, environ: Mapping[str, str]) -> None:
    found = (await load_aside(written(tmp_path, with_own(tmp_path, "anywhere", "own_anywhere")), environ)).settings
    assert found is not None
    assert type(found.router.by_name["own"].policy.strategy.custom).__name__ == "Own"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("dies", "cannot be loaded: the process that does so ended (killed by SIGKILL)"),
        ("there", "own_there:Own cannot be made: ValueError: unlucky"),
        ("here", "cannot be taken: CustomError: own_here:Own cannot be made: ValueError: unlucky"),
    ],
)
async def test_what_goes_wrong_on_the_way_refuses_the_file(
    how: str, said: str, tmp_path: Path, environ: Mapping[str, str]
) -> None:
    file = written(tmp_path, "drain: 1s\n")
    heard: list[tuple[LoadResult, str]] = []
    watcher = Watcher(file, environ, load(file, environ), lambda *told: heard.append(told))
    written(tmp_path, with_own(tmp_path, how, f"own_{how}"))
    result = await watcher.reload("SIGHUP")
    assert heard == [(result, "SIGHUP")]
    (error,) = result.errors
    assert error.message == said
    assert error.file == file
    assert (result.settings, result.files) == (None, (file,))
    written(tmp_path, "drain: 2s\n")
    result = await watcher.reload("SIGHUP")
    assert result.settings is not None
    assert result.settings.drain == 2


async def test_the_process_ends_when_nobody_waits_for_it(tmp_path: Path, environ: Mapping[str, str]) -> None:
    os.mkfifo(tmp_path / "waits")
    loading = asyncio.create_task(load_aside(written(tmp_path, with_own(tmp_path, "anywhere", "own_waits")), environ))
    pid = int(await asyncio.to_thread((tmp_path / "waits").read_text))
    process, ended = os.pidfd_open(pid), asyncio.Event()
    asyncio.get_running_loop().add_reader(process, ended.set)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await asyncio.wait_for(ended.wait(), PATIENCE)
    asyncio.get_running_loop().remove_reader(process)
    os.close(process)


async def test_a_thread_does_it_where_no_process_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside.sys, "executable", str(tmp_path / "missing"))
    file = written(tmp_path, f"upstreams:\n{MANY}")
    with pytest.raises(OSError, match="No such file"):
        await load_aside(file, {})
    result = await Watcher(file, {}, load(file, {}), lambda *_: None).reload("SIGHUP")
    assert result.settings is not None
    assert result.packed == ()


async def test_only_what_is_large_goes_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def asks(file: str, environ: Mapping[str, str]) -> LoadResult:
        asked.append(file)
        raise AsideError("is told")

    monkeypatch.setattr(watch, "load_aside", asks)
    file = written(tmp_path, "include: [more.yaml]\n")
    (tmp_path / "more.yaml").write_text("{}\n")
    watcher = Watcher(file, {}, load(file, {}), lambda *_: None)
    assert (await watcher.reload("SIGHUP")).errors == ()
    (tmp_path / "more.yaml").write_text("upstreams:\n" + MANY)
    assert [each.message for each in (await watcher.reload("SIGHUP")).errors] == ["is told"]
    assert asked == [file]
