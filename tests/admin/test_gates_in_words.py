"""The dashboard names gates in the words of the log, of `top` and of `explain`."""

from __future__ import annotations

import re
from pathlib import Path

import proxy
from proxy.retry.call.gates import GATES, SLOW_START
from proxy.top.calls import DECISIONS


def test_the_dashboard_has_the_same_words() -> None:
    script = (Path(proxy.__file__).parent / "admin/static/words.js").read_text()
    found = re.search(r"export const GATES = \{\n(.*?)\n\};", script, re.DOTALL)
    assert found is not None
    assert dict(re.findall(r'^  (\w+): "([^"]+)",$', found[1], re.MULTILINE)) == GATES
    assert SLOW_START.replace(GATES["cooldown"], "${GATES.cooldown}") in script


def test_decisions_are_said_in_the_words_of_redrive_why() -> None:
    script = (Path(proxy.__file__).parent / "admin/static/words.js").read_text()
    found = re.search(r"export const DECISIONS = \{\n(.*?)\n\};", script, re.DOTALL)
    assert found
    assert dict(re.findall(r'^  "?([\w ]+)"?: "([^"]+)",$', found[1], re.MULTILINE)) == DECISIONS
