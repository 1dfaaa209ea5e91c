"""HTTPS calls of apps in containers, intercepted: deploy/compose/https.yml, deploy/kubernetes/https.

What they do is played by `make image-test`; here they are what their schemas say, and fit redrive and one another.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from proxy.app_env import BUNDLE_NAMES, CA_NAME
from proxy.cli import main
from proxy.config.load import load
from proxy.server.intercept import intercepts

ROOT = Path(__file__).parent.parent.parent
SCHEMAS = Path(__file__).parent / "schemas"
KUBERNETES = ROOT / "deploy/kubernetes/https"
COMPOSE = yaml.safe_load((ROOT / "deploy/compose/https.yml").read_text())
USUAL = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
POD = yaml.safe_load((KUBERNETES / "patch.yaml").read_text())["spec"]["template"]["spec"]
BASE = yaml.safe_load((KUBERNETES / "../base/deployment.yaml").read_text())["spec"]["template"]["spec"]
#: The files that `redrive ca export --to` writes.
WRITTEN = {"cert.pem", "bundle.pem", "truststore.p12"}


def environment(of: str) -> dict[str, str]:
    """The app's variables."""
    if of == "compose":
        return {**USUAL["services"]["app"]["environment"], **COMPOSE["services"]["app"]["environment"]}
    (app,), (plain,) = POD["containers"], BASE["containers"]
    return {each["name"]: each["value"] for each in (*plain["env"], *app["env"])}


@pytest.mark.parametrize("file", ["deploy/compose/https/redrive.yaml", "deploy/kubernetes/https/redrive.yaml"])
def test_configurations_intercept_and_lack_nothing_but_the_ca(file: str) -> None:
    result = load(str(ROOT / file), {"REDRIVE_ADMIN_TOKEN": "x"})
    assert result.settings is not None, result.problems
    assert intercepts(result.settings)
    warnings = [each.message for each in result.problems if each.severity == "warning"]
    assert warnings == [f"needs the local CA, {result.settings.ca.cert}: redrive ca init makes it"]


@pytest.mark.parametrize("of", ["compose", "kubernetes"])
def test_the_app_is_told_of_the_proxy_and_of_files_that_are_written(of: str) -> None:
    found = environment(of)
    assert set(BUNDLE_NAMES) | {CA_NAME, "HTTPS_PROXY", "NODE_USE_ENV_PROXY"} <= set(found)
    assert {found[name] for name in BUNDLE_NAMES} == {"/etc/redrive-trust/bundle.pem"}
    assert found[CA_NAME] == "/etc/redrive-trust/cert.pem"


def test_compose_is_valid_over_the_usual_file() -> None:
    validator = Draft202012Validator(json.loads((SCHEMAS / "compose.json").read_text()))
    assert [error.message for error in validator.iter_errors(COMPOSE)] == []
    services = {**USUAL["services"], **COMPOSE["services"]}
    for service in COMPOSE["services"].values():
        assert set(service.get("depends_on", ())) <= set(services)
        for source in (volume.split(":")[0] for volume in service.get("volumes", ())):
            assert source in COMPOSE["volumes"] or (ROOT / source).exists(), source


def test_compose_keeps_the_key_from_apps() -> None:
    services = COMPOSE["services"]
    having = {name for name, each in services.items() if any(v.startswith("ca:") for v in each.get("volumes", ()))}
    assert having == {"ca", "trust", "redrive"}
    assert services["app"]["volumes"] == ["trust:/etc/redrive-trust:ro"]
    settings = load(str(ROOT / "deploy/compose/https/redrive.yaml"), {"REDRIVE_ADMIN_TOKEN": "x"}).settings
    assert settings is not None
    (upstream,) = yaml.safe_load((ROOT / "deploy/compose/https/redrive.yaml").read_text())["upstreams"].values()
    assert upstream["hosts"] == [services["ca"]["entrypoint"][-1]]
    assert services["app"]["environment"]["URL"].startswith(f"https://{services['ca']['entrypoint'][-1]}/")
    for path in (settings.ca.cert, settings.ca.key):
        assert path.startswith(services["redrive"]["volumes"][1].split(":")[1])
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "--chown=65532:65532 /opt/state /var/lib/redrive" in dockerfile, "who owns a new volume"


def test_the_pod_keeps_the_key_from_apps() -> None:
    volumes = {each["name"]: each for each in POD["volumes"]}
    holding = {name for name, each in volumes.items() if "secret" in each and "items" not in each["secret"]}
    assert holding == {"redrive-ca"}
    assert [item["key"] for item in volumes["redrive-ca-cert"]["secret"]["items"]] == ["tls.crt"]
    trust, redrive = POD["initContainers"]
    (app,) = POD["containers"]
    mounted = {each["name"]: {mount["name"] for mount in each["volumeMounts"]} for each in (trust, redrive, app)}
    assert mounted == {
        "redrive-trust": {"redrive-ca-cert", "redrive-trust"},
        "redrive": {"redrive-ca"},
        "app": {"redrive-trust"},
    }
    assert all(mount["readOnly"] for each in (redrive, app) for mount in each["volumeMounts"])
    sidecar = BASE["initContainers"][0]
    assert [trust[key] for key in ("image", "resources", "securityContext")] == [
        sidecar[key] for key in ("image", "resources", "securityContext")
    ]


# -- the guide ---------------------------------------------------------------------------------------------------------

GUIDE = (ROOT / "docs/guides/https-in-containers.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_guide_shows_what_the_files_have() -> None:
    configuration, part, values = map(yaml.safe_load, blocks("yaml"))
    assert configuration == yaml.safe_load((KUBERNETES / "redrive.yaml").read_text())
    (app,) = POD["containers"]
    assert all(each in app["env"] for each in part["env"])
    assert part["volumeMounts"] == app["volumeMounts"]
    known = yaml.safe_load((ROOT / "deploy/helm/redrive/values.yaml").read_text())
    assert values["intercept"].keys() <= known["intercept"].keys()
    assert values["config"]["upstreams"]["github"]["connect"] == "intercept"


#: What the guide has readers type, and where it is tried.
TYPED = {
    "redrive ca init --for api.github.com": "test_kubectl_makes_a_secret_of_what_redrive_makes",
    "mkdir -p ca": "a shell's",
    'docker run --rm --user "$(id -u)" -v "$PWD/ca:/etc/redrive/ca" --entrypoint redrive redrive ca init '
    "--for api.github.com": "make image-test, with chroot",
    "kubectl create secret tls redrive-ca --cert=ca/cert.pem --key=ca/key.pem": "as the first",
    "rm -r ca": "a shell's",
    "kubectl apply -k deploy/kubernetes/https": "test_the_overlay_is_valid; make image-test plays its pod",
    "kubectl exec deploy/sample -c app -- curl -sS -i https://api.github.com/zen": "make image-test, with chroot",
    "kubectl logs deploy/sample -c redrive --tail=5": "kubectl's",
    "docker compose -f docker-compose.yml -f deploy/compose/https.yml up --build": "make image-test, with chroot",
    "docker compose logs -f app": "docker's",
}


def test_what_the_guide_has_readers_type_is_tried() -> None:
    assert [line for block in blocks("sh") for line in block.splitlines()] == list(TYPED)


# -- with kubectl ------------------------------------------------------------------------------------------------------


def kubectl(*arguments: str) -> str:
    return subprocess.run(["kubectl", *arguments], capture_output=True, text=True, check=True).stdout


KUBECTL = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@KUBECTL
def test_the_overlay_is_valid() -> None:
    found = json.loads((SCHEMAS / "kubernetes.json").read_text())
    objects = {each["kind"]: each for each in yaml.safe_load_all(kubectl("kustomize", str(KUBERNETES)))}
    for kind, each in objects.items():
        validator = Draft202012Validator({**found["kinds"][kind], "$defs": found["$defs"]})
        assert [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(each)] == []
    assert "connect: intercept" in objects["ConfigMap"]["data"]["redrive.yaml"]
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["initContainers"]] == ["redrive-trust", "redrive"]
    sidecar = pod["initContainers"][1]
    assert {each["mountPath"] for each in sidecar["volumeMounts"]} == {"/etc/redrive", "/etc/redrive-ca"}
    assert sidecar["restartPolicy"] == "Always"


@KUBECTL
def test_kubectl_makes_a_secret_of_what_redrive_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "redrive.yaml").write_text("upstreams: {}")
    assert main(["ca", "init", "--for", "api.github.com", "-c", str(file)]) == 0
    files = f"--cert={tmp_path}/ca/cert.pem", f"--key={tmp_path}/ca/key.pem"
    made: dict[str, Any] = json.loads(
        kubectl("create", "secret", "tls", "redrive-ca", *files, "--dry-run=client", "-o", "json")
    )
    assert made["type"] == "kubernetes.io/tls"
    assert set(made["data"]) == {"tls.crt", "tls.key"}
