"""An unmodified smithy-core client runs its calls through our strategies (contract, section 13, "From Python").

smithy-core needs Python 3.12: the client is a program of its own (smithy_app.py), run by an interpreter that has the
package, or for which an installer can get it. CONTRIBUTING.md says how to have one.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.process import environment
from support.scripted import Upstream, answer

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
APP = HERE / "smithy_app.py"
#: Each strategy's attempts, in the order in which the program takes them.
ATTEMPTS = {
    "StandardRetryStrategy": 3,
    "Standard2026RetryStrategy": 3,
    "LegacyRetryStrategy": 4,
    "AdaptiveRetryStrategy": 3,
    "SmithyRetryStrategy": 6,
    "GrpcRetryStrategy": 4,
    "HedgingRetryStrategy": 3,
}
OK, FAILED, GONE = answer(200), answer(503), answer(404)


def interpreters() -> list[str]:
    """Those that may be 3.12 or later, the one that was named first."""
    named = os.environ.get("REDRIVE_SMITHY_PYTHON")
    if named:
        return [named]
    found = [sys.executable, *(shutil.which(f"python3.{minor}") for minor in (12, 13, 14))]
    if shutil.which("uv"):
        asked = ["uv", "python", "find", "--no-python-downloads", ">=3.12"]
        found.append(subprocess.run(asked, capture_output=True, text=True).stdout.strip())
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found += [str(each) for each in sorted(pyenv.glob("3.1[2-9].*/bin/python"))]
    return [each for each in found if each]


def runs(python: str, code: str, path: str) -> bool:
    try:
        done = subprocess.run([python, "-c", code], env=environment(PYTHONPATH=path), capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@pytest.fixture(scope="module")
def smithy(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """An interpreter, and the path on which it finds smithy-core and redrive."""
    able = [each for each in interpreters() if runs(each, "import sys; assert sys.version_info >= (3, 12)", "")]
    if not able:
        pytest.skip("smithy-core needs Python 3.12, and none is here: name one in REDRIVE_SMITHY_PYTHON")
    path = str(ROOT)
    for python in able:
        if runs(python, "import smithy_core.aio.client", path):
            return python, path
    folder = str(tmp_path_factory.mktemp("smithy"))
    wanted = next(
        line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("smithy-core")
    )
    kind = ["--python-version", "3.12", "--only-binary", ":all:", "--no-deps", "--target", folder]
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", *kind, wanted.split(";")[0]]
    try:
        got = subprocess.run(install, capture_output=True, timeout=60).returncode == 0
    except subprocess.TimeoutExpired:
        got = False
    if not got or not runs(able[0], "import smithy_core.aio.client", folder):
        pytest.skip(f"smithy-core is not installed for {able[0]}, and could not be had")
    return able[0], os.pathsep.join((path, folder))


async def test_a_client_of_smithy_core_takes_our_strategies(smithy: tuple[str, str]) -> None:
    python, path = smithy
    steps = []
    for most in ATTEMPTS.values():
        steps += [OK, FAILED, FAILED, OK, GONE, *[FAILED] * most]
    steps += [FAILED, FAILED, FAILED, FAILED, OK]
    async with Upstream(*steps) as upstream:
        running = await asyncio.create_subprocess_exec(
            python, str(APP), "127.0.0.1", str(upstream.port),
            env=environment(PYTHONPATH=path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(running.communicate(), 60)
    assert running.returncode == 0, err.decode()
    told = json.loads(out)
    assert told["errors"] == [True, True]
    ends = ["ok", "ok", "CallError: HTTP 404", "CallError: HTTP 503"]
    assert told["outcomes"] == dict.fromkeys(ATTEMPTS, ends)
    # A quota of 10 pays for two retries; then a call has one attempt; and a success gives 1 back.
    assert told["poor"] == ["CallError: HTTP 503", "CallError: HTTP 503", "ok"]
    assert told["left"] == 1
    assert len(upstream.requests) == len(steps)
