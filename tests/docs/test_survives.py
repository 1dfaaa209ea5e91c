"""docs/guides/what-survives-what.md shows what the process does, and half an answer passes for a whole one nowhere."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


async def test_the_table_is_current_and_no_half_answer_looks_whole() -> None:
    spec = importlib.util.spec_from_file_location("survives", ROOT / "tools" / "survives.py")
    assert spec is not None and spec.loader is not None
    survives = importlib.util.module_from_spec(spec)
    sys.modules["survives"] = survives
    spec.loader.exec_module(survives)
    found = await survives.play()
    assert survives.HALF not in found.values()
    assert survives.PAGE.read_text() == survives.render(found), "python tools/survives.py --write"
