"""The software bill of materials of a release, in CycloneDX 1.6: `python tools/sbom.py` prints it.

What is installed with redrive: the packages of the image's locks (`lock.py`), with the licences of THIRD_PARTY.md. What
only an extra needs has the scope `optional`. The same checkout gives the same bytes: the serial number is made of the
content, and the time is $SOURCE_DATE_EPOCH, where that is set.
"""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from datetime import UTC, datetime
from typing import Any

import lock
import readme
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name


def licences() -> dict[str, tuple[str, str]]:
    """Licence and home of each package of THIRD_PARTY.md."""
    page = (lock.ROOT / "THIRD_PARTY.md").read_text()
    rows = re.findall(r"^\| ([\w.-]+) \| .+? \| (.+?) \| <(.+?)> \|$", page, re.MULTILINE)
    return {name: (licence, home) for name, licence, home in rows}


def licensed(said: str) -> dict[str, Any]:
    """A licence as CycloneDX has it: an expression of SPDX where it is one, else the name."""
    try:
        return {"expression": canonicalize_license_expression(said)}
    except InvalidLicenseExpression:
        return {"license": {"name": said}}


def purl(name: str, version: str) -> str:
    """The package URL of a Python package."""
    return f"pkg:pypi/{name}@{version}"


def component(name: str, version: str, *, required: bool) -> dict[str, Any]:
    """A package that is installed with redrive."""
    reference = purl(name, version)
    scope = "required" if required else "optional"
    made: dict[str, Any] = {"type": "library", "bom-ref": reference, "name": name, "version": version, "scope": scope}
    made["purl"] = reference
    if known := licences().get(name):
        licence, home = known
        made["licenses"] = [licensed(licence)]
        made["externalReferences"] = [{"type": "website", "url": home}]
    return made


def sbom() -> dict[str, Any]:
    """The document."""
    found: dict[str, dict[str, Any]] = {}
    for set_ in ("serve", *lock.EXTRAS):
        for each in lock.ENTRY.finditer((lock.LOCKS / f"{set_}.txt").read_text()):
            name = canonicalize_name(each["name"])
            found.setdefault(name, component(name, each["version"], required=set_ == "serve"))
    components = [found[name] for name in sorted(found)]
    version = readme.version()
    root = {
        "type": "application",
        "bom-ref": purl("redrive", version),
        "name": "redrive",
        "version": version,
        "licenses": [{"expression": "Apache-2.0"}],
        "purl": purl("redrive", version),
        "externalReferences": [{"type": "vcs", "url": readme.source()}],
    }
    metadata: dict[str, Any] = {"component": root}
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        metadata["timestamp"] = datetime.fromtimestamp(int(epoch), UTC).isoformat().replace("+00:00", "Z")
    content = {
        "metadata": metadata,
        "components": components,
        "dependencies": [
            {"ref": root["bom-ref"], "dependsOn": [each["bom-ref"] for each in components]},
            *({"ref": each["bom-ref"]} for each in components),
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return {**head, **content}


if __name__ == "__main__":
    json.dump(sbom(), sys.stdout, indent=2)
    print()
