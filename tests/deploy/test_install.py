"""scripts/install.py, as the Makefile calls it; an installer of ours stands for uv, and notes what it is told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
UV = """\
#!/bin/sh
echo "$*" >> ../told
touch "$(dirname "$5")/../somebody"
[ -e ../fails ] && exit 1
[ -e ../killed ] && kill -9 $$
exit 0
"""


class Checkout:
    """A checkout in a folder whose name has a blank, and the fake uv beside it."""

    def __init__(self, above: Path) -> None:
        self.root = above / "a checkout"
        self.above = above
        (self.root / "scripts").mkdir(parents=True)
        (self.root / "bench").mkdir()
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "scripts/install.py", "bench/peers.txt"):
            shutil.copy(ROOT / name, self.root / name)
        (above / "bin").mkdir()
        uv = above / "bin/uv"
        uv.write_text(UV)
        uv.chmod(0o755)
        self.env = {**os.environ, "PATH": f"{above / 'bin'}:{os.environ['PATH']}", "PIP_NO_INDEX": "1"}
        self.env |= {"PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull, "MAKEFLAGS": "", "MAKELEVEL": ""}

    def make(self, *verbs: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "-s", f"PYTHON={sys.executable}", *verbs]
        return subprocess.run(command, cwd=self.root, env=self.env, capture_output=True, text=True, check=False)

    @property
    def installs(self) -> list[str]:
        """What uv was told, since the last time."""
        file = self.above / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    def has(self, name: str) -> bool:
        return (self.root / ".venv" / name).exists()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_each_set_once_and_again_when_the_lock_changes(checkout: Checkout) -> None:
    done = checkout.make("venv")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "installing what redrive needs to serve into .venv, once …"
    (installs,) = checkout.installs
    assert installs.startswith("pip install -q --python ")
    assert "/a checkout/.venv/bin/python -c constraints.txt " in installs and " aiohttp>=" in installs
    assert not checkout.has("bin/pip")
    assert (checkout.make("venv").stderr, checkout.installs) == ("", [])
    assert checkout.make("extras").returncode == 0
    (installs,) = checkout.installs
    assert "cryptography" in installs and "redis[hiredis]" in installs and "opentelemetry-sdk" in installs
    assert "pytest>=" not in installs and "aiohttp" not in installs
    assert checkout.make("venv", "extras").returncode == 0
    assert checkout.installs == []
    later = (checkout.root / ".venv/.extras").stat().st_mtime + 10
    os.utime(checkout.root / "constraints.txt", (later, later))
    assert checkout.make("venv").returncode == 0
    assert len(checkout.installs) == 1


def test_the_command_is_the_checkouts_wherever_it_is_called(checkout: Checkout) -> None:
    for folder, answer in ((checkout.root, "print(sys.argv[1:])"), (checkout.above, "print('of the folder')")):
        (folder / "proxy").mkdir()
        (folder / "proxy/__init__.py").touch()
        (folder / "proxy/__main__.py").write_text(f"import sys\n{answer}\n")
    assert checkout.make("venv").returncode == 0
    command = checkout.root / ".venv/bin/redrive"
    called = [command, "run", "-c", "a b"]
    done = subprocess.run(called, cwd=checkout.above, capture_output=True, text=True, check=True)
    assert done.stdout == "['run', '-c', 'a b']\n"


def test_at_once_they_are_installed_one_after_the_other(checkout: Checkout) -> None:
    done = checkout.make("-j4", "dev", "extras", "venv")
    assert done.returncode == 0, done.stderr
    installs = checkout.installs
    assert len(installs) == 3
    assert "aiohttp>=" in installs[0]
    assert any("pytest>=" in line for line in installs)


def test_what_failed_is_tried_again_and_takes_nothing_with_it(checkout: Checkout) -> None:
    assert checkout.make("venv").returncode == 0
    (checkout.above / "fails").touch()
    done = checkout.make("dev")
    assert done.returncode == 2
    assert "the same command tries again" in done.stderr
    assert checkout.has(".serve") and not checkout.has(".dev")
    assert checkout.make("venv").returncode == 0
    (checkout.above / "fails").unlink()
    assert checkout.make("dev").returncode == 0
    assert checkout.has("somebody") and checkout.has(".dev")


def test_what_was_cut_short_is_made_anew(checkout: Checkout) -> None:
    assert checkout.make("venv").returncode == 0
    (checkout.above / "killed").touch()
    done = checkout.make("dev")
    assert done.returncode == 2
    assert "cut short" in done.stderr
    (checkout.above / "killed").unlink()
    checkout.installs  # noqa: B018
    (checkout.root / ".venv/half").touch()
    assert checkout.make("dev").returncode == 0
    serve, dev = checkout.installs
    assert "aiohttp>=" in serve and "pytest>=" in dev
    assert not checkout.has("half") and checkout.has(".serve") and checkout.has(".dev")


def test_an_old_python_is_told_in_a_line(checkout: Checkout) -> None:
    script = f"import sys, runpy; sys.version_info = (3, 9); sys.argv[1:] = ['x', 'serve']; \
runpy.run_path({str(checkout.root / 'scripts/install.py')!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "needs Python 3.11" in done.stderr


def test_python_alone_is_installed_without_a_compiler(tmp_path: Path) -> None:
    """REDRIVE_PURE=1 compiles nothing, as it runs nothing that was compiled: a wheel for every machine."""
    copy = tmp_path / "checkout"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, files.split("\0")):
        if not name.startswith(("tests/", "docs/", "bench/")) and (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name, follow_symlinks=False)
    env = {**os.environ, "REDRIVE_PURE": "1", "CC": "false"}
    command = [sys.executable, "-c", "from setuptools.build_meta import build_wheel; print(build_wheel('made'))"]
    (copy / "made").mkdir()
    built = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=True).stdout
    wheel = built.splitlines()[-1]
    assert wheel.startswith("redrive-") and wheel.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(copy / "made" / wheel) as content:
        names = content.namelist()
    assert not [name for name in names if name.endswith((".so", ".c", ".pyx", ".pxd"))]
    assert "proxy/cli.py" in names and "proxy/examples/scenarios/restart.yaml" in names


def test_the_fast_tests_need_no_more_than_is_installed_for_them(checkout: Checkout) -> None:
    shutil.copytree(ROOT / "scripts", checkout.root / "scripts", dirs_exist_ok=True)
    done = checkout.make("-n", "test")
    assert "apt-get" not in done.stdout and "system-packages" not in done.stdout, "nothing is installed beside Python"
    assert ".venv/.test" in done.stdout and ".venv/.dev" not in done.stdout
    for part in re.findall(r" (tests/\S+)", done.stdout):
        assert (ROOT / part).exists(), part
    assert "system-packages" in checkout.make("-n", "test-all").stdout
