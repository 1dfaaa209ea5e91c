"""Apps that call https:// in containers of their own, and have their calls retried by redrive in another.

Law: what is played is what `deploy/kubernetes/https` and `deploy/compose/https.yml` say: their commands, mounts and
variables. The apps have a root of their own, without redrive and without the CA's key, and nothing in them is changed.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import ssl
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from machine import ADDRESS, Image, Root, get, projected, ready, wait_for

from proxy.server.intercept import ca
from proxy.server.intercept.leaves import Leaves

PROJECT = Path(__file__).parent.parent.parent
KUBERNETES = PROJECT / "deploy/kubernetes"
#: Whom the sample calls; here it is a server on this machine, under a root that redrive alone trusts.
NAME = "api.github.com"
#: Where the image, and the apps' root, are mounted on.
PLACES = ("etc/redrive/ca", "etc/redrive-ca", "trust")
APP_PLACES = ("etc/redrive-trust", "app.py")
#: What the image trusts.
ROOTS = "/etc/ssl/certs/ca-certificates.crt"

PYTHON = "import sys, {0}; got = {1}; print(got.{2}, got.headers['X-Attempt-Count'])"
#: What a proxy agent does: CONNECT, TLS in it, a request over that. Node's own `fetch` reads the variables from 24 on.
NODE = """
const http = require("node:http"), https = require("node:https"), tls = require("node:tls");
const url = new URL(process.argv[1]), proxy = new URL(process.env.HTTPS_PROXY), path = `${url.hostname}:443`;
const headers = { host: path };
const connect = http.request({ host: proxy.hostname, port: proxy.port, method: "CONNECT", path, headers });
connect.once("connect", (answer, socket) => {
  const secure = tls.connect({ socket, servername: url.hostname, ALPNProtocols: ["http/1.1"] });
  const agent = Object.assign(new https.Agent(), { createConnection: () => secure });
  https.get(url, { agent }, (got) => { console.log(got.statusCode, got.headers["x-attempt-count"]); process.exit(); });
});
connect.end();
"""
#: Each is given a URL, and prints the status and how many attempts there were.
APPS = {
    "curl": ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %header{x-attempt-count}"],
    "requests": ["python3", "-c", PYTHON.format("requests", "requests.get(sys.argv[1])", "status_code")],
    "urllib": ["python3", "-c", PYTHON.format("urllib.request", "urllib.request.urlopen(sys.argv[1])", "status")],
    "node": ["node", "-e", NODE],
}


class Server(http.server.ThreadingHTTPServer):
    """An https server at port 443: each path gets 503 twice, and then what git takes for a list of branches."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__((ADDRESS, 443), Answers)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.seen: Counter[str] = Counter()


class Answers(http.server.BaseHTTPRequestHandler):
    """What it answers."""

    server: Server

    def do_GET(self) -> None:
        """503, 503, 200."""
        self.server.seen[self.path] += 1
        good = self.server.seen[self.path] > 2
        body = b"0123456789012345678901234567890123456789\trefs/heads/main\n" if good else b""
        self.send_response(200 if good else 503)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name that the library looks for

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def upstream(made: ca.Made) -> Iterator[Server]:
    """The server, with a certificate of this CA, while it is needed."""
    authority = ca.load(made.cert, made.key, datetime.now(UTC))
    server = Server(Leaves(authority, time.time).make(NAME).context)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def new_ca(*hosts: str) -> ca.Made:
    """A CA of this machine's, in a folder of its own."""
    folder = Path(tempfile.mkdtemp())
    return ca.init(folder / "cert.pem", folder / "key.pem", list(hosts), datetime.now(UTC), os.environ)


def made_by(image: Image) -> dict[str, bytes]:
    """The Secret of a CA that the image makes in a mounted folder, as the guide does with `docker run`."""
    folder = Path(tempfile.mkdtemp())
    os.chown(folder, 65532, 65532)
    with image.mounted({"/etc/redrive/ca": folder}, writable=["/etc/redrive/ca"]):
        status, said = image.output(["redrive", "ca", "init", "--for", NAME])
    assert status == 0, said
    return secret(folder / "cert.pem", folder / "key.pem")


def check(image: Image, apps: Root) -> None:
    """Both ways."""
    on_kubernetes(image, apps)
    as_composed(image, apps)


def on_kubernetes(image: Image, apps: Root) -> None:
    """The pod of deploy/kubernetes/https: the container that writes what apps trust, the sidecar, and apps."""
    pod = yaml.safe_load((KUBERNETES / "https/patch.yaml").read_text())["spec"]["template"]["spec"]
    trusting, redrive = pod["initContainers"]
    (app,) = pod["containers"]
    base = yaml.safe_load((KUBERNETES / "base/deployment.yaml").read_text())["spec"]["template"]["spec"]
    env = {each["name"]: each["value"] for each in (*base["containers"][0]["env"], *app["env"])}

    own, upstreams, other = made_by(image), new_ca(), new_ca(NAME)
    volumes = {
        **volumes_of(pod, own),
        "redrive": projected({"redrive.yaml": (KUBERNETES / "https/redrive.yaml").read_bytes()}),
    }
    roots = Path(tempfile.mkdtemp()) / "roots.pem"
    roots.write_bytes((image.root / ROOTS.lstrip("/")).read_bytes() + upstreams.cert.read_bytes())

    with image.mounted(mounts(trusting, volumes), writable=["/trust"]):
        status, said = image.output(trusting["command"])
    assert status == 0, said
    sidecar = {**mounts(base["initContainers"][0], volumes), **mounts(redrive, volumes), ROOTS: roots}
    with upstream(upstreams) as server, image.mounted(sidecar), image.serving(["redrive", "run"]) as process:
        wait_for("readiness", ready)
        with apps.mounted(mounts(app, volumes)):
            for name, command in APPS.items():
                answered = apps.output([*command, f"https://{NAME}/{name}"], **env)
                assert answered == (0, answered[1]) and answered[1].split() == ["200", "3"], (
                    name,
                    answered,
                    process.text(),
                )
            status, branches = apps.output(["git", "ls-remote", f"https://{NAME}/git"], **env)
            assert status == 0 and "refs/heads/main" in branches, (branches, process.text())
            assert server.seen["/git/info/refs?service=git-upload-pack"] == 3, server.seen
            status, said = apps.output(["find", "/etc/redrive-trust", "/etc/redrive-ca"], **env)
            assert "bundle.pem" in said and "key" not in said, said
        refused(apps, app, other, env, server)
        wait_for("the handshake's line", lambda: '"event":"handshake"' in process.text())
    print(f"https on Kubernetes: {', '.join(APPS)} and git get 200 after 3 attempts; with another CA's bundle, none")


def refused(apps: Root, app: dict[str, Any], other: ca.Made, env: dict[str, str], server: Server) -> None:
    """Apps that trust another CA than redrive's speak to nobody."""
    ca.export(other.cert, other.cert.parent / "trust", os.environ)
    before = sum(server.seen.values())
    with apps.mounted({app["volumeMounts"][0]["mountPath"]: other.cert.parent / "trust"}):
        for name, command in APPS.items():
            status, said = apps.output([*command, f"https://{NAME}/refused"], **env)
            assert status != 0 and "certificate" in said.lower(), (name, status, said)
    assert sum(server.seen.values()) == before, "a call went through"


def secret(cert: Path, key: Path) -> dict[str, bytes]:
    """What `kubectl create secret tls` makes of a CA."""
    return {"tls.crt": cert.read_bytes(), "tls.key": key.read_bytes()}


def volumes_of(pod: dict[str, Any], data: dict[str, bytes]) -> dict[str, Path]:
    """The pod's volumes, where all its Secrets are this one."""
    found = {}
    for volume in pod["volumes"]:
        if "secret" in volume:
            items = volume["secret"].get("items") or [{"key": key, "path": key} for key in data]
            found[volume["name"]] = projected({item["path"]: data[item["key"]] for item in items})
        else:
            folder = found[volume["name"]] = Path(tempfile.mkdtemp())
            folder.chmod(0o777)  # as an emptyDir is
    return found


def mounts(container: dict[str, Any], volumes: dict[str, Path]) -> dict[str, Path]:
    """What a container has where."""
    return {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}


def as_composed(image: Image, apps: Root) -> None:
    """deploy/compose/https.yml over docker-compose.yml."""
    usual = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())["services"]
    more = yaml.safe_load((PROJECT / "deploy/compose/https.yml").read_text())["services"]
    token = {"REDRIVE_ADMIN_TOKEN": "only-for-trying-out"}
    volumes = {name: named_volume(image, name) for name in ("ca", "trust")}

    def has(service: str) -> dict[str, Path]:
        pairs = [volume.split(":") for volume in more[service]["volumes"]]
        return {pair[1]: volumes[pair[0]] if pair[0] in volumes else PROJECT / pair[0] for pair in pairs}

    for service, place in (("ca", "ca"), ("ca", "ca"), ("trust", "trust")):  # the second time it is there already
        with image.mounted(has(service), writable=[f"/var/lib/redrive/{place}"]):
            status, said = image.output(more[service]["entrypoint"], **token)
        assert status == 0, said
    app = has("app") | {"/app.py": PROJECT / "deploy/compose/app.py"}
    env = {**usual["app"]["environment"], **more["app"]["environment"], "PAUSE": "0.01"}
    with (
        image.serving(usual["flaky"]["entrypoint"], init=True),
        image.mounted(has("redrive")),
        image.serving(["redrive", "run"], **token) as redrive,
        apps.mounted(app),
    ):
        wait_for("readiness", ready)
        wait_for("the flaky upstream", lambda: get(f"http://{ADDRESS}:8081/")[0])
        with apps.serving(usual["app"]["command"], init=True, **env) as asking:
            wait_for("the app's third answer", lambda: "order 3:" in asking.text())
            lines = asking.text().splitlines()
        assert lines[1].startswith("order 2: 200 after 3 attempts"), (lines, redrive.text())
    print("https as composed: an app that calls https:// gets 200 after 3 attempts; the CA is made once")


def named_volume(image: Image, name: str) -> Path:
    """An empty volume, which takes over whose the image's folder is, as Docker has it."""
    folder = Path(tempfile.mkdtemp())
    theirs = (image.root / "var/lib/redrive" / name).stat()
    assert (theirs.st_uid, theirs.st_gid) == (65532, 65532), theirs
    os.chown(folder, theirs.st_uid, theirs.st_gid)
    folder.chmod(0o755)
    return folder
