"""The content of files that have a credential each, as Kubernetes mounts secrets."""

from __future__ import annotations

from pathlib import Path

from proxy.config.addresses import credential

#: The longest credential that is read, in bytes.
MOST = 64 * 1024


def read_key_file(file: str) -> str:
    """The credential in a file, without one line break at its end. Raises ValueError, whose text does not repeat the
    content, if the file can't be read, is empty, or has what no credential has.
    """
    try:
        with Path(file).open("rb") as source:
            content = source.read(MOST + 1)
    except OSError as error:
        raise ValueError(f"{file} can't be read ({error.strerror})") from None
    if len(content) > MOST:
        raise ValueError(f"{file} is larger than 64 KiB")
    text = content.decode("latin-1").removesuffix("\n").removesuffix("\r")
    try:
        return credential(text)
    except ValueError as why:
        raise ValueError(f"{file} {why}") from None


def current_key(file: str) -> str | None:
    """The credential in a file; None if it has none at the moment."""
    try:
        return read_key_file(file)
    except ValueError:
        return None
