"""A configuration that changes on disk is loaded again: real folders, real events."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.config import file_events, watch
from proxy.config.load import LoadResult, load
from proxy.config.watch import Watcher

PATIENCE = 20.0  # seconds before a test that waits for an event gives up


class Heard:
    """Keeps what a watcher told, and lets a test wait for the next of it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[LoadResult, str]] = asyncio.Queue()

    def __call__(self, result: LoadResult, why: str) -> None:
        self._queue.put_nowait((result, why))

    async def until(self, wanted: Callable[[LoadResult], bool]) -> tuple[LoadResult, str]:
        """The first load that is as wanted: one change on disk may be seen as several."""
        async with asyncio.timeout(PATIENCE):
            while True:
                result, why = await self._queue.get()
                if wanted(result):
                    return result, why

    @property
    def silent(self) -> bool:
        return self._queue.empty()


@asynccontextmanager
async def watched(file: Path) -> AsyncIterator[tuple[Heard, Watcher]]:
    heard = Heard()
    watcher = Watcher(str(file), {}, load(str(file), {}), heard)
    task = asyncio.create_task(watcher.run())
    try:
        yield heard, watcher
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def drains(seconds: float) -> Callable[[LoadResult], bool]:
    return lambda result: result.settings is not None and result.settings.drain == seconds


async def test_written_renamed_and_broken(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("drain: 1s\n")
    async with watched(file) as (heard, _):
        file.write_text("drain: 2s\n")
        _, why = await heard.until(drains(2))
        assert why == "file"
        fresh = tmp_path / ".redrive.yaml.swp"
        fresh.write_text("drain: 3s\n")
        fresh.rename(file)
        await heard.until(drains(3))
        file.write_text("drain: 4\n")
        result, _ = await heard.until(lambda result: result.settings is None)
        assert "has no unit" in str(result.errors[0])
        file.unlink()
        result, _ = await heard.until(lambda result: "cannot be read" in str(result.problems[:1]))
        file.write_text("drain: 5s\n")
        await heard.until(drains(5))


@pytest.mark.parametrize("name", [b"r\xff.yaml", b"folder\xff/redrive.yaml"], ids=["a file", "a folder"])
async def test_a_name_that_is_no_utf_8(name: bytes, tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(name)
    file.parent.mkdir(exist_ok=True)
    file.write_text("drain: 1s\n")
    async with watched(file) as (heard, _):
        for seconds in (2, 3):
            file.write_text(f"drain: {seconds}s\n")
            await heard.until(drains(seconds))


async def test_a_neighbour_whose_name_is_no_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("drain: 1s\n")
    async with watched(file) as (heard, _):
        for seconds in (2, 3):
            (tmp_path / os.fsdecode(b"n\xff")).write_text(str(seconds))
            file.write_text(f"drain: {seconds}s\n")
            await heard.until(drains(seconds))


async def test_what_is_written_bit_by_bit_is_read_once_it_stands_still(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("drain: 1s\n")
    heard: list[float] = []
    done = asyncio.Event()

    def told(result: LoadResult, _: str) -> None:
        assert result.settings is not None
        heard.append(result.settings.drain)
        done.set()

    watcher = Watcher(str(file), {}, load(str(file), {}), told)
    task = asyncio.create_task(watcher.run())
    stands = watch._stamps
    bits = iter(("dr", "drain", "drain: 2", "drain: 2s\n"))

    def written_at_each_look(*looked: Any) -> Any:
        if (bit := next(bits, None)) is not None:
            file.write_text(bit)
        return stands(*looked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "_stamps", written_at_each_look)
        patch.setattr(watch, "LOOK", 60.0)
        patch.setattr(watch, "GLANCE", 0.001)
        async with asyncio.timeout(PATIENCE):
            await done.wait()
    task.cancel()
    assert heard == [2]


async def test_a_config_maps_swap_twice(tmp_path: Path) -> None:
    """As the kubelet does it: redrive.yaml -> ..data/redrive.yaml, ..data -> a folder, replaced by rename."""

    def version(name: str, text: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "redrive.yaml").write_text(text)
        link = tmp_path / "..data_tmp"
        link.symlink_to(name)
        os.replace(link, tmp_path / "..data")

    version("..2026_1", "drain: 1s\n")
    file = tmp_path / "redrive.yaml"
    file.symlink_to("..data/redrive.yaml")
    async with watched(file) as (heard, _):
        version("..2026_2", "drain: 2s\n")
        await heard.until(drains(2))
        version("..2026_3", "drain: 3s\n")
        await heard.until(drains(3))


async def test_a_link_to_a_file_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "real.yaml").write_text("drain: 1s\n")
    folder = tmp_path / "here"
    folder.mkdir()
    file = folder / "redrive.yaml"
    file.symlink_to(elsewhere / "real.yaml")
    async with watched(file) as (heard, _):
        (elsewhere / "real.yaml").write_text("drain: 2s\n")
        await heard.until(drains(2))


async def test_included_files_come_and_go(tmp_path: Path) -> None:
    folder = tmp_path / "upstreams"
    folder.mkdir()
    file = tmp_path / "redrive.yaml"
    file.write_text("include: [upstreams/*.yaml]\n")

    def names(*expected: str) -> Callable[[LoadResult], bool]:
        return lambda result: (
            result.settings is not None and [each.name for each in result.settings.router.upstreams] == [*expected]
        )

    async with watched(file) as (heard, _):
        (folder / "a.yaml").write_text("upstreams: {a: {url: http://a}}\n")
        await heard.until(names("a"))
        (folder / "b.yaml").write_text("upstreams: {b: {hosts: b, service_config: sc.json}}\n")
        await heard.until(lambda result: "sc.json" in str(result.problems))
        (folder / "sc.json").write_text("{}")
        await heard.until(names("a", "b"))
        (folder / "a.yaml").unlink()
        await heard.until(names("b"))


async def test_an_emptied_file_is_refused_only_when_it_stays_so(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("drain: 1s\n")
    heard = Heard()
    watcher = Watcher(str(file), {}, load(str(file), {}), heard)
    file.write_text("")
    await watcher.look()
    file.write_text("")  # it is being written still
    await watcher.look()
    assert heard.silent
    await watcher.look()
    result, _ = await heard.until(lambda _: True)
    assert result.settings is None
    assert [str(error) for error in result.errors] == [
        f"{file}:1:1: is empty now: what it said before stays in force; to take that back, write `upstreams: {{}}`, "
        "or a comment"
    ]
    file.write_text("# Nothing any more.\n")
    await watcher.look()
    assert drains(25)((await heard.until(lambda _: True))[0])


async def test_a_change_between_the_load_and_the_watch_is_seen(tmp_path: Path) -> None:
    """A start reads the file long before it serves, and is watched only then."""
    file, included = tmp_path / "redrive.yaml", tmp_path / "a.yaml"
    file.write_text("drain: 1s\ninclude: [a.yaml]\n")
    included.write_text("upstreams: {}\n")
    loaded, heard = load(str(file), {}), Heard()
    unchanged = Watcher(str(file), {}, loaded, heard)
    await unchanged.look()
    assert heard.silent
    file.write_text("drain: 20s\ninclude: [a.yaml]\n")
    await Watcher(str(file), {}, loaded, heard).look()
    assert drains(20)((await heard.until(lambda _: True))[0])
    loaded = load(str(file), {})
    included.write_text("upstreams: {a: {url: 'http://a.example'}}\n")
    await Watcher(str(file), {}, loaded, heard).look()
    result, _ = await heard.until(lambda _: True)
    assert result.settings is not None
    assert [upstream.name for upstream in result.settings.router.upstreams] == ["a"]


#: A dialect pack of one's own, without codes.
PACK = "name: acme\nsource: [https://acme.example/errors]\n"


@pytest.mark.parametrize(
    ("name", "before", "after", "upstream"),
    [
        ("key", "one", "two", "headers: {request: {set: {x-key: '${file:key}'}}}"),
        (
            "acme.yaml",
            PACK,
            f"{PACK}codes: {{status: 400, json: [code], throttling: [SLOW]}}\n",
            "dialects: [acme.yaml]",
        ),
        (
            "grpc.json",
            '{"methodConfig": []}',
            '{"methodConfig": [], "retryThrottling": null}',
            "service_config: grpc.json",
        ),
    ],
    ids=["value", "dialect pack", "service config"],
)
async def test_so_is_a_change_of_a_file_that_the_configuration_refers_to(
    name: str, before: str, after: str, upstream: str, tmp_path: Path
) -> None:
    file, other = tmp_path / "redrive.yaml", tmp_path / name
    file.write_text(f"upstreams:\n  a:\n    url: http://a.example\n    {upstream}\n")
    other.write_text(before)
    loaded, heard = load(str(file), {}), Heard()
    assert loaded.settings is not None, loaded.errors
    unchanged = Watcher(str(file), {}, loaded, heard)
    await unchanged.look()
    assert heard.silent
    other.write_text(after)
    await Watcher(str(file), {}, loaded, heard).look()
    assert not heard.silent
    result, _ = await heard.until(lambda _: True)
    assert result.settings is not None, result.errors
    await unchanged.look()
    assert not heard.silent


async def test_an_included_file_that_was_emptied_takes_no_upstream_away(tmp_path: Path) -> None:
    """A copy that finds the disk full leaves a file without text."""
    file, included = tmp_path / "redrive.yaml", tmp_path / "a.yaml"
    file.write_text("include: [a.yaml]\n")
    included.write_text("upstreams: {a: {url: 'http://a.example'}}\n")
    heard = Heard()
    watcher = Watcher(str(file), {}, load(str(file), {}), heard)
    included.write_text(" \n")
    refused = await watcher.reload("asked")
    assert refused.settings is None
    assert str(refused.errors[0]).startswith(f"{included}:1:1: is empty now")
    included.write_text("upstreams: {}\n")
    assert (await watcher.reload("asked")).settings is not None


async def test_a_file_that_never_had_text_is_no_emptied_one(tmp_path: Path) -> None:
    file, included = tmp_path / "redrive.yaml", tmp_path / "a.yaml"
    file.write_text("")
    assert (await Watcher(str(file), {}, load(str(file), {}), Heard()).reload("asked")).settings is not None
    file.write_text("include: ['[a-b].yaml']\n")
    included.write_text("")
    watcher = Watcher(str(file), {}, load(str(file), {}), Heard())
    assert (await watcher.reload("asked")).settings is not None
    (tmp_path / "b.yaml").write_text("")  # as an editor makes it, before it writes
    assert (await watcher.reload("asked")).settings is not None


async def test_a_file_that_is_empty_between_two_renames_is_not_read_while_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, new = tmp_path / "redrive.yaml", tmp_path / "new.yaml"
    file.write_text("drain: 1s\n")
    heard = Heard()
    watcher = Watcher(file.name, {}, load(file.name, {}), heard)
    new.write_text("")
    new.rename(file)
    await watcher.look()
    new.write_text("drain: 2s\n")
    new.rename(file)
    await watcher.look()
    assert drains(2)((await heard.until(lambda _: True))[0])
    assert heard.silent
    file.write_text("")
    assert (await watcher.reload("asked")).settings is None


async def test_a_pipe_can_be_read_once_and_its_configuration_stays(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"upstreams: {a: {url: 'http://a.example'}}\n")
    os.close(writer)
    try:
        file = f"/dev/fd/{reader}"
        loaded = load(file, {})
        assert loaded.settings is not None
        result = await Watcher(file, {}, loaded, Heard()).reload("SIGHUP")
    finally:
        os.close(reader)
    assert result.settings is None
    assert "is empty now" in str(result.errors[0])


@pytest.mark.parametrize("kept", ["", "drain: 1s\n"])
async def test_what_changes_while_it_is_read_is_read_again(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written in place, it is empty for a moment, in which it is read; then it says what it did, or something else."""
    file = tmp_path / "redrive.yaml"
    file.write_text("drain: 1s\n")
    reads = 0

    def read_in_between(name: str, environ: Mapping[str, str], edit: object = None) -> LoadResult:
        nonlocal reads
        reads += 1
        if reads == 1:
            file.write_text("")
            result = load(name, environ)
            file.write_text(kept or "drain: 3s\n")
            return result
        return load(name, environ)

    async with watched(file) as (heard, watcher):
        monkeypatch.setattr(watch, "load", read_in_between)
        await watcher.reload("asked")
        result, _ = await heard.until(lambda _: True)
        assert drains(1 if kept else 3)(result)
        assert reads == 2


async def test_the_same_content_is_no_change(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("drain: 1s\n")
    async with watched(file) as (heard, _):
        file.write_text("drain: 1s\n")
        os.utime(file, (1, 1))
        file.write_text("drain: 2s\n")
        await heard.until(drains(2))
        assert heard.silent


async def test_reload_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("drain: 1s\n")
    heard = Heard()
    watcher = Watcher(str(file), {}, load(str(file), {}), heard)
    results = await asyncio.gather(watcher.reload("SIGHUP"), watcher.reload("POST /reload"))
    assert [drains(1)(result) for result in results] == [True, True]
    assert [(await heard.until(drains(1)))[1] for _ in range(2)] == ["SIGHUP", "POST /reload"]


async def test_the_defaults_have_nothing_to_watch() -> None:
    heard = Heard()
    watcher = Watcher(None, {}, load(None, {}), heard)
    await asyncio.wait_for(watcher.run(), PATIENCE)
    result = await watcher.reload("SIGHUP")
    assert result.settings is not None


async def test_the_loop_goes_on_while_a_large_file_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("upstreams:\n" + "".join(f"  u{n}: {{url: 'http://u{n}.test'}}\n" for n in range(300)))
    watcher = Watcher(str(file), {}, load(None, {}), Heard())
    turns = 0
    loading = asyncio.create_task(watcher.reload("SIGHUP"))
    while not loading.done():
        turns += 1
        await asyncio.wait([loading], timeout=0.001)
    assert turns > 3
    assert len((await loading).problems) == 1


def test_a_log_that_grows_beside_the_file_is_no_change_of_it(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "redrive.yaml"
    real.write_text("drain: 1s\n")
    link.symlink_to(real)
    stood = watch._stamps([str(link)], [])
    (tmp_path / "access.log").write_text("a call\n")
    assert watch._stamps([str(link)], []) == stood
    real.write_text("drain: 20s\n")
    assert watch._stamps([str(link)], []) != stood


async def test_the_thread_sleeps_while_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system reports changes of files, of folders, of what links lead to, and of files that the reload names."""
    monkeypatch.setattr(watch, "REST", 3600.0)  # only reports wake it
    elsewhere, config = tmp_path / "elsewhere", tmp_path / "etc"
    elsewhere.mkdir()
    config.mkdir()
    real, file = elsewhere / "real.yaml", config / "redrive.yaml"
    real.write_text("drain: 1s")
    file.symlink_to(real)
    rests: list[float] = []
    rest = watch._Poll.rest

    def noted(poll: Any, pause: float) -> bool:
        rests.append(pause)
        return rest(poll, pause)

    async def sleeps() -> None:
        async with asyncio.timeout(PATIENCE):
            while not rests or rests[-1] != 3600.0:  # noqa: ASYNC110 - a thread sets no event here
                await asyncio.sleep(0.01)

    monkeypatch.setattr(watch._Poll, "rest", noted)
    async with watched(file) as (heard, _):
        await sleeps()
        real.write_text("drain: 2s")
        await heard.until(drains(2))
        await sleeps()
        (elsewhere / "new.yaml").write_text("drain: 3s")
        (elsewhere / "new.yaml").rename(real)
        await heard.until(drains(3))
        await sleeps()
        (config / "more").mkdir()
        real.write_text("drain: 4s\ninclude: [more/*.yaml]")
        await heard.until(drains(4))
        await sleeps()
        (config / "more" / "a.yaml").write_text("upstreams: {a: {url: http://a.test}}")
        await heard.until(lambda result: result.settings is not None and "a" in result.settings.router.by_name)
        await sleeps()
        file.unlink()
        file.write_text("drain: 5s")
        await heard.until(drains(5))
        await sleeps()
        seen = len(rests)
    assert seen < 80


@pytest.mark.parametrize("why", ["a loop without watches", "a folder that is not there", "a wildcard in a folder"])
async def test_what_the_system_does_not_report_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(watch, "REST", 3600.0)
    if why == "a loop without watches":
        monkeypatch.setattr(file_events, "places_of", lambda *_: None)
    more = {"a folder that is not there": "include: [no/*.yaml]", "a wildcard in a folder": "include: ['*/*.yaml']"}
    file = tmp_path / "redrive.yaml"
    text = f"{more.get(why, '')}\n"
    file.write_text(f"drain: 1s\n{text}")
    async with watched(file) as (heard, _):
        file.write_text(f"drain: 2s\n{text}")
        await heard.until(drains(2))
        if more.get(why):
            (tmp_path / "no").mkdir()
            (tmp_path / "no" / "a.yaml").write_text("upstreams: {a: {url: http://a.test}}")
            await heard.until(lambda result: result.settings is not None and "a" in result.settings.router.by_name)


async def test_a_change_that_shows_in_nothing_but_the_content_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that keeps size, times and inode, and whose changes the system does not report."""
    monkeypatch.setattr(watch, "stamp_of", lambda _: (1, 1, 1, 1))
    monkeypatch.setattr(file_events.FileEvents, "watch", lambda *_: True)
    monkeypatch.setattr(watch, "REST", 0.001)
    monkeypatch.setattr(watch, "SELDOM", 0.01)
    file = tmp_path / "redrive.yaml"
    file.write_text("drain: 1s\n")
    async with watched(file) as (heard, _):
        for seconds in (2, 3):
            file.write_text(f"drain: {seconds}s\n")
            await heard.until(drains(seconds))


async def test_contents_are_seldom_read_while_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    looks = asyncio.Event()
    loop, stamps, pieces = asyncio.get_running_loop(), watch._stamps, watch.pieces
    seen = 0

    def looked(*names: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == 30:
            loop.call_soon_threadsafe(looks.set)
        return stamps(*names)

    file = tmp_path / "redrive.yaml"
    file.write_text("drain: 1s\n")
    monkeypatch.setattr(watch, "REST", 0.001)
    async with watched(file) as (heard, _):
        monkeypatch.setattr(watch, "pieces", lambda name: reads.append(name) or pieces(name))
        monkeypatch.setattr(watch, "_stamps", looked)
        async with asyncio.timeout(PATIENCE):
            await looks.wait()
        assert heard.silent
    assert len(reads) < 4
