"""Build the image for real, without a Docker daemon, and look at what is in it: `make image-test`.

Debian's buildah builds the Dockerfile (storage driver vfs, chroot isolation, the machine's network). Its base image is
made with debootstrap under the name that the Dockerfile asks for, since no registry is needed to prove a Dockerfile: it
is Debian with Python, as the published base is. `inside.py` then runs what was built. Everything stays in build/image.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
HERE = ROOT / "build" / "image"
NAME = "localhost/redrive:test"
TOOLS = ("buildah", "debootstrap", "unshare")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
STORE = ("--root", str(HERE / "storage"), "--runroot", str(HERE / "run"), "--storage-driver", "vfs")


def buildah(*arguments: str, quiet: bool = True) -> str:
    """One buildah command; what it printed."""
    output = subprocess.PIPE if quiet else None
    done = subprocess.run(["buildah", *STORE, *arguments], stdout=output, text=True, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(f"buildah {' '.join(arguments[:3])} … failed ({done.returncode})")
    return (done.stdout or "").strip()


def tools() -> None:
    """Have the tools, or say which are missing."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "-qq", "update"], check=False)
        subprocess.run(
            ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *missing],
            env=environment, stdout=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        missing = [tool for tool in missing if shutil.which(tool) is None]
    if missing:
        sys.exit(f"make image-test needs {', '.join(missing)} (Debian: apt-get install {' '.join(missing)})")
    if os.geteuid() != 0:
        sys.exit("make image-test needs root: debootstrap and chroot do")


def base_name() -> str:
    """The base image that the Dockerfile asks for."""
    found = re.search(r"^ARG PYTHON_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def debian_mirror() -> str:
    """$DEBIAN_MIRROR, else the one that this machine's own apt uses."""
    named = os.environ.get("DEBIAN_MIRROR")
    if named:
        return named
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    own = [mirror for mirror in listed if mirror.rstrip("/").endswith("/debian")]
    return own[0] if own else sys.exit("which Debian mirror? apt knows of none: set DEBIAN_MIRROR")


def debian(name: str, *packages: str) -> Path:
    """The root of a Debian with these packages; made once."""
    tree = HERE / name
    done = HERE / f"{name}.done"
    if not done.exists() or done.read_text() != " ".join(packages):
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        print(f"making a Debian root with {', '.join(packages)} …", flush=True)
        log = HERE / f"{name}.log"
        with log.open("w") as out:
            included = f"--include={','.join(packages)}"
            command = ["debootstrap", "--variant=minbase", included, "bookworm", str(tree), debian_mirror()]
            if subprocess.run(command, stdout=out, stderr=out, check=False).returncode:
                sys.exit(f"debootstrap failed: {log}")
        for waste in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
            shutil.rmtree(tree / waste, ignore_errors=True)
        done.write_text(" ".join(packages))
    return tree


def make_base(name: str) -> None:
    """Debian with Python, under the base's name."""
    tree = debian("debian", "ca-certificates", "python3", "python3-venv")
    if name not in buildah("images", "--format", "{{.Name}}:{{.Tag}}"):
        container = buildah("from", "scratch")
        buildah("copy", "-q", container, str(tree), "/")
        buildah("commit", "-q", container, name)
        buildah("rm", container)


def build() -> None:
    """The Dockerfile, as it is. pip inside trusts whom this machine trusts."""
    trust = HERE / "pip.conf"
    trust.write_text(f"[global]\ncert = {CERTIFICATES}\n")
    volumes = ["--volume", f"{trust}:/etc/pip.conf:ro"]
    if CERTIFICATES.exists():
        volumes += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
    buildah(
        "build", "--isolation", "chroot", "--network", "host", "--format", "docker", "--pull-never",
        *volumes, "-t", NAME, ".", quiet=False,
    )  # fmt: skip


def size(path: Path, *options: str) -> float:
    """What lies there, in MB (10^6 bytes) of content."""
    done = subprocess.run(
        ["du", "-s", "--apparent-size", "-B1", *options, str(path)], stdout=subprocess.PIPE, check=True
    )
    return int(done.stdout.split()[0]) / 1e6


def packed(root: Path, *paths: str) -> float:
    """The same as a registry would send it: gzip, in MB."""
    made = subprocess.run(["tar", "-C", str(root), "-cz", *paths], stdout=subprocess.PIPE, check=True)
    return len(made.stdout) / 1e6


def look(root: Path, config: dict[str, object]) -> None:
    """What the image says of itself, and that nothing is in it that should not be."""
    assert config["User"] == "65532:65532", config
    assert config["Entrypoint"] == ["redrive", "run"], config
    check = config["Healthcheck"]
    assert isinstance(check, dict) and check["Test"] == ["CMD", "redrive", "healthcheck"], check
    labels = config["Labels"]
    assert isinstance(labels, dict) and labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.base.name"] == base_name(), labels
    site = next((root / "opt/redrive/lib").glob("python3*/site-packages"))
    installed = {path.name.partition("-")[0].lower() for path in site.glob("*.dist-info")}
    assert {"redrive", "aiohttp", "uvloop", "cryptography", "redis"} <= installed, installed
    assert not {"pip", "setuptools", "pytest", "mypy"} & installed, installed
    ours = root / "opt/redrive"
    keys = [path for path in ours.rglob("*") if path.suffix in (".key", ".pem") and path.name != "cacert.pem"]
    assert not keys, keys
    loose = [path for path in (*ours.rglob("*"), root / "etc/redrive/redrive.yaml")
             if not path.is_symlink() and (path.stat().st_uid or path.stat().st_mode & 0o022)]  # fmt: skip
    assert not loose, f"writable by others than root: {loose[:3]}"
    for tree in ("src", "opt/pip"):
        assert not (root / tree).exists(), f"/{tree} came along from the build"


def prometheus() -> Path:
    """The folder of Prometheus's programs. Its package is only unpacked: installed, it would start a server."""
    have = shutil.which("prometheus")
    if have and shutil.which("promtool"):
        return Path(have).parent
    folder = HERE / "prometheus/usr/bin"
    if not folder.exists():
        print("fetching Prometheus …", flush=True)
        subprocess.run(["apt-get", "-qq", "download", "prometheus"], cwd=HERE, check=True)
        package = next(HERE.glob("prometheus_*.deb"))
        subprocess.run(["dpkg", "-x", str(package), str(HERE / "prometheus")], check=True)
        package.unlink()
    return folder


def play_alerts(tool: Path) -> None:
    """Prometheus's own tool plays the alert rules."""
    where = ROOT / "deploy/prometheus"
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            [tool, *command], cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if done.returncode:
            sys.exit(done.stdout.decode())
    print("alerts: promtool is content, and every rule fires when it should")


def main() -> None:
    """Build, look, run, and say how large it is."""
    tools()
    HERE.mkdir(parents=True, exist_ok=True)
    programs = prometheus()
    play_alerts(programs / "promtool")
    make_base(base_name())
    apps = debian("apps", "ca-certificates", "curl", "git", "nodejs", "python3", "python3-requests")
    build()
    container = buildah("from", "--pull-never", NAME)
    try:
        root = Path(buildah("mount", container))
        described = json.loads(buildah("inspect", "--type", "image", NAME))["Docker"]
        look(root, described["config"])
        environment = json.dumps(described["config"]["Env"])
        inside = [
            sys.executable,
            str(Path(__file__).parent / "inside.py"),
            str(root),
            environment,
            str(programs),
            str(apps),
        ]
        done = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", *inside], check=False)
        if done.returncode:
            sys.exit(done.returncode)
        added = size(root / "opt/redrive") + size(root / "etc/redrive")
        sent = packed(root, "opt/redrive", "etc/redrive")
        print(f"size: redrive adds {added:.1f} MB to its base, {sent:.1f} MB as gzip")
        documented = re.search(r"(\d+) MB of it, (\d+) MB compressed", (ROOT / "docs/guides/operating.md").read_text())
        measured = zip((added, sent), documented.groups() if documented else (), strict=bool(documented))
        if documented is None or any(abs(each / float(said) - 1) > 0.15 for each, said in measured):
            sys.exit("docs/guides/operating.md and README.md say another size")
    finally:
        buildah("umount", container)
        buildah("rm", container)
        buildah("rmi", "--prune", "--force")


if __name__ == "__main__":
    main()
