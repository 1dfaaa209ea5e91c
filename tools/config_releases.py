"""Configuration files of releases, kept in tests/config/releases/: what each came to in its own release.

    python tools/config_releases.py 0.1 --write    keep today's examples, recipes and policy tests as those of 0.1

Beside the files stands effective.json: every effective value of each policy, as `redrive` showed it in that release. A
test says where a later redrive reads a kept file otherwise: a default that changed, a key that is refused. Only the
release itself writes a folder; afterwards it is changed by hand, for a change that is meant, with a line in
docs/guides/upgrading.md.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from proxy.admin.views import places
from proxy.config.load import load
from proxy.config.provenance import Provenance
from proxy.config.settings import Settings
from proxy.stores.redis.bucket import key_of

ROOT = Path(__file__).parent.parent
RELEASES = ROOT / "tests" / "config" / "releases"
RECIPES = ROOT / "docs" / "guides" / "recipes.md"
#: What the files take from the environment.
ENVIRON = {"KEY_A": "key-a", "KEY_B": "key-b", "REDIS_PASSWORD": "secret"}
#: The file whose values the others are told from: nothing but an upstream.
PLAIN = "plain.yaml"
#: The values of one policy by their paths; of a file by policy, "" being the top level.
Values = dict[str, str]
Effective = dict[str, Values]


def effective(file: Path) -> tuple[Effective, list[str]]:
    """The values in force under a configuration: those of the top level, of every upstream and route, and the keys of
    its buckets in Redis; and its warnings and errors, each without its place.
    """
    result = load(str(file), ENVIRON)
    problems = [f"{each.path}: {each.message}" for each in result.problems if each.severity != "note"]
    if result.settings is None:
        return {}, problems
    settings = result.settings
    found = {"": _values(settings.provenance, "", "")}
    for upstream in settings.router.upstreams:
        for policy in upstream.policies:
            name = f"{upstream.name} {policy.route}".strip()
            found[name] = _values(settings.provenance, upstream.name, policy.route)
    found["buckets in Redis"] = _redis_keys(settings)
    return found, problems


def _values(provenance: Provenance, upstream: str, route: str) -> Values:
    return {each["path"]: each["value"] for each in places(provenance, upstream, route)}


def _redis_keys(settings: Settings) -> Values:
    """By name: two releases side by side share a bucket only under one key."""
    named = {name: ref.spec for name, ref in settings.buckets.items() if ref.spec.store == "redis"}
    return {name: key_of(settings.redis.prefix, ("", name), spec) for name, spec in named.items()}


def recorded(folder: Path) -> dict[str, tuple[Effective, list[str]]]:
    """What effective.json says of each file: values and problems."""
    kept = json.loads((folder / "effective.json").read_text())
    plain: Effective = kept["plain"]
    found = {PLAIN: (plain, [])}
    for file, said in kept["files"].items():
        policies = {}
        for name, (missing, other) in said["values"].items():
            like = {} if name == "buckets in Redis" else plain["plain" if name else ""]
            policies[name] = {path: value for path, value in like.items() if path not in missing} | other
        found[file] = policies, said["problems"]
    return found


def keep(folder: Path) -> None:
    """Write the folder of a release."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "config" / "examples", folder, ignore=shutil.ignore_patterns("scenarios"))
    (folder / PLAIN).write_text("upstreams: {plain: {url: 'https://plain.example'}}\n")
    for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```$", RECIPES.read_text(), re.M | re.S), 1):
        (folder / f"recipe-{number}.yaml").write_text(text)
    plain, _ = effective(folder / PLAIN)
    files = {}
    for file in sorted(folder.glob("*.yaml")):
        found, problems = effective(file)
        values = {}
        for name, policy in found.items():
            like = {} if name == "buckets in Redis" else plain["plain" if name else ""]
            other = {path: value for path, value in policy.items() if like.get(path) != value}
            values[name] = [sorted(like.keys() - policy.keys()), other]
        if file.name != PLAIN:
            files[file.name] = {"problems": problems, "values": values}
    (folder / "effective.json").write_text(json.dumps({"plain": plain, "files": files}, indent=1) + "\n")


if __name__ == "__main__":
    release, *more = sys.argv[1:]
    if more == ["--write"]:
        keep(RELEASES / release)
    else:
        print(
            json.dumps({name: effective(RELEASES / release / name) for name in recorded(RELEASES / release)}, indent=1)
        )
