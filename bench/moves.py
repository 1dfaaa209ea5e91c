"""How far a call walks through the house: `python bench/moves.py [--tree]`, in Python alone.

A GET that succeeds at once, and a GET whose first attempt gets a 503, over connections in memory (`in_memory.py`), with
log and metrics on. For each: the calls of redrive's functions, the functions and modules that they enter, and the moves,
which are calls from a function of one module, or room, to a function of another one. A count of moves says what a
count of instructions does not: how often a reader who follows the call turns to another file. `--tree` prints the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path
from types import FrameType

os.environ["REDRIVE_PURE"] = "1"

import uvloop
from in_memory import FAILING, Stage

PROXY = Path(__file__).resolve().parent.parent / "proxy"
CONFIG = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nupstreams:\n  up:\n    url: http://127.0.0.1:9\n"
REQUEST = "GET /up/x HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"
#: Calls that succeed before those that are counted, so that nothing is met for the first time.
BEFORE = 500


class Walk:
    """The calls of redrive's functions, as `sys.setprofile` reports them: (depth, module, function)."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str, str]] = []
        self.moves = self.moves_between_rooms = 0
        self._open: list[str] = []  # modules of the functions that have not returned

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or not path.is_relative_to(PROXY):
            return
        if event == "return":
            del self._open[-1:]
            return
        module = str(path.relative_to(PROXY))
        if self._open:
            caller = self._open[-1]
            self.moves += caller != module
            self.moves_between_rooms += caller.partition("/")[0] != module.partition("/")[0]
        self.calls.append((len(self._open), module, frame.f_code.co_qualname))
        self._open.append(module)

    def __str__(self) -> str:
        functions = {(module, name) for _, module, name in self.calls}
        modules = {module for module, _ in functions}
        return (
            f"{len(self.calls)} calls of {len(functions)} functions in {len(modules)} modules; "
            f"{self.moves} moves between modules, {self.moves_between_rooms} between rooms"
        )


async def main(config: str, log: int, *, tree: bool) -> None:
    """Count and print. `log`: the descriptor that the log goes to."""
    stage = Stage(config, {"small": [REQUEST], "fail": [REQUEST], FAILING: ["fail"]}, log)
    await stage.path.start()
    await stage.send("fail", 10)
    await stage.send("small", BEFORE)
    for name, row, answered in (("GET, 200", "small", 0), ("GET, 503 and 200", "fail", 9)):
        await asyncio.sleep(1)  # what was put off by the calls before: log lines, metrics
        stage.answered = answered  # the tenth fails
        walk = Walk()
        sys.setprofile(walk)
        await stage.send(row, 1)
        sys.setprofile(None)
        print(f"{name}: {walk}")
        if tree:
            print(*(f"{'  ' * depth}{module} {function}" for depth, module, function in walk.calls), sep="\n")
    await stage.path.close()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tree", action="store_true", help="print each call, indented")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("wb") as nowhere:
        written = Path(folder, "redrive.yaml")
        written.write_text(CONFIG)
        walking = main(str(written), nowhere.fileno(), tree=chosen.tree)
        asyncio.Runner(loop_factory=uvloop.new_event_loop).run(walking)
