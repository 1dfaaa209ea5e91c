"""The settings of the upgrade guide give back what policy tests printed before weather was looked at.

`behaviour_before/policy_tests.json` has the results of `tests/policy` at commit cde58e8, the last one without limits
and outages, with `pushback: {cooldown: off}`: for each file and test, by a hash of the test and of all that its file
says beside tests, a list for each call. A test that has been changed since is not compared; two files of which all have
been are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.lab.policy_tests import run_files

FOLDER = Path(__file__).parent.parent / "policy"
GUIDE = Path(__file__).parent.parent.parent / "docs/guides/upgrading.md"
BEFORE = json.loads((Path(__file__).parent / "behaviour_before/policy_tests.json").read_text())
#: The members of a result that are compared, in the order of the lists.
RESULT = ("attempts", "delays", "starts", "status", "outcome", "tokens", "elapsed")


def read(file: Path) -> dict[str, Any]:
    """The file with all scalars as the text that they are written as."""
    found = yaml.load(file.read_text(), Loader=yaml.BaseLoader)
    assert isinstance(found, dict)
    return found


def hash_of(document: dict[str, Any], test: dict[str, Any]) -> str:
    rest = {key: value for key, value in document.items() if key != "tests"}
    return hashlib.sha256(json.dumps([rest, test], sort_keys=True).encode()).hexdigest()[:16]


def with_nulls(value: Any) -> Any:
    """The document as it is dumped: the text `null` is written without quotes."""
    if isinstance(value, dict):
        return {key: with_nulls(each) for key, each in value.items()}
    if isinstance(value, list):
        return [with_nulls(each) for each in value]
    return None if value == "null" else value


def with_the_guides_keys(document: dict[str, Any]) -> str:
    """The document, with the guide's keys among the defaults; a key that the document sets itself stays."""
    written = re.search(r"```yaml\n(defaults:\n(?:  .*\n)+?)```", GUIDE.read_text())
    assert written is not None
    found = with_nulls(document)
    defaults = found["config"].setdefault("defaults", {})
    for key, value in yaml.load(written[1], Loader=yaml.BaseLoader)["defaults"].items():
        both = {**value, **defaults.get(key, {})} if isinstance(value, dict) else defaults.get(key, value)
        defaults[key] = both
    return yaml.safe_dump(found, sort_keys=False)


@pytest.mark.parametrize("name", sorted(BEFORE))
def test_the_guides_settings_give_back_every_result(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, file = read(FOLDER / name), tmp_path / name
    file.write_text(with_the_guides_keys(document))
    run_files([str(file)], as_json_array=True, environ={})
    results = iter(json.loads(capsys.readouterr().out))
    compared = 0
    for test in document["tests"]:
        played = [[result[member] for member in RESULT] for result in (next(results) for _ in test["calls"])]
        before = BEFORE[name].get(hash_of(document, test))
        if before is not None:
            assert played == before, test["name"]
            compared += 1
    assert compared >= 0.8 * len(BEFORE[name])
