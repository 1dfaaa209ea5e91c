"""The content of a file that holds one value of the configuration, such as a secret that Kubernetes mounts."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from proxy.config.addresses import credential

#: Contract, section 3: the longest content of such a file, in bytes.
MOST = 64 * 1024


def read_value_file(file: str) -> bytes:
    """The content of a file. Raises ValueError, whose text does not repeat the content, if it can't be read or is too
    large.
    """
    try:
        with Path(file).open("rb") as source:
            content = source.read(MOST + 1)
    except IsADirectoryError:
        raise ValueError(f"{file} is a folder: name the file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{file} can't be read ({reason})") from None
    if len(content) > MOST:
        raise ValueError(f"{file} is larger than 64 KiB, too large for a value")
    return content


def read_key_file(file: str) -> str:
    """The credential in a file, without one line break at its end. Raises ValueError, whose text does not repeat the
    content, if the file can't be read, is empty, or has a character that no credential can have. A pipe is not opened:
    whoever read it again, after a 401, would wait for somebody to write.
    """
    with suppress(OSError):  # a folder that may not be entered, say: reading tells why
        if Path(file).is_fifo():
            raise ValueError(f"{file} is a pipe, and a key is read again when it changes: name a file")
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
