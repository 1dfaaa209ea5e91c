"""docs/reference/transitions.md says what the code does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_transition_table_is_current() -> None:
    spec = importlib.util.spec_from_file_location("transitions", ROOT / "tools" / "transitions.py")
    assert spec is not None and spec.loader is not None
    transitions = importlib.util.module_from_spec(spec)
    sys.modules["transitions"] = transitions  # dataclasses look their module up
    spec.loader.exec_module(transitions)
    assert transitions.PAGE.read_text() == transitions.page(), "make docs"
