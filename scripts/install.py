"""Install into .venv what a verb of the Makefile needs, once: `python3 scripts/install.py STAMP SET`.

SET is `serve` (what redrive depends on, and the command `redrive` of this checkout), `test` (the fast tests), `dev`
(all tests, checks and every optional part), `docs`, `extras` (interception, Redis, OpenTelemetry) or `peers` (what the
benchmark compares with). Versions are those of constraints.txt. STAMP is touched when all of it is there; `make` calls
again when pyproject.toml or constraints.txt is newer.

uv installs where it is on the path, else the pip of the Python that runs this, from outside: the environment needs no
pip of its own. Only where there is neither, it gets one. Standard library alone: nothing is installed yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: The Python below a virtual environment: it has a pip, and outlives the environment.
PYTHON = getattr(sys, "_base_executable", sys.executable)
#: The files that say what belongs to a set.
LOCK, PEERS = [ROOT / "pyproject.toml", ROOT / "constraints.txt"], [ROOT / "bench/peers.txt"]
#: The optional dependencies of pyproject.toml that a set is made of.
EXTRAS = {
    "serve": [],
    "extras": ["intercept", "redis", "otel"],
    "docs": ["docs"],
    "test": ["test", "intercept", "redis"],
    "dev": ["test", "dev", "docs", "intercept", "redis", "otel"],
}
WHAT = {
    "serve": "what redrive needs to serve",
    "extras": "what interception, Redis and OpenTelemetry need",
    "docs": "what the documentation's site is made with",
    "test": "what the fast tests need",
    "dev": "what all tests and checks need",
    "peers": "envoy, mitmproxy and proxy.py, to compare with",
}


def main() -> int:
    """Install a set where it is not there yet; the exit status."""
    if sys.version_info < (3, 11):  # noqa: UP036 - whoever runs this may have any Python
        return refuse(f"redrive needs Python 3.11 or newer; {sys.executable} is not (make PYTHON=/path/to/python …)")
    stamp, wanted = Path(sys.argv[1]).absolute(), sys.argv[2]
    with one_at_a_time():
        if is_current(stamp, wanted):  # somebody else has just done it
            return 0
        environment = stamp.parent
        unfinished = environment / ".unfinished"
        began = time.monotonic()  # noqa: TID251 - it tells a person how long it took
        print(f"installing {WHAT[wanted]} into {shown(environment)}, once …", file=sys.stderr, flush=True)
        if not made(environment, anew=unfinished.exists()):
            return refuse(f"{sys.executable} can't make a virtual environment{debian_remedy()}")
        missing = [wanted] if wanted in ("serve", "peers") or (environment / ".serve").exists() else ["serve", wanted]
        unfinished.touch()
        for each in missing:
            status = install(environment, each)
            if status < 0 or status == 130:  # cut short in the midst of it: what is there can't be trusted
                return refuse(f"cut short: the next installation makes {shown(environment)} anew")
            if status:
                unfinished.unlink()
                return refuse(f"{WHAT[each]} could not be installed, and above is why; the same command tries again")
            if each == "serve":
                link(environment)
            (environment / f".{each}").touch()
        unfinished.unlink()
        seconds = time.monotonic() - began  # noqa: TID251 - likewise
        print(f"installed in {seconds:.0f} s", file=sys.stderr, flush=True)
    return 0


def refuse(why: str) -> int:
    """Say why not; the exit status."""
    print(why, file=sys.stderr)
    return 2


def shown(environment: Path) -> str:
    """How people are told of it."""
    return str(environment.relative_to(ROOT)) if environment.is_relative_to(ROOT) else str(environment)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other verb installs into this checkout: `make -j`, or `make` in two terminals."""
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_current(stamp: Path, wanted: str) -> bool:
    """Whether nothing has changed since the set was installed."""
    inputs = PEERS if wanted == "peers" else LOCK
    return stamp.exists() and all(stamp.stat().st_mtime >= each.stat().st_mtime for each in inputs)


def made(environment: Path, *, anew: bool) -> bool:
    """Have the environment, without pip where somebody else can install into it; whether that could be done."""
    python = environment / "bin/python"
    if not anew and succeeds(python, "-c", ""):
        return True
    command = [PYTHON, "-m", "venv", "--clear", environment]
    if (uv() or outer_pip()) and succeeds(*command, "--without-pip"):
        return True
    if succeeds(*command):
        return True
    install_debians_venv()
    return succeeds(*command)


def succeeds(*command: str | Path) -> bool:
    """Run a command without its output; whether it ended well."""
    with contextlib.suppress(OSError):
        return (
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
        )
    return False


def uv() -> str | None:
    """Where uv is."""
    return shutil.which("uv")


def outer_pip() -> bool:
    """Whether this Python's own pip can install into another environment (from 22.3 on)."""
    return succeeds(PYTHON, "-m", "pip", "--python", PYTHON, "--version")


def debians_venv() -> str:
    """The package that Debian ships apart from Python."""
    return f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"


def debian_remedy() -> str:
    """What to do about a Python without venv, where apt is."""
    return f": apt-get install {debians_venv()}" if shutil.which("apt-get") else ""


def install_debians_venv() -> None:
    """As root, and where apt is, install it."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {debians_venv()} …", file=sys.stderr, flush=True)
        if succeeds("apt-get", "-qq", "update"):
            succeeds("apt-get", "-qq", "install", "-y", "--no-install-recommends", debians_venv())


def install(environment: Path, wanted: str) -> int:
    """Install a set's packages; the exit status of what did it, below zero where a signal ended it."""
    python = environment / "bin/python"
    arguments = packages(wanted)
    if found := uv():
        command = [found, "pip", "install", "-q", "--python", str(python), *arguments]
        status = run(command)
        if status <= 0:
            return status
        print("uv could not; trying pip", file=sys.stderr, flush=True)
    if succeeds(python, "-m", "pip", "--version"):
        pip = [str(python), "-m", "pip"]
    else:
        pip = [PYTHON, "-m", "pip", "--python", str(python)]
    command = [*pip, "install", "-q", "--no-compile", "--disable-pip-version-check", "--no-input", *arguments]
    return run(command)


def run(command: list[str]) -> int:
    """Run an installer; its exit status, 130 where somebody pressed Ctrl-C."""
    try:
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    except KeyboardInterrupt:
        return 130


def link(environment: Path) -> None:
    """Make the checkout importable there, and the command. `pip install -e` does no more, and fetches a build backend
    for it, which takes more than half as long again as all that is needed to serve.
    """
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "redrive.pth").write_text(f"{ROOT}\n")
    command = environment / "bin/redrive"
    python = shlex.quote(str(environment / "bin/python"))
    # -P: the folder that it is called in lends no modules.
    command.write_text(f'#!/bin/sh\nexec {python} -P -m proxy "$@"\n')
    command.chmod(0o755)


def packages(wanted: str) -> list[str]:
    """What an installer is told of a set."""
    if wanted == "peers":
        return ["-r", "bench/peers.txt"]
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    needed = project["dependencies"] if wanted == "serve" else []
    return ["-c", "constraints.txt", *needed, *(line for extra in EXTRAS[wanted] for line in optional[extra])]


if __name__ == "__main__":
    sys.exit(main())
