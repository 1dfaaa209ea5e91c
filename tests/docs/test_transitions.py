"""docs/reference/transitions.md says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_the_transition_table_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    import transitions

    assert transitions.PAGE.read_text() == transitions.page(), "make docs"
    assert transitions.PICTURE.read_text() == transitions.picture(), "make docs"
