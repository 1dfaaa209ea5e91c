"""The bytes of a file that holds one value of the configuration, such as a mounted secret."""

from __future__ import annotations

from pathlib import Path

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
