"""Run what was built: `inside.py ROOT ENVIRONMENT PROMETHEUS APPS`, in mount, network and process namespaces.

Law: as hard as a cluster may be. The root is read-only, the shells in it cannot be started, the user is the image's
number, the network is a loopback with one more address and leads nowhere. What is run is what docker-compose.yml says,
and what `https_apps.py` does, whose apps have the root APPS.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import https_apps
import yaml
from machine import ADDRESS, PATIENCE, Image, Root, alone, bring_up, get, mount, projected, ready, wait_for

PROJECT = Path(__file__).parent.parent.parent


def closed_as_it_comes(image: Image) -> None:
    """With nothing mounted: ready, healthy, and closed."""
    assert image.run(["redrive", "healthcheck"]) == 1, "healthy before it runs"
    with image.serving(["redrive", "run"]) as process:
        wait_for("readiness", ready)
        assert image.run(["redrive", "healthcheck"]) == 0, "not healthy"
        status, _, text = get("http://redrive.example/", f"http://{ADDRESS}:8080")
        assert status == 403, (status, text)
    assert process.status == 0, (process.status, process.text())
    print("as it comes: ready, healthy, refuses strangers, ends on SIGTERM with 0")


def as_composed(image: Image, programs: Path) -> None:
    """docker-compose.yml's redrive, flaky upstream, app and Prometheus."""
    services = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())["services"]
    folder = config_map(image)
    shutil.copy(PROJECT / "deploy/compose/app.py", folder / "app.py")
    token = services["redrive"]["environment"]["REDRIVE_ADMIN_TOKEN"].partition(":-")[2].rstrip("}")
    app = [services["app"]["command"][0], "/etc/redrive/app.py"]
    with (
        redis(services["redis"]["command"]) as fleet,
        image.serving(services["flaky"]["entrypoint"], init=True),
        image.serving(["redrive", "run"], REDRIVE_ADMIN_TOKEN=token),
    ):
        wait_for("readiness", ready)
        wait_for("the flaky upstream", lambda: get(f"http://{ADDRESS}:8081/")[0])
        with image.serving(app, init=True, PAUSE="0.01", **services["app"]["environment"]) as asking:
            wait_for("the app's third answer", lambda: "order 3:" in asking.text())
            lines = asking.text().splitlines()
        assert lines[1].startswith("order 2: 200 after 3 attempts"), lines
        status, _, text = get(f"http://{ADDRESS}:9901/requests?limit=1", Authorization=f"Bearer {token}")
        assert status == 200 and '"upstream": "flaky"' in text, (status, text)
        assert get(f"http://{ADDRESS}:9901/requests")[0] == 401
        watched(programs)
        if fleet is not None:
            wait_for("the bucket in Redis", fleet)
            print("shared: the bucket's tokens are in Redis")
        swap(folder, "limits: {waiting: 7}\n")
        wait_for("the reload", lambda: 'reloads_total{result="success"} 1' in get("http://127.0.0.1:9902/metrics")[2])
    print("as composed: an app with HTTP_PROXY alone gets 200 after 3 attempts; a ConfigMap's swap is loaded")


@contextlib.contextmanager
def redis(command: list[str]) -> Iterator[Callable[[], bytes] | None]:
    """Redis as compose starts it, where this machine has one; a look at the keys that redrive made there."""
    if shutil.which(command[0]) is None:
        yield None
        return
    started = subprocess.Popen([*command, "--protected-mode", "no"], stdout=subprocess.DEVNULL)
    look = ["redis-cli", "-h", "redis", "--raw", "keys", "redrive:*"]
    try:
        yield lambda: subprocess.run(look, stdout=subprocess.PIPE, check=True).stdout
    finally:
        started.terminate()
        started.wait(PATIENCE)


@contextlib.contextmanager
def prometheus(programs: Path) -> Iterator[str]:
    """Prometheus as compose starts it, but for where it keeps its data; its url."""
    with tempfile.TemporaryDirectory() as data:
        command = [
            str(programs / "prometheus"),
            f"--config.file={PROJECT / 'deploy/prometheus/prometheus.yml'}",
            f"--storage.tsdb.path={data}",
            "--log.level=error",
        ]
        started = subprocess.Popen(command)
        try:
            yield "http://prometheus:9090"
        finally:
            started.terminate()
            started.wait(PATIENCE)


def watched(programs: Path) -> None:
    """It finds redrive where the file says, takes every rule, and answers every question of the dashboard."""
    dashboard = json.loads((PROJECT / "deploy/grafana/dashboards/redrive.json").read_text())
    with prometheus(programs) as url:

        def ask(path: str) -> Any:
            status, _, text = get(url + path)
            assert status == 200, (path, text)
            return json.loads(text)["data"]

        def targets() -> list[str]:
            return [each["health"] for each in ask("/api/v1/targets")["activeTargets"]]

        wait_for("Prometheus", lambda: get(url + "/-/ready")[0] == 200)
        wait_for("the first scrape", lambda: targets() == ["up"])
        wait_for("the calls", lambda: ask('/api/v1/query?query=redrive_calls_total{upstream="flaky"}')["result"])
        rules = [rule for group in ask("/api/v1/rules")["groups"] for rule in group["rules"]]
        known = yaml.safe_load((PROJECT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
        assert [rule["name"] for rule in rules] == [rule["alert"] for rule in known]
        asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        for expression in asked:
            query = expression.replace("$__rate_interval", "1m").replace("$upstream", ".*")
            ask("/api/v1/query?" + urllib.parse.urlencode({"query": query}))
    print(f"watched: Prometheus scrapes it, has {len(rules)} rules, answers the dashboard's {len(asked)} questions")


def config_map(image: Image) -> Path:
    """A folder over /etc/redrive, with files as links through `..data`, as a kubelet makes them."""
    folder = projected({"redrive.yaml": (PROJECT / "deploy/compose/redrive.yaml").read_bytes()})
    mount("--bind", folder, image.root / "etc/redrive")
    return folder


def swap(folder: Path, more: str) -> None:
    """The same with more in it, put in place by one rename."""
    (folder / "..2").mkdir()
    (folder / "..2/redrive.yaml").write_text((folder / "..1/redrive.yaml").read_text() + more)
    (folder / "..data_tmp").symlink_to("..2")
    (folder / "..data_tmp").rename(folder / "..data")


def main() -> None:
    """Every check."""
    bring_up()
    root, environment, programs, apps = sys.argv[1:]
    alone("redrive", "flaky", "redis", "prometheus", https_apps.NAME)
    image = Image(Path(root), dict(pair.split("=", 1) for pair in json.loads(environment)), *https_apps.PLACES)
    assert image.run(["sh", "-c", "true"]) != 0, "a shell was started"
    mount("-t", "proc", "proc", "/proc")
    closed_as_it_comes(image)
    https_apps.check(image, Root(Path(apps), {"PATH": "/usr/bin:/bin", "HOME": "/"}, *https_apps.APP_PLACES))
    as_composed(image, Path(programs))


if __name__ == "__main__":
    main()
