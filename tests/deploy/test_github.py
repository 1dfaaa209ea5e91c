"""The files of .github/: what their schemas say, and that they fit the repository and one another."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

ROOT = Path(__file__).parent.parent.parent
GITHUB = ROOT / ".github"
sys.path.insert(0, str(ROOT / "tools"))
import readme  # noqa: E402

WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
SCHEMAS = {
    **dict.fromkeys(WORKFLOWS, "workflow"),
    GITHUB / "dependabot.yml": "dependabot",
    GITHUB / "ISSUE_TEMPLATE/config.yml": "issue-config",
    GITHUB / "ISSUE_TEMPLATE/bug.yml": "issue-form",
    GITHUB / "ISSUE_TEMPLATE/feature.yml": "issue-form",
}
RELEASE = (GITHUB / "workflows/release.yml").read_text()


def loaded(file: Path) -> Any:
    """A file as GitHub reads it: `on` is a key, not a boolean."""
    made = yaml.safe_load(file.read_text())
    return {"on" if key is True else key: value for key, value in made.items()}


def validator(name: str) -> Draft7Validator:
    return Draft7Validator(json.loads((Path(__file__).parent / "schemas" / f"{name}.json").read_text()))


@pytest.mark.parametrize("file", SCHEMAS, ids=lambda file: file.name)
def test_files_are_valid(file: Path) -> None:
    errors = validator(SCHEMAS[file]).iter_errors(loaded(file))
    assert [f"{list(error.path)}: {error.message}" for error in errors] == []


def test_the_schemas_find_mistakes() -> None:
    job = {"runs-on": "x", "steps": [{"run": "true"}]}
    assert validator("workflow").is_valid({"on": "push", "jobs": {"a": job}})
    assert not validator("workflow").is_valid({"on": "push", "jobs": {"a": {**job, "run-on": "x"}}})
    assert not validator("dependabot").is_valid({"version": 2, "updates": [{"package-ecosystem": "pypi"}]})
    assert not validator("issue-form").is_valid({"name": "a", "description": "b", "body": []})


def test_every_file_is_checked() -> None:
    assert set(GITHUB.rglob("*.yml")) == set(SCHEMAS)


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in WORKFLOWS:
        for name, job in loaded(file)["jobs"].items():
            yield f"{file.name}: {name}", job


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in jobs():
        for step in job.get("steps", ()):
            yield name, step


def test_actions_are_pinned_by_commit() -> None:
    pinned: dict[str, set[str]] = {}
    for file in WORKFLOWS:
        for used in re.findall(r"^ *(?:- )?uses: (.+)$", file.read_text(), re.MULTILINE):
            if not used.startswith("./"):
                found = re.fullmatch(r"([\w-]+/[\w-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)", used)
                assert found is not None, f"{file.name}: {used} is not pinned by a commit, with its release beside it"
                pinned.setdefault(found[1], set()).add(found[2])
    assert all(len(each) == 1 for each in pinned.values()), pinned


def test_permissions_are_the_least() -> None:
    for file in WORKFLOWS:
        assert loaded(file)["permissions"] == {"contents": "read"}, file.name
    more = {name: job["permissions"] for name, job in jobs() if "permissions" in job}
    signs = {"id-token": "write", "attestations": "write"}
    assert more == {
        "release.yml: image": {"contents": "read", "packages": "write", **signs},
        "release.yml: index": {"id-token": "write"},
        "release.yml: github": {"contents": "write", **signs},
    }
    for name, step in steps():
        if "actions/checkout@" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False, name
        assert "${{" not in step.get("run", ""), (
            f"{name}: {step['run']}: an expression in a script can be injected into"
        )
    for name, job in jobs():
        assert "timeout-minutes" in job or "uses" in job, f"{name} may hang for hours"


def test_what_is_called_is_there() -> None:
    verbs = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, step in steps():
        for verb in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
            assert verb in verbs, f"{name}: make {verb}"
        for file in re.findall(r"\b(?:tools|scripts|deploy)/[\w./-]+", step.get("run", "")):
            assert (ROOT / file).exists(), f"{name}: {file}"
    named = set(re.findall(r"^\s*(?:if |\w+=\w+ )?make ([\w-]+)", (ROOT / ".ci/run").read_text(), re.MULTILINE))
    called = {verb for name, step in steps() for verb in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))}
    assert named == {"check", "core", "test-all"} <= called, "what .ci/run asks for"
    for update in loaded(GITHUB / "dependabot.yml")["updates"]:
        for folder in update.get("directories", [update.get("directory")]):
            assert (ROOT / folder.strip("/")).is_dir(), folder


def test_the_matrix_is_every_python_in_both_cores() -> None:
    matrix = loaded(GITHUB / "workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    named = set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text()))
    assert set(matrix["python"]) == named
    assert matrix["core"] == ["python", "compiled"]


def test_the_base_of_a_released_image_is_named_by_its_digest(tmp_path: Path) -> None:
    """The step's own script, with a docker that knows a digest and one that does not."""
    (step,) = [step for _, step in steps() if step.get("id") == "base"]
    (build,) = [step for _, step in steps() if "build-push-action" in step.get("uses", "")]
    assert "PYTHON_IMAGE=${{ steps.base.outputs.name }}" in build["with"]["build-args"]
    assert build["with"]["platforms"] == "linux/amd64,linux/arm64"
    assert build["with"]["sbom"] is True and build["with"]["provenance"] == "mode=max"
    arguments = re.findall(r"^(\w+)=", build["with"]["build-args"], re.MULTILINE)
    taken = set(re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert set(arguments) - taken == {"SOURCE_DATE_EPOCH"}, "an argument that the Dockerfile does not take"
    sh = shutil.which("bash")
    assert sh is not None
    output = tmp_path / "output"
    for digest, status in (("sha256:" + "a" * 64, 0), ("", 1)):
        output.write_text("")
        script = f"docker() {{ echo '{digest}'; }}\nGITHUB_OUTPUT={output} GITHUB_STEP_SUMMARY=/dev/null\n{step['run']}"
        done = subprocess.run([sh, "-e", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        named = r"name=\S+/python:[\w.-]+@sha256:a{64}\n" if digest else ""
        assert re.fullmatch(named, output.read_text())


def test_the_tags_of_an_image() -> None:
    (step,) = [step for _, step in steps() if step.get("id") == "names"]
    sh = shutil.which("bash")
    assert sh is not None

    def tags(version: str) -> list[str]:
        script = f"IMAGE=r.example/o/redrive VERSION={version} GITHUB_OUTPUT=/dev/stdout\n{step['run']}"
        done = subprocess.run([sh, "-e", "-c", script], capture_output=True, text=True, check=True)
        host, *lines = done.stdout.splitlines()
        assert (host, lines[0], lines[-1]) == ("host=r.example", "tags<<END", "END")
        return [line.rpartition(":")[2] for line in lines[1:-1]]

    assert tags("1.2.3") == ["1.2.3", "1.2", "latest"]
    assert tags("1.2.3rc1") == ["1.2.3rc1"], "a release candidate is not the latest"


def test_links_of_templates_lead_to_the_repository() -> None:
    for link in loaded(GITHUB / "ISSUE_TEMPLATE/config.yml")["contact_links"]:
        assert link["url"].startswith(readme.source() + "/")
        if "/blob/main/" in link["url"]:
            assert (ROOT / link["url"].partition("/blob/main/")[2]).is_file()
