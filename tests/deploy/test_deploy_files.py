"""The files of deploy/ and docker-compose.yml: what their schemas say, and that they fit redrive and one another."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from proxy.config.load import load
from proxy.lab.flaky import PORT
from proxy.observe.exposition import Gauges, _Collector
from proxy.observe.metrics import Metrics
from proxy.retry.facts import Outcome

ROOT = Path(__file__).parent.parent.parent
SCHEMAS = Path(__file__).parent / "schemas"
KUBERNETES = ROOT / "deploy/kubernetes"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
MANIFESTS = [
    (file.relative_to(KUBERNETES), document)
    for file in sorted(KUBERNETES.rglob("*.yaml"))
    if file.name != "patch.yaml"  # which is a part of one
    for document in yaml.safe_load_all(file.read_text())
    if "apiVersion" in document
]


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


# -- compose ----------------------------------------------------------------------------------------------------------


def test_compose_is_valid() -> None:
    assert [error.message for error in Draft202012Validator(schema("compose")).iter_errors(COMPOSE)] == []


def test_the_compose_schema_finds_mistakes() -> None:
    wrong = {"services": {"a": {"image": "a", "read_onyl": True}}}
    assert not Draft202012Validator(schema("compose")).is_valid(wrong)


def test_what_compose_mounts_and_waits_for_is_there() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        for volume in service.get("volumes", ()):
            assert (ROOT / volume.split(":")[0]).exists(), volume
        assert set(service.get("depends_on", ())) <= set(services)
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{port} is published to the network"


def test_the_compose_app_has_nothing_but_a_proxy() -> None:
    assert COMPOSE["services"]["app"]["environment"] == {"HTTP_PROXY": "http://redrive:8080"}
    assert "redrive" not in re.sub('""".*?"""', "", (ROOT / "deploy/compose/app.py").read_text(), flags=re.DOTALL)


def target(service: str, folder: str) -> str:
    """Where a service finds a folder of ours."""
    pairs = [volume.split(":") for volume in COMPOSE["services"][service]["volumes"]]
    return str(next(inside for ours, inside, _ in pairs if ours == folder))


def test_the_services_of_compose_find_one_another() -> None:
    services = COMPOSE["services"]
    settings = load(str(ROOT / "deploy/compose/redrive.yaml"), {"REDRIVE_ADMIN_TOKEN": "x"}).settings
    assert settings is not None and settings.probe is not None and settings.admin is not None
    assert target("redrive", "./deploy/compose") == "/etc/redrive", "where the image looks"
    ports = {port.rpartition(":")[2] for port in services["redrive"]["ports"]}
    assert ports == {str(settings.listen[0].port), str(settings.admin.listen.port)}
    assert services["app"]["environment"]["HTTP_PROXY"] == f"http://redrive:{settings.listen[0].port}"
    assert set(re.findall(r"//(\w+):", (ROOT / "deploy/compose/redrive.yaml").read_text())) <= set(services)
    assert f"http://flaky:{PORT}/" in (ROOT / "deploy/compose/app.py").read_text()
    assert f"http://flaky:{PORT}" in (ROOT / "deploy/compose/redrive.yaml").read_text()
    for name, service in services.items():
        for other, how in dict(service["depends_on"]).items() if isinstance(service.get("depends_on"), dict) else ():
            healthy = "healthcheck" in services[other] or "build" in services[other]  # our image has one
            assert how["condition"] != "service_healthy" or healthy, f"{name} would wait for {other} for ever"


def test_prometheus_and_grafana_find_what_they_are_given() -> None:
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    settings = load(str(ROOT / "deploy/compose/redrive.yaml"), {"REDRIVE_ADMIN_TOKEN": "x"}).settings
    assert settings is not None and settings.probe is not None
    assert target("prometheus", "./deploy/prometheus") == "/etc/prometheus", "its command's own --config.file"
    assert all((ROOT / "deploy/prometheus" / file).exists() for file in scraped["rule_files"])
    assert scraped["scrape_configs"][0]["static_configs"] == [{"targets": [f"redrive:{settings.probe.port}"]}]
    grafana = ROOT / "deploy/grafana"
    assert target("grafana", "./deploy/grafana/provisioning") == "/etc/grafana/provisioning"
    (source,) = yaml.safe_load((grafana / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    published = COMPOSE["services"]["prometheus"]["ports"][0]
    assert source["url"] == f"http://prometheus:{published.rpartition(':')[2]}"
    (provider,) = yaml.safe_load((grafana / "provisioning/dashboards/redrive.yaml").read_text())["providers"]
    folder = target("grafana", "./deploy/grafana/dashboards")
    assert provider["options"]["path"] == folder
    home = COMPOSE["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (grafana / "dashboards" / home.removeprefix(folder + "/")).exists()
    dashboard = (grafana / "dashboards/redrive.json").read_text()
    used = {json.dumps(each["datasource"]) for each in walk(json.loads(dashboard)) if "datasource" in each}
    assert used == {json.dumps({"type": source["type"], "uid": source["uid"]})}


def walk(node: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a document."""
    if isinstance(node, dict):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from walk(each)


@pytest.mark.parametrize("file", ["compose/redrive.yaml", "image/redrive.yaml", "kubernetes/base/redrive.yaml"])
def test_configurations_are_fine(file: str) -> None:
    result = load(str(ROOT / "deploy" / file), {"REDRIVE_ADMIN_TOKEN": "x"})
    assert result.settings is not None and not result.errors, result.problems
    assert not [problem for problem in result.problems if problem.severity == "warning"]
    assert result.settings.probe is not None and result.settings.probe.port == 9902


# -- Kubernetes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("file", "manifest"), MANIFESTS, ids=lambda each: str(each) if isinstance(each, Path) else "")
def test_manifests_are_valid(file: Path, manifest: dict[str, Any]) -> None:
    if manifest["kind"] in ("Kustomization", "Component"):
        validator = Draft202012Validator(schema("kustomization"))
    else:
        found = schema("kubernetes")
        validator = Draft202012Validator({**found["kinds"][manifest["kind"]], "$defs": found["$defs"]})
    assert [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(manifest)] == []


def test_the_kubernetes_schema_finds_mistakes() -> None:
    found = schema("kubernetes")
    deployment = next(manifest for _, manifest in MANIFESTS if manifest["kind"] == "Deployment")
    wrong = json.loads(json.dumps(deployment))
    wrong["spec"]["template"]["spec"]["initContainers"][0]["redinessProbe"] = {}
    validator = Draft202012Validator({**found["kinds"]["Deployment"], "$defs": found["$defs"]})
    assert validator.is_valid(deployment) and not validator.is_valid(wrong)


def test_the_overlay_in_the_comment_is_one() -> None:
    comment = re.findall(r"^#   (.*)$", (KUBERNETES / "base/kustomization.yaml").read_text(), re.MULTILINE)
    base = yaml.safe_load((KUBERNETES / "base/kustomization.yaml").read_text())
    overlay = {**{key: base[key] for key in ("apiVersion", "kind")}, **yaml.safe_load("\n".join(comment))}
    assert [error.message for error in Draft202012Validator(schema("kustomization")).iter_errors(overlay)] == []
    assert overlay["generatorOptions"] == base["generatorOptions"]
    assert overlay["configMapGenerator"][0]["name"] == base["configMapGenerator"][0]["name"]
    image = (KUBERNETES / "base/deployment.yaml").read_text()
    assert f"image: {overlay['images'][0]['name']}:" in image


def test_kustomizations_name_files_that_exist() -> None:
    for file in KUBERNETES.rglob("kustomization.yaml"):
        made = yaml.safe_load(file.read_text())
        named = [*made.get("resources", ()), *(patch["path"] for patch in made.get("patches", ()) if "path" in patch)]
        named += [each for generator in made.get("configMapGenerator", ()) for each in generator["files"]]
        for each in named:
            assert (file.parent / each).exists(), each


def test_the_sidecar_is_native_and_probed_where_its_configuration_listens() -> None:
    (made,) = [manifest for _, manifest in MANIFESTS if manifest["kind"] == "Deployment"]
    pod = made["spec"]["template"]["spec"]
    sidecar = next(container for container in pod["initContainers"] if container["name"] == "redrive")
    settings = load(str(KUBERNETES / "base/redrive.yaml"), {}).settings
    assert settings is not None and settings.probe is not None
    assert sidecar["restartPolicy"] == "Always"
    assert {port["name"]: port["containerPort"] for port in sidecar["ports"]} == {"probe": settings.probe.port}
    paths = {name: sidecar[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in paths.values()} == {"probe"}
    assert [probe["path"] for probe in paths.values()] == ["/readyz", "/livez", "/readyz"]
    secure = sidecar["securityContext"]
    assert secure["readOnlyRootFilesystem"] and not secure["allowPrivilegeEscalation"]
    assert secure["capabilities"] == {"drop": ["ALL"]}
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None and (secure["runAsUser"], secure["runAsGroup"]) == (int(user[1]), int(user[2]))
    mounts = [mount for mount in sidecar["volumeMounts"] if mount["mountPath"] == "/etc/redrive"]
    assert mounts and "subPath" not in mounts[0], "a subPath is never updated"
    assert pod["terminationGracePeriodSeconds"] > settings.drain


# -- Prometheus and Grafana -------------------------------------------------------------------------------------------

LABEL_VALUES = {
    "outcome": {outcome.value for outcome in Outcome},
    "why": {outcome.value for outcome in Outcome},
    "result": {
        "success", "connect_failure", "refused_stream", "reset", "attempt_timeout", "transient", "throttling",
        "timeout", "fatal", "unnamed", "cancelled", "aborted",
    },
}  # fmt: skip


def expressions() -> list[str]:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/redrive.json").read_text())
    found += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [*found, *(each["expr"] for each in dashboard["annotations"]["list"])]


def exposed() -> dict[str, set[str]]:
    """Series' names, with their labels."""
    found: dict[str, set[str]] = {"up": {"job"}}
    for family in _Collector(Metrics(), Gauges(redis_up=True)).collect():
        labels = set(getattr(family, "_labelnames", ()))
        suffixes = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}[family.type]
        for suffix in suffixes:
            found[family.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


def test_alerts_and_dashboard_ask_for_what_is_exposed() -> None:
    known = exposed()
    for expression in expressions():
        for name, matchers in re.findall(r"\b(redrive_\w+|up)\b(?:\{([^}]*)\})?", expression):
            assert name in known, f"{name} is not exposed: {expression}"
            for label, values in re.findall(r'(\w+)\s*=~?\s*"([^"]*)"', matchers):
                assert label in known[name], f"{name} has no label {label}"
                possible = {"success", "failure"} if "reloads" in name else LABEL_VALUES.get(label)
                assert possible is None or set(values.split("|")) <= possible, f"{label} is never {values}"


def test_every_alert_says_how_bad_it_is_and_what_it_means() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    played = (ROOT / "deploy/prometheus/alerts_test.yml").read_text()
    runbooks = (ROOT / "docs/guides/troubleshooting.md").read_text()
    pages = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["documentation"].rpartition("/")[0]
    for rule in rules:
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page == f"{pages}/guides/troubleshooting.md"
        assert f"\n### {rule['alert']}\n" in runbooks and anchor == rule["alert"].lower()
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]
        assert f'alertname="{rule["alert"]}"' in played, "not played"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    played = ["promtool", "test", "rules", "deploy/prometheus/alerts_test.yml"]
    done = subprocess.run(played, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schemas_are_schemas() -> None:
    for name in ("compose", "kustomization"):
        Draft202012Validator.check_schema(schema(name))
