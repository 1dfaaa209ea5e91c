"""Whether what would be released can be released: `make release-check`.

Builds the source distribution, a wheel out of it, and installs that into a bare environment from the lock, with what it
needs to run and nothing else. Then the command is used there, in an empty folder, as somebody would who has never seen
the checkout.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
POLICY_TEST = """\
config: {upstreams: {a: {url: "http://a.example"}}}
tests:
  - name: one failure is ridden out
    calls:
      - request: {method: GET, url: "http://a.example/"}
        attempts: [{status: 503}, {status: 200}]
        expect: {attempts: 2, status: 200, outcome: success}
"""


def run(*command: object, **more: object) -> str:
    """A command that must succeed; what it printed."""
    done = subprocess.run([str(each) for each in command], stdout=subprocess.PIPE, text=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed ({done.returncode})\n{done.stdout}")
    return str(done.stdout)


def say(what: str) -> None:
    """One line for each thing that holds."""
    print(f"  {what}", flush=True)


def build() -> tuple[Path, Path]:
    """The two files, made anew."""
    for old in DIST.glob(f"redrive-{VERSION}*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT, stderr=subprocess.DEVNULL)
    (wheel,) = DIST.glob(f"redrive-{VERSION}-*.whl")
    return DIST / f"redrive-{VERSION}.tar.gz", wheel


def look(sdist: Path, wheel: Path) -> None:
    """What is in them, and what is not."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"redrive-{VERSION}.dist-info/METADATA").decode()
    roots = {name.split("/")[0] for name in names}
    assert roots == {"proxy", f"redrive-{VERSION}.dist-info"}, roots
    tracked = {Path(line) for line in run("git", "-C", ROOT, "ls-files", "proxy").splitlines()}
    tracked |= {path.relative_to(ROOT) for path in (ROOT / "proxy/examples").rglob("*")}
    shipped = [path for path in tracked if (ROOT / path).is_file() and path.suffix not in (".pyx", ".pxd")]
    left_out = set(map(str, shipped)) - names
    assert not left_out, f"not in the wheel: {sorted(left_out)}"
    assert any(name.endswith("licenses/LICENSE") for name in names)
    compiled = {name.partition(".")[0] for name in names if name.endswith(".so")}
    sources = re.findall(r'^    "(proxy[\w.]+)",$', (ROOT / "setup.py").read_text(), re.M)
    assert sources and compiled == {name.replace(".", "/") for name in sources}, f"compiled is {sorted(compiled)}"
    assert "License-Expression: Apache-2.0" in metadata
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    for needed in (
        "Dockerfile",
        "constraints.txt",
        "tests/conftest.py",
        "docs/README.md",
        "config/redrive.yaml",
        "Makefile",
        "setup.py",
        "proxy/wire/http1/scan.pyx",
    ):
        assert needed in inside, f"not in the source distribution: {needed}"
    stray = [name for name in inside if re.search(r"\.(pem|key|log|pyc)$|(^|/)(\.venv|build|\.git)/", name)]
    assert not stray, stray[:5]
    sizes = [f"{file.name} ({file.stat().st_size / 1000:.0f} kB)" for file in (sdist, wheel)]
    say(f"{' and '.join(sizes)} hold what they should")


def locked() -> dict[str, str]:
    """constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(Requirement(line).name): line.partition("==")[2] for line in lines if "==" in line}


def bare(folder: Path, wheel: Path, extras: str = "") -> Path:
    """An environment with the wheel and what it needs; its folder of commands."""
    run(sys.executable, "-m", "venv", folder)
    commands = folder / "bin"
    run(
        commands / "pip", "install", "-q", "-c", ROOT / "constraints.txt", f"{wheel}{extras}", stderr=subprocess.DEVNULL
    )
    found = {
        canonicalize_name(each["name"]): each["version"]
        for each in json.loads(run(commands / "pip", "list", "--format", "json"))
    }
    for name in ("pip", "setuptools", "redrive"):
        found.pop(name, None)
    lock = locked()
    loose = {name: version for name, version in found.items() if lock.get(name) != version}
    assert not loose, f"not as constraints.txt has them: {loose}"
    for name in ("pytest", "jsonschema", "pydantic", "mypy", "mkdocs"):
        assert name not in found, f"{name} came along"
    say(f"installs{extras and ' with ' + extras} with {len(found)} packages, every one as constraints.txt has it")
    return commands


def use(commands: Path, empty: Path) -> None:
    """Every verb that needs no network, in an empty folder, under the defaults."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE", "AWS_"))},
        "PATH": f"{commands}:/usr/bin:/bin",
    }
    redrive = commands / "redrive"

    def ask(*arguments: str) -> str:
        return run(redrive, *arguments, cwd=empty, env=environment, stderr=subprocess.DEVNULL)

    assert ask("--version").startswith(f"redrive {VERSION} (")
    assert "the defaults: fine" in ask("check")
    assert json.loads(ask("schema")) == json.loads((ROOT / "config/redrive.schema.json").read_text())
    assert "HTTP_PROXY=http://127.0.0.1:8080" in ask("env")
    assert "standard" in ask("explain", "GET", "http://a.example/", "--status", "503")
    (empty / "tests.yaml").write_text(POLICY_TEST)
    ask("test", "tests.yaml")
    (folder,) = commands.parent.glob("lib/python*/site-packages/proxy/examples")
    assert str(folder) in "".join(ask("--help").split()), "redrive --help does not say where the examples are"
    examples = sorted(folder.glob("*.yaml"))
    for example in examples:
        ask("check", "-c", str(example))
    ask("test", *map(str, sorted((folder / "tests").glob("*.yaml"))))
    assert json.loads(ask("simulate", "--scenario", str(folder / "scenarios/outage.yaml"), "--json"))
    assert json.loads(ask("demo", "--seconds", "3", "--json"))
    say(f"every verb works away from the checkout, and the {len(examples)} examples that came along")
    serve(redrive, empty, environment)


def serve(redrive: Path, empty: Path, environment: dict[str, str]) -> None:
    """It serves, shows what it has to show, and ends when told to."""
    (empty / "redrive.yaml").write_text("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n")
    process = subprocess.Popen(
        [redrive, "run", "-c", "redrive.yaml"],
        cwd=empty,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        admin = f"http://{ready['admin'][0]}"
        for path in served(admin):
            with urllib.request.urlopen(admin + path, timeout=10) as answer:
                assert answer.status == 200, path
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    say("it serves, answers on its admin port, and ends with 0")


def served(admin: str) -> Iterator[str]:
    """What the admin port has; the dashboard is asked for where there is one."""
    yield from ("/livez", "/readyz?verbose", "/metrics", "/config", "/upstreams", "/buckets", "/requests")
    if any((ROOT / "proxy").rglob("*.html")):
        yield "/"


def said() -> None:
    """What the project says of itself agrees."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {VERSION}" in changelog or "## Unreleased" in changelog, "CHANGELOG.md has nothing on this version"
    assert f"ARG VERSION={VERSION}" in (ROOT / "Dockerfile").read_text(), "the Dockerfile has another version"
    assert f'__version__ = "{VERSION}"' in (ROOT / "proxy/__init__.py").read_text(), "proxy.__version__ is another"
    run(sys.executable, ROOT / "tools/third_party.py", "--check")
    say(f"version {VERSION} everywhere; THIRD_PARTY.md is current")


def main() -> None:
    """All of it."""
    said()
    sdist, wheel = build()
    look(sdist, wheel)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "empty").mkdir()
        use(bare(folder / "bare", wheel), folder / "empty")
        bare(folder / "all", wheel, "[intercept,redis,otel]")
    print(f"redrive {VERSION} can be released")


if __name__ == "__main__":
    main()
