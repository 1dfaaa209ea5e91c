"""The keys of a terminal, one at a time, as they are pressed."""

from __future__ import annotations

import os
import re
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

#: The bytes that terminals send for keys that are no characters (xterm's and the Linux console's).
_NAMED = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down", "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end",
    "\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x15": "erase",
}  # fmt: skip
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)


@contextmanager
def single_keys() -> Iterator[int | None]:
    """Let standard input deliver each key at once, without an echo, until the context ends. Gives the descriptor; None
    if standard input is no terminal. Ctrl-C and Ctrl-Z stay signals.
    """
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, AttributeError, termios.error):
        yield None
        return
    tty.setcbreak(descriptor, termios.TCSADRAIN)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def read_keys(descriptor: int) -> list[str] | None:
    """The keys that were pressed: characters, and names such as "up". None if the terminal is gone."""
    try:
        pressed = os.read(descriptor, 1024)
    except OSError:
        return None
    if not pressed:
        return None
    found = _KEY.findall(pressed.decode("utf-8", "ignore"))
    return [_NAMED.get(key, key) for key in found if key in _NAMED or key.isprintable()]
