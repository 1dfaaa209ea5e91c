"""The content of files that have a credential each, as Kubernetes mounts secrets."""

from __future__ import annotations

from proxy.config.addresses import credential
from proxy.config.value_files import read_value_file


def read_key_file(file: str) -> str:
    """The credential in a file, without one line break at its end. Raises ValueError, whose text does not repeat the
    content, if the file can't be read, is empty, or has a character that no credential can have.
    """
    text = read_value_file(file).decode("latin-1").removesuffix("\n").removesuffix("\r")
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
