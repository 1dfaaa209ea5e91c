"""The chart deploy/helm/redrive: its values, and, where helm is installed, what it renders from them.

helm is looked for on the path and where `make helm` puts it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator

from proxy import __version__
from proxy.app_env import BUNDLE_NAMES, CA_NAME, NO_PROXY, variables
from proxy.config.load import load
from proxy.server.intercept.ca import TRUST_STORE_PASSWORD

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "deploy/helm/redrive"
SAMPLE = ROOT / "deploy/helm/sample"
BASE = ROOT / "deploy/kubernetes/base"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
FOUND = shutil.which("helm") or ROOT / "build/helm/helm"
HELM = pytest.mark.skipif(not Path(FOUND).exists(), reason="helm is not installed (make helm)")

#: Values that together make every object, and use every branch.
SIDECAR = ["redrive.metrics.monitor.enabled=true", "redrive.metrics.rules.enabled=true",
           "redrive.dashboard.enabled=true"]  # fmt: skip
INTERCEPT = ["redrive.intercept.enabled=true", "redrive.intercept.java=true",
             "redrive.config.upstreams.github.connect=intercept",
             "redrive.env[0].name=SSL_CERT_FILE", "redrive.env[0].value=/etc/roots/all.pem",
             "redrive.extraVolumes[0].name=roots", "redrive.extraVolumes[0].configMap.name=roots",
             "redrive.extraVolumeMounts[0].name=roots", "redrive.extraVolumeMounts[0].mountPath=/etc/roots",
             ]  # fmt: skip
GATEWAY = ["mode=gateway", "metrics.monitor.enabled=true", "networkPolicy.enabled=true", "intercept.enabled=true",
           "admin.expose=true", "admin.tokenSecret.name=redrive-admin", "serviceAccount.create=true",
           "config.upstreams.github.url=https://api.github.com", "config.upstreams.github.connect=intercept",
           "gateway.podLabels.team=payments", "gateway.priorityClassName=high",
           "metrics.annotations=true", "commonLabels.owner=platform",
           "env[0].name=KEY", "env[0].value=x", "envFrom[0].secretRef.name=keys"]  # fmt: skip


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(FOUND), *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with its dependency in place, as `helm dependency update` makes it."""
    folder = tmp_path_factory.mktemp("chart") / "sample"
    shutil.copytree(SAMPLE, folder)
    shutil.copytree(CHART, folder / "charts/redrive")
    return folder


def rendered(chart: Path, *values: str) -> list[dict[str, Any]]:
    """The objects of a release `sample`, to do with what one likes."""
    return deepcopy(template(chart, *values))


@cache
def template(chart: Path, *values: str) -> list[dict[str, Any]]:
    sets = [part for value in values for part in ("--set", value)]
    done = helm("template", "sample", str(chart), *sets)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def only(objects: list[dict[str, Any]], kind: str, ending: str = "") -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(ending)]
    return found


def refusal(*values: str) -> str:
    """What the chart says against some values."""
    sets = [part for value in values for part in ("--set", value)]
    done = helm("template", "sample", str(CHART), *sets)
    assert done.returncode, "it was taken"
    return done.stderr


# -- without helm ------------------------------------------------------------------------------------------------------


def names(value: Any, path: str = "") -> Iterator[str]:
    """Every key of nested mappings, in full; what is below an empty one is the user's."""
    for key, below in value.items() if isinstance(value, dict) else ():
        yield f"{path}{key}"
        yield from names(below, f"{path}{key}.")


def test_the_values_are_what_the_schema_says() -> None:
    Draft7Validator.check_schema(SCHEMA)
    validator = Draft7Validator(SCHEMA)
    assert [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(VALUES)] == []

    def described(schema: dict[str, Any], path: str = "") -> Iterator[str]:
        for key, below in schema.get("properties", {}).items():
            yield f"{path}{key}"
            yield from described(below, f"{path}{key}.")

    free = ("resources.", "securityContext.", "dashboard.labels.")
    written = {name for name in names(VALUES) if not name.startswith(free)}
    assert written == set(described(SCHEMA)) - {"global", "enabled"}, "Helm's own, and a parent's condition"


@pytest.mark.parametrize(
    "wrong",
    [
        {"imagee": {}},
        {"mode": "daemon"},
        {"proxy": {"port": "8080"}},
        {"networkPolicy": {"enable": True}},
        {"image": {"digest": "latest"}},
        {"intercept": {"trustPath": "trust"}},
    ],
    ids=str,
)
def test_the_schema_finds_mistakes(wrong: dict[str, Any]) -> None:
    assert not Draft7Validator(SCHEMA).is_valid(wrong)


def test_templates_use_every_value_and_no_other() -> None:
    """A value that nothing reads, or one that is read and not there, is a mistake that helm does not tell of."""
    text = "\n".join(file.read_text() for file in sorted((CHART / "templates").rglob("*.*")))
    used = set(re.findall(r"\.Values\.([\w.]+)", text))
    for section, body in re.findall(r"with \.Values\.([\w.]+) }}\n(.*?)(?=\n\{\{- with \.Values|\Z)", text, re.DOTALL):
        used |= {f"{section}.{name}" for name in re.findall(r"(?<![\w$)])\.([a-z]\w*(?:\.\w+)*)", body)}
    known = set(names(VALUES))
    top = {name.partition(".")[0] for name in used}
    assert top <= set(VALUES)
    assert set(VALUES) <= top
    leaves = {name for name in known if not any(other.startswith(f"{name}.") for other in known)}
    free = ("resources", "securityContext", "dashboard.labels")
    unread = {name for name in leaves if not name.startswith(free) and name not in used}
    assert unread == set(), "nothing reads them"


def test_versions_are_redrive_s() -> None:
    for chart in (CHART, SAMPLE):
        made = yaml.safe_load((chart / "Chart.yaml").read_text())
        assert made["version"] == __version__
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__
    (dependency,) = yaml.safe_load((SAMPLE / "Chart.yaml").read_text())["dependencies"]
    assert (dependency["name"], dependency["version"]) == ("redrive", __version__)
    assert (SAMPLE / dependency["repository"].removeprefix("file://")).resolve() == CHART


def test_alerts_and_dashboard_are_the_files_themselves() -> None:
    """Links, which helm follows: there is one source."""
    assert (CHART / "files/alerts.yml").resolve() == ROOT / "deploy/prometheus/alerts.yml"
    assert (CHART / "files/dashboard.json").resolve() == ROOT / "deploy/grafana/dashboards/redrive.json"


def test_no_proxy_has_what_redrive_env_says() -> None:
    assert VALUES["noProxy"] == f"{NO_PROXY},.svc,.cluster.local"


# -- with helm ---------------------------------------------------------------------------------------------------------


@HELM
def test_lint_finds_nothing(sample: Path) -> None:
    done = helm("lint", "--strict", str(CHART), str(sample))
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout
    assert "ERROR" not in done.stdout


@HELM
def test_what_is_rendered_is_valid(sample: Path) -> None:
    found = json.loads((Path(__file__).parent / "schemas/kubernetes.json").read_text())
    kinds = set()
    for chart, values in ((CHART, []), (CHART, GATEWAY), (sample, []), (sample, SIDECAR), (sample, INTERCEPT)):
        for each in rendered(chart, *values):
            kinds.add(each["kind"])
            assert each["metadata"]["namespace" if each["kind"] != "Deployment" or chart == CHART else "name"]
            if each["apiVersion"].startswith("monitoring.coreos.com/"):
                continue  # another project's, which has no schema here
            validator = Draft202012Validator({**found["kinds"][each["kind"]], "$defs": found["$defs"]})
            assert [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(each)] == []
    assert kinds == {
        "ConfigMap", "Deployment", "NetworkPolicy", "Pod", "PodDisruptionBudget", "PodMonitor", "PrometheusRule",
        "Service", "ServiceAccount", "ServiceMonitor",
    }  # fmt: skip


@HELM
def test_the_sample_is_the_kustomize_base(sample: Path) -> None:
    """In all that a cluster acts on. Helm names objects by the release, and tells the app of both proxies and of more
    names that go past them.
    """
    chart = only(rendered(sample), "Deployment")["spec"]
    base = yaml.safe_load((BASE / "deployment.yaml").read_text())["spec"]
    assert chart["replicas"] == base["replicas"]
    pods = chart["template"]["spec"], base["template"]["spec"]
    assert chart["template"]["metadata"]["annotations"] == base["template"]["metadata"]["annotations"]
    for key in ("automountServiceAccountToken", "terminationGracePeriodSeconds", "securityContext"):
        assert pods[0][key] == pods[1][key], key
    (ours,), (theirs,) = pods[0]["initContainers"], pods[1]["initContainers"]
    assert ours.pop("imagePullPolicy") == "IfNotPresent"  # what a tag other than latest means in the base
    more = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert ours["securityContext"] == {**theirs.pop("securityContext"), **more}
    del ours["securityContext"]
    assert ours == theirs
    (app,), (plain,) = pods[0]["containers"], pods[1]["containers"]
    env = {each["name"]: each["value"] for each in app.pop("env")}
    assert {each["name"] for each in plain["env"]} <= set(env)
    assert env["http_proxy"] == next(each["value"] for each in plain.pop("env") if each["name"] == "http_proxy")
    assert app.pop("volumeMounts") is None
    assert app == plain
    assert pods[0]["volumes"][0]["configMap"]["name"] == "sample-redrive"
    base_policy = yaml.safe_load((BASE / "networkpolicy.yaml").read_text())["spec"]
    policy = only(rendered(sample), "NetworkPolicy")["spec"]
    labels = policy.pop("podSelector")["matchLabels"].items()
    assert labels <= chart["template"]["metadata"]["labels"].items(), "it selects the pods"
    del base_policy["podSelector"]
    assert policy == base_policy
    assert only(rendered(sample), "ServiceAccount")["automountServiceAccountToken"] is False
    assert pods[0]["serviceAccountName"] == only(rendered(sample), "ServiceAccount")["metadata"]["name"]


@HELM
@pytest.mark.parametrize(("which", "values"), [("sample", []), ("sample", INTERCEPT), ("redrive", GATEWAY)])
def test_the_configuration_is_one_and_listens_where_it_is_asked(
    sample: Path, which: str, values: list[str], tmp_path: Path
) -> None:
    objects = rendered(sample if which == "sample" else CHART, *values)
    maps = [each for each in objects if each["kind"] == "ConfigMap" and "redrive.yaml" in each["data"]]
    (file := tmp_path / "redrive.yaml").write_text(maps[0]["data"]["redrive.yaml"])
    result = load(str(file), {"REDRIVE_ADMIN_TOKEN": "x"})
    assert result.settings is not None, result.problems
    warnings = [each.message for each in result.problems if each.severity == "warning"]
    assert [each for each in warnings if not each.startswith("needs the local CA, /etc/redrive-ca")] == []
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    containers = [*pod.get("initContainers", ()), *pod["containers"]]
    redrive = next(each for each in containers if each["name"] == "redrive")
    (check,) = only(objects, "Pod")["spec"]["containers"]  # helm test
    assert check["command"] == ["redrive", "check", "-c", "/etc/redrive/redrive.yaml"]
    assert [check.get(key) for key in ("image", "env", "volumeMounts")] == [
        redrive.get(key) for key in ("image", "env", "volumeMounts")
    ]
    ports = {each["name"]: each["containerPort"] for each in redrive["ports"]}
    settings = result.settings
    assert settings.probe is not None and ports["probe"] == settings.probe.port
    assert pod["terminationGracePeriodSeconds"] > settings.drain
    if which == "sample":
        assert str(settings.listen[0]) == "127.0.0.1:8080", "nobody else can reach it"
    else:
        assert ports["proxy"] == settings.listen[0].port
        assert settings.admin is not None and ports["admin"] == settings.admin.listen.port
        assert f"{only(objects, 'Service')['metadata']['name']}.default.svc" in settings.admin.hosts
    if "github.connect=intercept" in "".join(values):
        secret = next(each["secret"] for each in pod["volumes"] if each["name"] == "redrive-ca")
        mounted = next(each for each in redrive["volumeMounts"] if each["name"] == "redrive-ca")
        assert secret == {"secretName": "redrive-ca"}
        assert mounted["readOnly"]
        assert settings.ca.cert == f"{mounted['mountPath']}/tls.crt"
        assert settings.ca.key == f"{mounted['mountPath']}/tls.key"


@HELM
def test_an_app_has_the_variables_of_redrive_env_and_never_the_key(sample: Path, tmp_path: Path) -> None:
    (file := tmp_path / "redrive.yaml").write_text("upstreams: {a: {url: 'https://a.example', connect: intercept}}")
    settings = load(str(file), {}).settings
    assert settings is not None
    pod = only(rendered(sample, *INTERCEPT), "Deployment")["spec"]["template"]["spec"]
    (app,) = pod["containers"]
    env = {each["name"]: each["value"] for each in app["env"]}
    assert set(env) == set(variables(settings, java=True))
    assert {env[name] for name in BUNDLE_NAMES} == {"/etc/redrive-trust/bundle.pem"}
    assert env[CA_NAME] == "/etc/redrive-trust/cert.pem"
    java = env["JAVA_TOOL_OPTIONS"].split()
    assert "-Dhttps.proxyHost=127.0.0.1" in java
    assert f"-Djavax.net.ssl.trustStorePassword={TRUST_STORE_PASSWORD.decode()}" in java
    assert "\n" not in env["JAVA_TOOL_OPTIONS"]
    bypassed = next(each for each in java if "nonProxyHosts" in each)
    assert {"*.svc", "[::1]", "169.254.169.254"} <= set(bypassed.partition("=")[2].split("|"))
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert [(each["name"], each["readOnly"]) for each in app["volumeMounts"]] == [("redrive-trust", True)]
    assert "emptyDir" in volumes["redrive-trust"]
    trust, redrive = pod["initContainers"]
    assert (trust["name"], redrive["name"]) == ("redrive-trust", "redrive"), "before the app, and ended"
    assert "restartPolicy" not in trust
    assert {each["name"] for each in trust["volumeMounts"]} == {"redrive-ca-cert", "redrive-trust", "roots"}
    assert trust["env"] == redrive["env"], "which roots there are"
    assert [each["key"] for each in volumes["redrive-ca-cert"]["secret"]["items"]] == ["tls.crt"]


@HELM
def test_the_chart_intercepts_as_the_kustomize_overlay_does(sample: Path) -> None:
    pod = only(rendered(sample, *INTERCEPT), "Deployment")["spec"]["template"]["spec"]
    theirs = yaml.safe_load((BASE / "../https/patch.yaml").read_text())["spec"]["template"]["spec"]
    assert [each for each in pod["volumes"] if each["name"] not in ("redrive", "roots")] == theirs["volumes"]
    pod["initContainers"][0]["volumeMounts"].pop()
    trust, plain = pod["initContainers"][0], theirs["initContainers"][0]
    for key in ("name", "image", "command", "resources", "volumeMounts"):
        assert trust[key] == plain[key], key
    assert theirs["initContainers"][1]["volumeMounts"][0] in pod["initContainers"][1]["volumeMounts"]
    (app,), (other,) = pod["containers"], theirs["containers"]
    assert app["volumeMounts"] == other["volumeMounts"]
    env = {each["name"]: each["value"] for each in app["env"]}
    assert {each["name"]: each["value"] for each in other["env"]}.items() <= env.items()


@HELM
def test_monitors_find_the_pods_and_name_the_job_of_the_alerts(sample: Path) -> None:
    objects = rendered(sample, *SIDECAR)
    template = only(objects, "Deployment")["spec"]["template"]
    monitor = only(objects, "PodMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    gateway = rendered(CHART, *GATEWAY)
    service = only(gateway, "Service")
    (other,) = only(gateway, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint == other
    assert endpoint["port"] in [each["name"] for each in service["spec"]["ports"]]
    selector = only(gateway, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= service["metadata"]["labels"].items()
    assert (
        service["spec"]["selector"].items()
        <= only(gateway, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    )
    (job,) = endpoint["relabelings"]
    assert f'{job["targetLabel"]}="{job["replacement"]}"' in (ROOT / "deploy/prometheus/alerts.yml").read_text()


@HELM
def test_rules_and_dashboard_are_those_of_the_files(sample: Path) -> None:
    objects = rendered(sample, *SIDECAR)
    alerts = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    assert only(objects, "PrometheusRule")["spec"] == alerts
    dashboard = only(objects, "ConfigMap", "-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    shown = json.loads(dashboard["data"]["redrive.json"])
    assert shown == json.loads((ROOT / "deploy/grafana/dashboards/redrive.json").read_text())
    fewer = rendered(CHART, "metrics.rules.enabled=true", "metrics.rules.disabled={RedriveAbsent}")
    (group,) = only(fewer, "PrometheusRule")["spec"]["groups"]
    left = [rule["alert"] for rule in alerts["groups"][0]["rules"] if rule["alert"] != "RedriveAbsent"]
    assert [rule["alert"] for rule in group["rules"]] == left


@HELM
@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["admin.expose=true"], "admin.expose needs admin.tokenSecret.name"),
        (["drainSeconds=60"], "terminationGracePeriodSeconds (60) must be longer than the drain (65s)"),
        (["config.listen=0.0.0.0:80"], "config.listen is written by the chart"),
        (["gateway.replica=3"], "dditional propert"),  # Helm 3 and 4 have words of their own for it
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_what_cannot_be_is_refused_with_a_reason(values: list[str], told: str) -> None:
    assert told in refusal("mode=gateway", *values)


@HELM
def test_a_package_has_the_files_behind_the_links(tmp_path: Path) -> None:
    assert helm("package", str(CHART), "--destination", str(tmp_path)).returncode == 0
    (package,) = tmp_path.glob("redrive-*.tgz")
    rules = only(rendered(package, "metrics.rules.enabled=true"), "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
