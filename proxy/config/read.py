"""Files read from disk, with every way that can fail told in one line."""

from __future__ import annotations

from pathlib import Path

from proxy.config.problems import Mark, Problems

#: A configuration beyond this is a mistake (a log, an image), and reading it would stall the process.
LARGEST = 64 * 1024 * 1024


def read_text(file: str, problems: Problems, *, named_at: Mark | None = None, path: str = "") -> str | None:
    """A file's text, or None where it cannot be read, which is told at `named_at` (where another file names it)."""
    at = named_at if named_at is not None and named_at.line else Mark(file, 1, 1)
    lead = "" if at.file == file else f"{file}: "
    try:
        data = read_start(file)
        if len(data) > LARGEST:
            problems.add(at, path, f"{lead}larger than {LARGEST // 1024 // 1024} MiB; this is no configuration")
            return None
    except IsADirectoryError:
        problems.add(at, path, f"{lead}this is a directory, not a file")
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problems.add(at, path, f"{lead}cannot be read: {reason[:1].lower()}{reason[1:]}")
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        kind = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else f"byte 0x{data[error.start]:02x}"
        problems.add(Mark(file, line, column), "", f"this is not UTF-8 ({kind})")
        return None


def read_start(file: str) -> bytes:
    """A file's bytes, no more than one above LARGEST. Its size is not asked for: a device has none, and no end either.
    Raises OSError.
    """
    with Path(file).open("rb") as source:
        return source.read(LARGEST + 1)


def is_file(name: str) -> bool:
    """Whether there is a file of this name; a name that no file system would take names none."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False
