"""Run what was built: `inside.py ROOT ENVIRONMENT PROMETHEUS`, in mount, network and process namespaces of its own.

Law: as hard as a cluster may be. The root is read-only, the shells in it cannot be started, the user is the image's
number, the network is a loopback with one more address and leads nowhere. What is run is what docker-compose.yml says.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

PROJECT = Path(__file__).parent.parent.parent
#: Beyond loopback, as a container's own address is.
ADDRESS = "10.9.0.1"
#: Seconds that anything may take to come.
PATIENCE = 20.0
T = TypeVar("T")


class Image:
    """The root of an image, mounted read-only."""

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self.root = root
        self.environment = environment
        mount("--make-rprivate", "/")
        mount("--bind", root, root)
        mount("-t", "proc", "proc", root / "proc")
        for shell in ("dash", "bash"):
            mount("--bind", "/dev/null", root / "usr/bin" / shell)
        names = Path(tempfile.mkdtemp()) / "hosts"
        names.write_text(f"127.0.0.1 localhost\n{ADDRESS} redrive flaky redis prometheus\n")
        mount("--bind", names, "/etc/hosts")  # for Prometheus, which runs outside of the image
        (root / "etc/hosts").touch()  # a mount needs something to lie on
        mount("--bind", names, root / "etc/hosts")
        mount("-o", "remount,ro,bind", root)
        with contextlib.suppress(OSError):
            (root / "opt/written").touch()
            sys.exit("the root can be written to")
        assert self.run(["sh", "-c", "true"]) != 0, "a shell was started"

    def command(self, command: list[str], *, init: bool = False) -> list[str]:
        """How a command is started there: as its user, and as the first process of its own namespace unless an init
        process is.
        """
        first = [] if init else ["/usr/bin/unshare", "--pid", "--fork", "--kill-child"]
        return [*first, "/usr/sbin/chroot", "--userspec=65532:65532", str(self.root), *command]

    def run(self, command: list[str], **env: str) -> int:
        """A command to its end; its exit status."""
        environment = {**self.environment, **env}
        return subprocess.run(self.command(command), env=environment, stderr=subprocess.DEVNULL, check=False).returncode

    @contextlib.contextmanager
    def serving(self, command: list[str], *, init: bool = False, **env: str) -> Iterator[Process]:
        """A command while it is needed; SIGTERM must end it."""
        environment = {**self.environment, **env}
        with tempfile.TemporaryFile("w+") as out:
            started = subprocess.Popen(self.command(command, init=init), env=environment, stdout=out, stderr=out)
            process = Process(started, out.fileno())
            try:
                yield process
            except BaseException:
                print(process.text(), file=sys.stderr)
                raise
            finally:
                process.end()


class Process:
    """Something that serves in the image; `status` is how it ended."""

    def __init__(self, started: subprocess.Popen[bytes], out: int) -> None:
        self._started = started
        self._out = out
        self.status: int | None = None

    def text(self) -> str:
        """What it said so far."""
        return os.pread(self._out, 1 << 20, 0).decode()

    def end(self) -> None:
        """SIGTERM to the first process of its namespace, and the end of it."""
        pid = self._started.pid
        first = Path(f"/proc/{pid}/task/{pid}/children").read_text().split() or [str(pid)]
        os.kill(int(first[0]), signal.SIGTERM)
        try:
            self.status = self._started.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._started.kill()
            sys.exit(f"SIGTERM did not end it:\n{self.text()}")


def mount(*arguments: object) -> None:
    """One mount, in this namespace."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


def bring_up() -> None:
    """Loopback, and one address beyond 127.0.0.0/8 on it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        up = struct.pack("16sh", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(sock, 0x8914, up)  # SIOCSIFFLAGS
        address = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(sock, 0x8916, address)  # SIOCSIFADDR


def wait_for(what: str, look: Callable[[], T | None]) -> T:
    """The first answer of `look` that is one."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            found = look()
            if found:
                return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come")


def get(url: str, proxy: str = "", **headers: str) -> tuple[int, Mapping[str, str], str]:
    """Status, headers and body, through a proxy where one is named."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy} if proxy else {}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=PATIENCE) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def ready() -> bool:
    """Whether the probe listener says so."""
    return get("http://127.0.0.1:9902/readyz")[0] == 200


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
            told = expression.replace("$__rate_interval", "1m").replace("$upstream", ".*")
            ask("/api/v1/query?" + urllib.parse.urlencode({"query": told}))
    print(f"watched: Prometheus scrapes it, has {len(rules)} rules, answers the dashboard's {len(asked)} questions")


def config_map(image: Image) -> Path:
    """A folder over /etc/redrive, with files as links through `..data`, as a kubelet makes them."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "..1").mkdir()
    shutil.copy(PROJECT / "deploy/compose/redrive.yaml", folder / "..1/redrive.yaml")
    (folder / "..data").symlink_to("..1")
    (folder / "redrive.yaml").symlink_to("..data/redrive.yaml")
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
    image = Image(Path(sys.argv[1]), dict(pair.split("=", 1) for pair in json.loads(sys.argv[2])))
    mount("-t", "proc", "proc", "/proc")
    closed_as_it_comes(image)
    as_composed(image, Path(sys.argv[3]))


if __name__ == "__main__":
    main()
