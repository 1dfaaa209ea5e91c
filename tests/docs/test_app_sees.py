"""docs/reference/what-your-app-sees.md shows what the process does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


async def test_the_transcripts_are_current() -> None:
    spec = importlib.util.spec_from_file_location("app_sees", ROOT / "tools" / "app_sees.py")
    assert spec is not None and spec.loader is not None
    app_sees = importlib.util.module_from_spec(spec)
    sys.modules["app_sees"] = app_sees
    spec.loader.exec_module(app_sees)
    assert app_sees.PAGE.read_text() == app_sees.render(await app_sees.play()), "make docs"
