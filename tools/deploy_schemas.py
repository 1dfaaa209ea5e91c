"""Cut the schemas that the files of deploy/ and .github/ are checked against out of two packages of PyPI.

    pip install --target DIR --no-deps kubernetes-validate check-jsonschema
    python tools/deploy_schemas.py DIR

Both carry them for their own use (Apache-2.0): kubernetes-validate those of every Kubernetes release, strict ones that
know no further keys, check-jsonschema those of the compose specification and, from SchemaStore, of GitHub's files. Here
they lie cut down to the kinds that deploy/ uses, without descriptions, so that checking needs no network and no 17,000
files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent / "tests" / "deploy" / "schemas"
RELEASE = "v1.33.0"  # where native sidecars became stable
KINDS = {
    "ConfigMap": "configmap-v1",
    "Deployment": "deployment-apps-v1",
    "Namespace": "namespace-v1",
    "NetworkPolicy": "networkpolicy-networking-v1",
    "Pod": "pod-v1",
    "PodDisruptionBudget": "poddisruptionbudget-policy-v1",
    "Service": "service-v1",
    "ServiceAccount": "serviceaccount-v1",
}


def plain(value: Any) -> Any:
    """A schema without its prose; a property may be called description, and stays."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, below in value.items():
        if key in ("description", "$schema", "title", "$id") and isinstance(below, str):
            continue
        if key in ("properties", "definitions", "$defs", "patternProperties") and isinstance(below, dict):
            kept[key] = {name: plain(schema) for name, schema in below.items()}
        else:
            kept[key] = plain(below)
    return kept


def named(value: Any) -> set[str]:
    """The definitions that a schema refers to."""
    if isinstance(value, list):
        return set().union(*(named(each) for each in value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*(named(each) for each in value.values()))
    reference = value.get("$ref")
    return found | {reference.rpartition("/")[2]} if isinstance(reference, str) else found


def local(value: Any) -> Any:
    """References into this document."""
    text = json.dumps(value).replace("/api/_definitions.json#/$defs/", "#/$defs/")
    return json.loads(text)


def kubernetes(folder: Path) -> dict[str, Any]:
    """The kinds, and all they refer to."""
    schemas = folder / "kubernetes_validate/kubernetes-json-schema" / f"{RELEASE}-local-strict"
    every = json.loads((schemas / "_definitions.json").read_text())["$defs"]
    kinds = {kind: plain(json.loads((schemas / f"{file}.json").read_text())) for kind, file in KINDS.items()}
    wanted, kept = list(named(list(kinds.values()))), {}
    while wanted:
        name = wanted.pop()
        if name not in kept:
            kept[name] = plain(every[name])
            wanted += named(kept[name])
    return {"kinds": local(kinds), "$defs": local(dict(sorted(kept.items())))}


#: Schemas that check-jsonschema has, and what they are called here.
VENDORED = {
    "compose": "compose-spec",
    "workflow": "github-workflows",
    "dependabot": "dependabot",
    "issue-form": "github-issue-forms",
    "issue-config": "github-issue-config",
}


def main() -> None:
    """Write all; those of Kubernetes where kubernetes-validate is in the folder."""
    folder = Path(sys.argv[1])
    vendor = folder / "check_jsonschema/builtin_schemas/vendor"
    schemas = {name: plain(json.loads((vendor / f"{file}.json").read_text())) for name, file in VENDORED.items()}
    if (folder / "kubernetes_validate").exists():
        schemas["kubernetes"] = kubernetes(folder)
    for name, schema in schemas.items():
        (HERE / f"{name}.json").write_text(json.dumps(schema, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
