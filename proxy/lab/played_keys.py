"""Keys in files that are rotated while calls of the lab are played (contract, section 16, "Key files").

A play reads no file again, and no key matters to it. A file's first version is the value that the configuration has
read, each later version a made-up text with its number.
"""

from __future__ import annotations

import re
from dataclasses import replace

from proxy.lab.clock import ALARM, Clock
from proxy.retry.policies.policy import Credentials, KeyFile

#: The seconds from a file's change until its value is in use without a 401, as in the proxy (docs/guides/key-files.md).
LOADED_AFTER = 1.0
#: The content of a file from its second version on.
_CONTENT = "version-{}-of-a-key-in-the-lab"
_VERSION = re.compile(re.escape(_CONTENT).replace(r"\{\}", "([0-9]+)").encode())


class PlayedKeys:
    """The key files of one play, and the credentials that are read from them: copies of the configuration's, so that no
    play leaves its values to the next.
    """

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}  # by path, of files that have changed
        self._loaded: dict[str, str] = {}  # by path, the contents that are in use
        self._copies: dict[int, tuple[Credentials, Credentials]] = {}  # by the original's identity: it and its copy

    def of(self, original: Credentials) -> Credentials:
        """The copy of the configuration's credentials for this play; the same object each time."""
        known = self._copies.get(id(original))
        if known is None:
            files = tuple(None if file is None else KeyFile(file.path, file.format) for file in original.files)
            known = self._copies[id(original)] = original, replace(original, files=files)
            for path, content in self._loaded.items():
                _take(known[1], path, content, 0.0)
        return known[1]

    def rotate(self, path: str, clock: Clock, version: int = 0) -> None:
        """Give a file this version now, the next one if none is named, but none that is earlier than the version it
        has. It is in use LOADED_AFTER seconds later, or once a 401 makes a call read the file.
        """
        known = self._versions.get(path, 1)
        self._versions[path] = max(known, version) if version else known + 1
        clock.at(clock.now + LOADED_AFTER, ALARM, self._load, path, clock)

    def _load(self, path: str, clock: Clock) -> None:
        content = self.read(path)
        assert content is not None  # it has changed
        self._loaded[path] = content
        for _, copy in self._copies.values():
            _take(copy, path, content, clock.now)

    def read(self, path: str) -> str | None:
        """The content of a file, as after a 401 (`Env.read_key_file`); None if it has not changed."""
        version = self._versions.get(path)
        return None if version is None else _CONTENT.format(version)


def _take(credentials: Credentials, path: str, content: str, now: float) -> None:
    """Use `content` for each of the credentials whose value is from the file at `path`."""
    for number, file in enumerate(credentials.files):
        if file is not None and file.path == path:
            credentials.renew(number, content, now)


def key_version(credentials: Credentials | None, number: int | None) -> int | None:
    """The version of the value that attempts carry now which get the credential with this number (from 0): 1 until its
    file has changed; None if the value is from no file.
    """
    if credentials is None or number is None or not credentials.files or credentials.files[number] is None:
        return None
    found = _VERSION.search(credentials.lines[number])
    return int(found[1]) if found else 1
