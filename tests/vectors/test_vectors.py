"""What peers' own suites expect, played in-process: every policy test, and every gRPC service config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.policy_suites import failures, suite_of

from proxy.config.load import load_tree

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.yaml"))
CONFIGS = [
    case
    for name in ("service_configs.json", "peers_service_configs.json")
    for case in json.loads((HERE / name).read_text())
]


def test_the_vectors_are_here() -> None:
    assert len(FILES) >= 50
    assert len(CONFIGS) >= 90


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_policy_vectors(path: Path) -> None:
    suite = suite_of(path)
    assert suite.script.tests
    assert failures(suite) == []


@pytest.mark.parametrize("case", CONFIGS, ids=lambda case: case["name"])
def test_service_configs(case: dict[str, Any], tmp_path: Path) -> None:
    config: dict[str, Any] = {"upstreams": {"sc": {"hosts": ["sc.test"]}}}
    environ = case.get("env") or {}
    if "service_config" in case:
        (tmp_path / "service_config.json").write_text(json.dumps(case["service_config"], indent=1))
        config["upstreams"]["sc"]["service_config"] = "service_config.json"
    file = tmp_path / "redrive.yaml"
    result = load_tree(config, str(file), environ)
    lines = "\n".join(map(str, result.errors))
    if case["expect"] == "accepted":
        assert result.settings is not None, lines
    else:
        assert result.settings is None
        assert lines
        for field in case.get("fields") or []:
            assert field.partition("[")[0].rpartition(".")[2] in lines or field.rpartition(".")[2] in lines
    if "probe" in case:
        probe(config, case["probe"], tmp_path, environ)


def probe(config: dict[str, Any], case: dict[str, Any], tmp_path: Path, environ: dict[str, str]) -> None:
    """An accepted config, asked what it does."""
    script = case.get("script") or [case["grpc_status"]]
    after = {"after": case["after"]} if "after" in case else {}
    expect = {key: case[key] for key in ("attempts", "tokens") if key in case}
    expect |= {key: [f"{seconds:g}s" for seconds in case[key]] for key in ("starts", "delays") if key in case}
    policy = {"timeouts": {"attempt": "1h", "total": "10h"}, "classify": {"unsafe_methods": "always"}}
    config["upstreams"]["sc"].update(policy)
    call = {
        "request": {
            "method": "POST",
            "url": f"http://sc.test{case['path']}",
            "headers": {"content-type": "application/grpc"},
        },
        "attempts": [{"status": 200, "grpc_status": status, **after} for status in script],
        "expect": expect,
    }
    file = tmp_path / "probe.yaml"
    file.write_text(yaml.safe_dump({"config": config, "random": 0.5, "tests": [{"name": "probe", "calls": [call]}]}))
    assert failures(suite_of(file, environ)) == []
