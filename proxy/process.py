"""The end of a process: on a signal, whatever still hangs; and its background tasks.

A signal is not lost, however early it comes, and nothing that the process has started keeps it alive: each step of the
end has its time, and the last one waits for no thread.

Theory. A thread in a system call can't be ended: a look-up whose name servers are silent, a file on a disk that is
gone. The interpreter joins the threads of its executors when it ends (`concurrent.futures`), asyncio waits for its
default executor before that, and libuv waits for the look-ups under way when the loop is closed and when the library is
released. So a process that has closed everything would stay as long as any of them, through any number of signals. It
leaves by `_exit` instead (`proxy.early_signals`), which ends threads where they are. As process 1 of a container it
would not even receive a SIGTERM that comes before there is a handler: the kernel gives that process no default action
(pid_namespaces(7)).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Given = TypeVar("Given")
Failed = Callable[[str, BaseException], None]


class WorkerFailedError(Exception):
    """Raised if a worker ended before any worker was ready; the text is one line for people."""


async def within(
    seconds: float, work: Coroutine[Any, Any, Given], otherwise: Given, notify: Callable[..., None]
) -> Given:
    """Run `work`, a step of the process's end, and return its result. If it takes longer than `seconds`, abandon it,
    report that through `notify`, and return `otherwise`.
    """
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if done:
        return task.result()
    task.cancel()
    why = f"{getattr(work, '__qualname__', work)} took more than {seconds:g} s, and was abandoned"
    notify("failed", [why], error=why)
    return otherwise


def failure_notifier(notify: Callable[..., None]) -> Failed:
    """Return a function that reports through `notify` that background work has failed: what it was, and its error."""
    return lambda what, error: notify("failed", [repr(error)], what=what, error=repr(error))


class EndOfProcess:
    """The signals that end a process, as two events: `wanted` is set by the first, `at_once` by the second.
    `is_signalled`: a signal has come, which is not the only way to set `wanted`.
    """

    def __init__(self) -> None:
        self.wanted, self.at_once = asyncio.Event(), asyncio.Event()
        self.is_signalled = False

    def signal(self) -> None:
        """Note a signal: after the first, calls may finish; the second ends the process at once."""
        if self.is_signalled:
            self.at_once.set()
        self.is_signalled = True
        self.wanted.set()


class Background:
    """Tasks in the background, kept until they are done, because a loop keeps only weak references to its tasks.
    `failed` is called with the text and the error of each task that failed.
    """

    def __init__(self, failed: Failed | None = None) -> None:
        self._failed = failed
        self.tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine as a task in the background; an error in it is reported, and ends neither the process nor
        other tasks.
        """
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Cancel all tasks that are under way."""
        for task in self.tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if self._failed is not None and not task.cancelled() and (error := task.exception()) is not None:
            self._failed(str(task.get_coro()), error)
