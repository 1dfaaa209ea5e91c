"""The memory that a container allows, and the limits of ours that have to fit it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy import resources
from proxy.config.load import load_tree
from proxy.config.settings import Settings
from proxy.resources import fitted, memory

MIB = 1 << 20


def group(root: Path, place: str, name: str, limit: str) -> None:
    folder = root / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{limit}\n")


def settings(**keys: object) -> Settings:
    found = load_tree(keys, "test", {}).settings
    assert found is not None
    return found


def test_the_least_limit_of_the_groups_around_counts(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/system.slice/redrive.service\n")
    assert memory(tmp_path / "cg", own) is None
    group(tmp_path / "cg", "system.slice/redrive.service", "memory.max", "max")
    assert memory(tmp_path / "cg", own) is None
    group(tmp_path / "cg", "system.slice", "memory.max", str(300 * MIB))
    assert memory(tmp_path / "cg", own) == 300 * MIB
    group(tmp_path / "cg", "system.slice/redrive.service", "memory.max", str(100 * MIB))
    assert memory(tmp_path / "cg", own) == 100 * MIB


def test_in_a_container_the_top_is_its_own(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/kubepods/of/the/host\n")
    group(tmp_path / "cg", "", "memory.max", str(64 * MIB))
    assert memory(tmp_path / "cg", own) == 64 * MIB


@pytest.mark.parametrize(("limit", "found"), [(str(64 * MIB), 64 * MIB), ("9223372036854771712", None)])
def test_version_1(tmp_path: Path, limit: str, found: int | None) -> None:
    own = tmp_path / "own"
    own.write_text("5:cpu,cpuacct:/x\n4:memory:/docker/abc\n")
    group(tmp_path / "cg", "memory/docker/abc", "memory.limit_in_bytes", limit)
    assert memory(tmp_path / "cg", own) == found


def test_without_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert memory(tmp_path, tmp_path / "none") is None


def test_what_fits_stays_as_it_is() -> None:
    asked = settings()
    assert fitted(asked, None, 40 * MIB) is asked
    assert fitted(asked, 4096 * MIB, 40 * MIB) is asked


def test_limits_are_lowered_to_what_processes_leave_free() -> None:
    asked = settings(limits={"header_bytes": "64KiB"})
    found = fitted(asked, 64 * MIB, 40 * MIB)
    assert found.buffers.total == 12 * MIB
    assert found.buffers.per_request == asked.buffers.per_request
    assert found.limits.connections == 12 * MIB // (64 << 10)
    two = fitted(settings(workers=2), 200 * MIB, 40 * MIB)  # and their parent
    assert two.buffers.total == 40 * MIB
    least = fitted(asked, 64 * MIB, 100 * MIB)
    assert least.buffers.total == 2 * MIB
    assert least.limits.connections == 32


@pytest.mark.parametrize(("allowed", "workers"), [(None, 8), (64, 1), (80, 1), (119, 1), (120, 2), (200, 4), (1024, 8)])
def test_auto_starts_what_the_memory_has_room_for(
    monkeypatch: pytest.MonkeyPatch, allowed: int | None, workers: int
) -> None:
    monkeypatch.setattr(resources, "memory", lambda: None if allowed is None else allowed * MIB)
    monkeypatch.setattr(resources, "_quota", lambda _: 1 << 20)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert resources.processes(None) == workers
    assert resources.processes(3) == 3


@pytest.mark.parametrize(("workers", "allowed", "is_reported"), [(1, 20, False), (2, 89, True), (2, 90, False)])
def test_more_workers_than_the_memory_has_room_for_are_reported(workers: int, allowed: int, is_reported: bool) -> None:
    asked = settings(workers=workers)
    line = resources.too_little_memory(asked, allowed * MIB, 30 * MIB)
    assert bool(line) == is_reported
    assert not is_reported or line.startswith(f"{allowed} MiB of memory are too little for 2 workers and their parent")
    assert resources.too_little_memory(asked, None, 30 * MIB) == ""
