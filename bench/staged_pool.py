"""A pool that dials nothing, for a data path whose connections are in memory alone: the bench's and the fuzzer's."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from proxy import runtime
from proxy.transport.connection import Connection
from proxy.transport.pool import Pool


class Connect(Protocol):
    """Makes the connections to upstreams of a data path."""

    def __call__(self, origin: Any, *, tunnel: bool) -> Connection:
        """A connection to this origin. `tunnel`: its bytes are passed on unread."""


class StagedPool(Pool):
    """A pool that dials nothing: `connect` makes its connections."""

    def __init__(self, connect: Connect, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.connect = connect

    def begin_dial(self, origin: Any) -> bool:
        """Return False: no connection is opened past `open`."""
        return False

    async def open(
        self,
        origin: Any,
        *,
        within: float,
        idempotent: bool | None = None,
        not_on: Collection[object] = (),
        alone: bool = False,
        app: object = None,
    ) -> Connection:
        return self.connect(origin, tunnel=False)

    async def open_tunnel(self, origin: Any, *, within: float, app: object = None) -> Connection:
        return self.connect(origin, tunnel=True)


@contextmanager
def staged(connect: Connect) -> Iterator[None]:
    """Let the data paths that are made meanwhile have a pool whose connections `connect` makes."""
    real, runtime.Pool = runtime.Pool, partial(StagedPool, connect)  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        runtime.Pool = real  # type: ignore[misc]
