"""docs/reference/problems.md has a section for every `type` that the proxy's own answers can have."""

from __future__ import annotations

import json
import re
import tomllib
from http import HTTPStatus
from pathlib import Path

import pytest

from proxy.forward.own_answers import PROBLEMS, PROXY_FAILED, OwnAnswer
from proxy.retry.call.reasons import own_answer as answer_for
from proxy.retry.facts import Fault, FaultKind, Outcome, Progress

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "problems.md"
SECTIONS: dict[str, str] = dict(re.findall(r"(?ms)^## `(\w+)`\n\n(.*?)(?=^## |\Z)", PAGE.read_text()))
#: A call that succeeded has no problem.
FAILED = [outcome for outcome in Outcome if outcome is not Outcome.SUCCESS]


def type_of(status: int, outcome: Outcome) -> str:
    _, lines, body = OwnAnswer(status, "A title", "a detail", outcome).render()
    assert b"application/problem+json" in lines
    found = json.loads(body)
    assert list(found) == ["type", "status", "title", "detail", "upstream", "attempts", "outcome", "message"]
    return str(found["type"])


@pytest.mark.parametrize("outcome", FAILED)
def test_every_type_is_a_section(outcome: Outcome) -> None:
    for status in HTTPStatus:
        page, _, anchor = type_of(status, outcome).partition("#")
        assert page == PROBLEMS
        assert anchor == (PROXY_FAILED if status == 500 else outcome.value)
        assert anchor in SECTIONS


def test_every_section_is_a_type() -> None:
    assert sorted(SECTIONS) == sorted([*(each.value for each in FAILED), PROXY_FAILED])


def test_every_section_has_meaning_cause_and_remedy() -> None:
    for name, text in SECTIONS.items():
        words = " ".join(text.split()).lower()
        assert all(f"**{part}" in words for part in ("meaning", "cause", "remedy")), name


@pytest.mark.parametrize("outcome", FAILED)
def test_a_section_names_status_and_title(outcome: Outcome) -> None:
    """Where a call ends with an answer of the machine's; `bad_request` names all its statuses in a table."""
    try:
        answer = answer_for(outcome, None)
    except KeyError:  # without an answer, only a fault ends a call so
        faults = [answer_for(outcome, Fault(kind, Progress.UNKNOWN)) for kind in FaultKind]
        assert {answer.status for answer in faults} == {502, 504}
        return
    text = SECTIONS[outcome.value]
    assert str(answer.status) in text
    if outcome is not Outcome.BAD_REQUEST:
        assert answer.title in text


def test_the_address_is_the_projects_own() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["documentation"].rpartition("/")[0] + "/reference/problems.md" == PROBLEMS
    assert (ROOT / PROBLEMS.partition("/blob/main/")[2]) == PAGE
