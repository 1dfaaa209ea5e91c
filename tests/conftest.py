"""Every test runs on the loop that serves traffic."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop
from hypothesis import settings

# How long an example takes says more of the machine than of the code: a busy one would fail what is right.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

#: Compiled modules, where the environment wants none beside their sources. Hundreds of tests start the command, and
#: each start would compile a few hundred modules anew.
BYTECODE = Path(__file__).parent.parent / ".pytest_cache" / "bytecode"
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(BYTECODE)
    sys.dont_write_bytecode = False


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep nothing of modules that tests wrote into folders of their own."""
    if not hasattr(session.config, "workerinput"):
        shutil.rmtree(BYTECODE / Path(tempfile.gettempdir()).relative_to("/"), ignore_errors=True)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}
