"""Files that are there whole or not at all.

Law: a name is given to a finished file in one step; a secret is never readable to others, not for a moment, whatever
the umask.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a file that is not there yet. Raises FileExistsError, and changes nothing, where somebody has the name."""
    draft = _draft(path, data, mode)
    try:
        os.link(draft, path)  # unlike a rename, this never takes a name from another file
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise
        draft.rename(path)
        return
    finally:
        draft.unlink(missing_ok=True)


def replace(path: Path, data: bytes, mode: int) -> None:
    """Write a file, in place of the one that may be there."""
    draft = _draft(path, data, mode)
    try:
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def _draft(path: Path, data: bytes, mode: int) -> Path:
    """A new file beside `path`, on the disk when this returns."""
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink()
        raise
    return draft
