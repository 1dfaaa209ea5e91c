"""Rotations of keys in policy tests: when the file of a credential gets another value."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.config.problems import Mark, did_you_mean
from proxy.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Rotation:
    """A time at which a key file gets another value: the file of the credential with the number `key` (from 1) of an
    upstream. `upstream` is None for the only upstream that has key files. `mark`: where it is written.
    """

    mark: Mark
    at: float
    upstream: str | None
    key: int


def file_of(settings: Settings, rotation: Rotation) -> str:
    """The path of the key file that a rotation changes. Raises ValueError, in words for people, if there is no such
    file.
    """
    having = {
        each.name: each.policy.credentials.files
        for each in settings.router.upstreams
        if each.policy.credentials is not None and each.policy.credentials.files
    }
    name, known = rotation.upstream, settings.router.by_name
    if name is None and not having:
        raise ValueError("no upstream has a key in a file: write it as {file: PATH} in credentials.values")
    if name is None and len(having) > 1:
        raise ValueError(f"say which upstream's key it is (upstream: NAME): {', '.join(having)} have key files")
    name = name or next(iter(having))
    if name not in known:
        raise ValueError(f"there is no upstream {name}{did_you_mean(name, known)}")
    files = having.get(name, ())
    file = files[rotation.key - 1] if rotation.key <= len(files) else None
    if file is None:
        in_files = ", ".join(str(number) for number, each in enumerate(files, 1) if each is not None)
        others = f"only {in_files}" if in_files else "none of its keys is"
        raise ValueError(f"key {rotation.key} of {name} is not in a file ({others}): write it as {{file: PATH}}")
    return file.path
