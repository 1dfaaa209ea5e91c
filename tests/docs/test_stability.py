"""docs/reference/stability.md lists every metric, field, event, path and verb that there is, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

from proxy.cli import _parser
from proxy.observe.exposition import Gauges, _Collector
from proxy.observe.metrics import Metrics
from proxy.observe.weather_log import EVENTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/stability.md").read_text()
LEVELS = ("stable", "experimental", "internal", "the field is", "the form is", "the dashboard: internal")


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables under a heading, without their heads."""
    text = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[-1] != "level"]


def listed(heading: str, beginning: str = "") -> list[str]:
    """What stands as code in the first column."""
    return [name for row in rows(heading) for name in re.findall(r"`([^`]+)`", row[0]) if name.startswith(beginning)]


def test_every_row_has_a_level() -> None:
    for heading in ("Metrics", "Log", "Admin port", "Command line", "Environment", "On the wire", "Python"):
        assert rows(heading)
        for row in rows(heading):
            assert row[-1].startswith(LEVELS), row


def test_every_metric_with_its_labels() -> None:
    families = _Collector(Metrics(), Gauges(redis_up=True)).collect()
    exposed = {
        family.name + ("_total" if family.type == "counter" else ""): list(getattr(family, "_labelnames", ()))
        for family in families
    }
    named = {row[0].strip("`"): re.findall(r"`(\w+)`", row[1]) for row in rows("Metrics")}
    assert named == exposed
    watching = (ROOT / "docs/reference/observing.md").read_text()
    assert [name for name in exposed if f"`{name}`" not in watching] == []


def test_every_field_of_a_call_and_every_event() -> None:
    source = (ROOT / "proxy/observe/call_json.py").read_text()
    fields = set(re.findall(r'"(\w+)":', source))
    texts = [path.read_text() for path in (ROOT / "proxy").rglob("*.py") if path.parts[-2] != "lab"]
    noted = re.compile(r'notify(?:_of_stream)?\(\s*"(\w+)"|"event":"(\w+)"')
    events = {name for text in texts for names in noted.findall(text) for name in names}
    events |= set(EVENTS)  # of weather: their notices are named by what they report
    found = set(listed("Log")) - {"history"}
    assert found == (fields | events) - {"", "history"}


def test_every_path_of_the_admin_port() -> None:
    described = json.loads((ROOT / "proxy/admin/openapi.json").read_text())["paths"]
    assert sorted(listed("Admin port", "/")) == sorted(described)


def test_every_verb() -> None:
    choices = next(action.choices for action in _parser()._actions if action.choices)
    assert choices is not None
    assert {name for row in rows("Command line")[:2] for name in re.findall(r"`(\w+)`", row[0])} == set(choices)


def test_every_variable_of_the_environment() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "proxy").rglob("*.py"))
    read = set(re.findall(r'environ(?:\.get\(|\[|\w*, )"((?:REDRIVE|AWS)_[A-Z_]+)"', sources))
    assert read <= set(listed("Environment"))
