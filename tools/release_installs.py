"""Installing a release as people do, and using the command there: for `release_check.py`.

In a bare environment, from the lock, with what redrive needs to run and nothing else; then every verb in an empty
folder, as somebody would who has never seen the checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
POLICY_TEST = """\
config: {upstreams: {a: {url: "http://a.example"}}}
tests:
  - name: one failure is ridden out
    calls:
      - request: {method: GET, url: "http://a.example/"}
        attempts: [{status: 503}, {status: 200}]
        expect: {attempts: 2, status: 200, outcome: success}
"""
#: What compiles is not there: the package is Python alone.
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}


def run(*command: object, **more: object) -> str:
    """A command that must succeed; what it printed."""
    done = subprocess.run([str(each) for each in command], stdout=subprocess.PIPE, text=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        said = f"{done.stdout}{done.stderr or ''}"  # standard error too, where it was kept from the terminal
        sys.exit(f"{' '.join(map(str, command))} failed ({done.returncode})\n{said}")
    return str(done.stdout)


def say(what: str) -> None:
    """One line for each thing that holds."""
    print(f"  {what}", flush=True)


def locked() -> dict[str, str]:
    """constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(Requirement(line).name): line.partition("==")[2] for line in lines if "==" in line}


def python(version: str) -> str | None:
    """A Python of this version: on the path, of pyenv, or of uv, which is not asked to download one."""
    candidates = [shutil.which(f"python{version}")]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += map(str, sorted(root.glob(f"versions/{version}.*/bin/python")))
    if uv := shutil.which("uv"):
        command = [uv, "python", "find", "--no-python-downloads", version]
        candidates.append(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())
    asked = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for each in filter(None, candidates):
        done = subprocess.run([each, "-c", asked], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return each
    return None


class Installs:
    """A source distribution, installed in every way; `look_into_wheel` is handed each wheel that is made of it."""

    def __init__(self, sdist: Path, version: str, folder: Path, look_into_wheel: Callable[..., None]) -> None:
        self._sdist = sdist
        self._version = version
        self._folder = folder
        self._look_into_wheel = look_into_wheel
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE", "AWS_"))},
            "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
            "UV_CONSTRAINT": str(ROOT / "constraints.txt"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        #: A compiled wheel, and the Python that it is for: what pipx and uv are given.
        self._wheel: tuple[str, Path] | None = None

    def on_python(self, version: str) -> None:
        """Build and install on a Python, without a compiler and with one, and use both; or say that there is none."""
        interpreter = python(version)
        if interpreter is None:
            say(f"Python {version}: skipped, none was found")
            return
        folder = self._folder / version
        pure = self._build(interpreter, folder / "pure", compiled=False)
        commands = self._bare(interpreter, folder / "bare", pure)
        assert self._core(commands) == "python", "installed without a compiler, it is not Python alone"
        if version == "3.11":
            self._use(commands, folder)
        wheel = self._build(interpreter, folder / "compiled", compiled=True)
        run(commands / "pip", "install", "-q", "--no-deps", "--force-reinstall", wheel, env=self._environment)
        assert self._core(commands) == "compiled"
        assert self._core(commands, REDRIVE_PURE="1") == "python"
        self._use(commands, folder)
        self._bare(interpreter, folder / "all", wheel, "[intercept,redis,otel]")
        self._wheel = self._wheel or (interpreter, wheel)
        say(f"Python {version}: installs without a compiler and with one, and every verb works")

    def by_pipx(self) -> None:
        """Install with pipx, where it is."""
        tool = shutil.which("pipx")
        if tool is None or self._wheel is None:
            say("pipx: skipped, it is not installed" if self._wheel else "pipx: skipped, there is no wheel")
            return
        interpreter, wheel = self._wheel
        home = self._folder / "pipx"
        told = {"PIPX_HOME": str(home), "PIPX_BIN_DIR": str(home / "bin"), "PIPX_MAN_DIR": str(home / "man")}
        quiet = {"env": {**self._environment, **told}, "stderr": subprocess.PIPE}
        run(tool, "install", "--python", interpreter, wheel, **quiet)
        assert self._core(home / "bin") == "compiled"
        run(tool, "uninstall", "redrive", **quiet)
        say("pipx install: the command works")

    def by_uv(self) -> None:
        """Install with uv, where it is."""
        tool = shutil.which("uv")
        if tool is None or self._wheel is None:
            say("uv tool install: skipped, uv is not installed" if self._wheel else "uv: skipped, there is no wheel")
            return
        interpreter, wheel = self._wheel
        home = self._folder / "uv"
        told = {"UV_TOOL_DIR": str(home), "UV_TOOL_BIN_DIR": str(home / "bin"), "UV_PYTHON": interpreter}
        run(tool, "tool", "install", "-q", wheel, env={**self._environment, **told})
        assert self._core(home / "bin") == "compiled"
        say("uv tool install: the command works")

    def _build(self, interpreter: str, folder: Path, *, compiled: bool) -> Path:
        """A wheel, made of the source distribution."""
        environment = self._environment if compiled else {**self._environment, **NO_COMPILER}
        build = ("-m", "pip", "wheel", "-q", "--no-deps", "--no-cache-dir", "-w", folder)
        run(interpreter, *build, self._sdist, env=environment, stderr=subprocess.PIPE)
        (wheel,) = folder.glob("*.whl")
        self._look_into_wheel(wheel, compiled=compiled)
        return wheel

    def _bare(self, interpreter: str, folder: Path, wheel: Path, extras: str = "") -> Path:
        """An environment with the wheel and what it needs; its folder of commands."""
        run(interpreter, "-m", "venv", folder)
        commands = folder / "bin"
        install = (commands / "pip", "install", "-q", f"{wheel}{extras}")
        run(*install, env=self._environment, stderr=subprocess.PIPE)
        found = {
            canonicalize_name(each["name"]): each["version"]
            for each in json.loads(run(commands / "pip", "list", "--format", "json", env=self._environment))
        }
        for name in ("pip", "setuptools", "redrive"):
            found.pop(name, None)
        lock = locked()
        loose = {name: version for name, version in found.items() if lock.get(name) != version}
        assert not loose, f"not as constraints.txt has them: {loose}"
        for name in ("pytest", "jsonschema", "pydantic", "mypy", "mkdocs"):
            assert name not in found, f"{name} came along"
        return commands

    def _core(self, commands: Path, **more: str) -> str:
        """Which core `redrive --version` says that runs."""
        told = run(commands / "redrive", "--version", cwd=self._folder, env={**self._environment, **more})
        assert told.startswith(f"redrive {self._version} ("), told
        return "compiled" if "compiled" in told else "python"

    def _use(self, commands: Path, folder: Path) -> None:
        """Every verb that needs no network, in an empty folder, under the defaults."""
        empty = folder / "empty"
        shutil.rmtree(empty, ignore_errors=True)
        empty.mkdir()
        environment = {**self._environment, "PATH": f"{commands}:/usr/bin:/bin"}
        redrive = commands / "redrive"

        def ask(*arguments: str) -> str:
            return run(redrive, *arguments, cwd=empty, env=environment, stderr=subprocess.PIPE)

        assert "the defaults: fine" in ask("check")
        assert json.loads(ask("schema")) == json.loads((ROOT / "config/redrive.schema.json").read_text())
        assert "HTTP_PROXY=http://127.0.0.1:8080" in ask("env")
        assert "standard" in ask("explain", "GET", "http://a.example/", "--status", "503")
        assert "redrive" in ask("completion", "bash")
        (empty / "tests.yaml").write_text(POLICY_TEST)
        ask("test", "tests.yaml")
        (examples,) = commands.parent.glob("lib/python*/site-packages/proxy/examples")
        assert str(examples) in "".join(ask("--help").split()), "redrive --help does not say where the examples are"
        for example in sorted(examples.glob("*.yaml")):
            ask("check", "-c", str(example))
        ask("test", *map(str, sorted((examples / "tests").glob("*.yaml"))))
        assert json.loads(ask("simulate", "--scenario", str(examples / "scenarios/outage.yaml"), "--json"))
        assert json.loads(ask("demo", "--seconds", "3", "--json"))
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
        for path in served():
            with urllib.request.urlopen(admin + path, timeout=10) as answer:
                assert answer.status == 200, path
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def served() -> Iterator[str]:
    """What the admin port has; the dashboard is asked for where there is one."""
    yield from ("/livez", "/readyz?verbose", "/metrics", "/config", "/upstreams", "/buckets", "/requests")
    if any((ROOT / "proxy").rglob("*.html")):
        yield "/"
