"""What the system reports of a folder: only names that lead to watched files count."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from proxy.config.file_events import FileEvents, places_of


class Reports(FileEvents):
    """Reports of a folder. `came`: there was one that counts."""

    def __init__(self) -> None:
        self.came = asyncio.Event()
        super().__init__(self.came.set)

    async def after(self, what: object) -> None:
        async with asyncio.timeout(20):
            await self.came.wait()


async def test_a_file_that_nothing_includes_wakes_nobody(tmp_path: Path) -> None:
    """A log in the folder of the configuration grows with each flush."""
    file, log = tmp_path / "redrive.yaml", tmp_path / "access.log"
    (tmp_path / "more").mkdir()
    file.write_text("")
    of_file, of_log = Reports(), Reports()
    assert of_file.watch([str(file)], [str(tmp_path / "more" / "*.yaml")]) and of_log.watch([str(log)], [])
    await of_log.after(log.write_text("a call\n"))  # both are told of it at one time
    assert not of_file.came.is_set()
    of_log.came.clear()
    assert of_log.watch([str(log)], [])
    (tmp_path / "other.log").write_text("")
    (tmp_path / "more" / "b.txt").write_text("")
    await of_log.after(log.write_text("another\n"))
    assert not of_file.came.is_set()
    await of_file.after((tmp_path / "more" / "a.yaml").write_text(""))
    of_file.close()
    of_log.close()


@pytest.mark.parametrize("how", ["written", "renamed", "removed", "swapped", "its folder removed"])
async def test_whatever_happens_to_the_file_is_reported(tmp_path: Path, how: str) -> None:
    """`swapped`: as Kubernetes does, whose link `..data` leads to a folder of all files."""
    for number in "12":
        (tmp_path / number).mkdir()
        (tmp_path / number / "redrive.yaml").write_text(number)
    (tmp_path / "..data").symlink_to("1")
    file = tmp_path / "redrive.yaml"
    file.symlink_to("..data/redrive.yaml")
    reports = Reports()
    assert reports.watch([str(file)], [])
    if how == "written":
        file.write_text("changed")
    elif how == "renamed":
        (tmp_path / "new").write_text("")
        (tmp_path / "new").rename(file)
    elif how == "removed":
        (tmp_path / "1" / "redrive.yaml").unlink()
    elif how == "swapped":
        (tmp_path / "..data_tmp").symlink_to("2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    else:
        (tmp_path / "1" / "redrive.yaml").unlink()
        os.rmdir(tmp_path / "1")
    await reports.after(how)
    reports.close()


def test_where_the_folders_are_not_known_nothing_is_watched(tmp_path: Path) -> None:
    assert places_of([], [str(tmp_path / "*" / "*.yaml")]) is None
    places = places_of([str(tmp_path / "a[1].yaml")], [str(tmp_path / "*.yaml")])
    assert places is not None and {"a[[]1].yaml", "*.yaml"} <= places[str(tmp_path)]
