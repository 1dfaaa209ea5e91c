"""Every test runs on the loop that serves traffic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import uvloop
from hypothesis import settings

# How long an example takes says more of the machine than of the code: a busy one would fail what is right.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}
