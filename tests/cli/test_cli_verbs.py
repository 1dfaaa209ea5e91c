"""The command line, in this process: what it says, where, and with which exit status."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from proxy import __version__, cli
from proxy.cli import main
from proxy.extras import NEEDED
from proxy.wire.http1.compiled import CORE

SMALL = "upstreams: {a: {url: 'http://a.example'}, b: {url: 'http://b.example', strategy: none}}\n"


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REDRIVE_CONFIG", "AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "redrive.yaml"
    made.write_text(SMALL)
    return made


@pytest.mark.parametrize(
    "line",
    ["run", "run -c a.yaml", "run --config a.yaml", "run -ca.yaml", "run --config=a.yaml", "run -c -"],
)
def test_usual_command_lines_mean_what_the_parser_of_all_verbs_reads(line: str) -> None:
    words = shlex.split(line)
    usual = cli._usual_run(words)
    assert (usual is None) == (len(words) == 2 or words[-1] == "-")
    assert usual is None or vars(usual) == vars(cli._parser().parse_args(words))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ru",
        "run -c",
        "run -c ''",
        "run --help",
        "run --take-over",
        "run -c --take-over",
        "run -c a.yaml b.yaml",
        "check",
    ],
)
def test_all_other_command_lines_are_left_to_the_parser_of_all_verbs(line: str) -> None:
    assert cli._usual_run(shlex.split(line)) is None


def test_no_verb_a_wrong_one_and_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([]) == 2
    assert "usage: redrive" in capsys.readouterr().err
    for arguments in (["fly"], ["check", "--wrong"], ["test"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 2
        assert capsys.readouterr().out == ""
    assert CORE in ("compiled", "Python")
    for warning, said in (("", ""), ("the compiled core is old", ", older than its source: run `make core`")):
        monkeypatch.setattr("proxy.stale_build.warning", lambda warning=warning: warning)
        with pytest.raises(SystemExit) as left:
            main(["--version"])
        assert left.value.code == 0
        assert capsys.readouterr().out == f"redrive {__version__} ({CORE} core{said})\n"


def test_a_package_that_is_missing_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an environment that was made for something else, say. A module of redrive's own is another matter."""
    for name in [name for name in sys.modules if f"{name}.".startswith("proxy.top.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["top", "-c", str(file)]) == 2
    said = (
        "the package rich is not installed, which redrive needs: in a checkout make venv, or for an environment of "
        "your own pip install ."
    )
    assert capsys.readouterr() == ("", f"redrive: {said}\n")
    monkeypatch.setitem(sys.modules, "proxy.top", None)
    with pytest.raises(ModuleNotFoundError, match=r"proxy\.top"):
        main(["top", "-c", str(file)])


@pytest.mark.parametrize("verb", ["top", "why", "requests"])
def test_a_file_that_has_errors_by_now_does_not_hide_the_redrive_that_runs(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "redrive.yaml"
    broken.write_text("workers: many\n")
    assert main([verb, "-c", str(broken)]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith(f"{broken}:1:10: workers: ")
    assert hint == "redrive: a redrive that still runs with the earlier file is asked with --admin http://HOST:PORT"


def test_every_package_that_redrive_depends_on_is_named_by_the_module_that_it_has() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert sorted(NEEDED.values()) == sorted(re.split(r"[^\w.-]", each)[0] for each in project["dependencies"])
    assert [module for module in NEEDED if find_spec(module) is None] == []


@pytest.mark.parametrize(
    ("typed", "printed"),
    [
        (["rnu"], "there is no verb rnu (did you mean run?); redrive --help says more"),
        (["serve"], "there is no verb serve (did you mean run?); redrive --help says more"),
        (["logs"], "there is no verb logs (did you mean requests --follow?); redrive --help says more"),
        (["fly"], "there is no verb fly; redrive --help says more"),
        (["ca", "shwo"], "there is no verb shwo (did you mean show?); redrive ca --help says more"),
        (["run", "-c"], "-c/--config needs a value; redrive run --help says more"),
        (
            ["env", "--shell", "bash"],
            "--shell takes one of sh, fish, powershell, dotenv, not bash; redrive env --help says more",
        ),
        (["run", "--prot", "1"], "unrecognized arguments: --prot 1; redrive run --help says more"),
        (
            ["run", "my.yaml"],
            "unrecognized arguments: my.yaml (did you mean -c my.yaml?); redrive run --help says more",
        ),
        (
            ["simulate", "my.yaml"],
            "unrecognized arguments: my.yaml (did you mean --scenario my.yaml?); redrive simulate --help says more",
        ),
        (
            ["test", "-c", "my.yaml", "tests.yaml"],
            "unrecognized arguments: -c (a policy test names its configuration under config:); "
            "redrive test --help says more",
        ),
        (["why", "abc"], "ID takes a number from 1 on, not abc; redrive why --help says more"),
        (["why", "-1"], "ID takes a number from 1 on, not -1; redrive why --help says more"),
        (["requests", "--limit", "0"], "--limit takes a number from 1 on, not 0; redrive requests --help says more"),
        (["ca", "show", "all"], "unrecognized arguments: all; redrive ca show --help says more"),
        (["explain", "GET"], "the following arguments are required: URL; redrive explain --help says more"),
        (
            ["explain", "http://a.test/"],
            "the following arguments are required: URL (METHOD comes first: redrive explain GET http://a.test/); "
            "redrive explain --help says more",
        ),
        (
            ["explain", "--satus", "503", "GET", "http://a.test/"],
            "unrecognized arguments: --satus http://a.test/ (did you mean --status?); redrive explain --help says more",
        ),
        (["run", "-c", ""], "-c/--config names no file: it is empty; redrive run --help says more"),
        (["ca"], "the following arguments are required: VERB (one of init, show, export); redrive ca --help says more"),
        (
            ["completion"],
            "the following arguments are required: SHELL (one of bash, zsh, fish); redrive completion --help says more",
        ),
        (
            ["demo", "--seconds", "x"],
            "--seconds takes a number of seconds from 1 to 86400, not x; redrive demo --help says more",
        ),
    ],
)
def test_bad_usage_is_a_line_with_the_remedy(
    typed: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(typed)
    assert left.value.code == 2
    assert capsys.readouterr().err == f"redrive: {printed}\n"


def test_help_says_where_the_examples_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("examples:")]
    assert (Path(line.split()[1]) / "reference.yaml").is_file()


def test_a_good_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-c", str(file)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{file}: fine, 2 upstreams\n"
    taken, *notes = printed.err.splitlines()
    assert taken == f"redrive: configuration: {file}"
    assert all(": note: " in line for line in notes)


def test_no_file_means_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "the defaults: fine, 0 upstreams\n"
    taken, warning = printed.err.splitlines()
    assert taken.startswith("redrive: configuration: the defaults (there is no redrive.yaml, no config/redrive.yaml")
    assert warning.startswith("redrive: warning: no configuration file was found")


def test_which_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").mkdir()
    for name in ("redrive.yaml", "config/redrive.yaml", "env.yaml", "given.yaml"):
        (tmp_path / name).write_text(SMALL)

    def taken(*more: str) -> tuple[str, str]:
        assert main(["check", *more]) == 0
        out, err = capsys.readouterr()
        return out.partition(": fine")[0], err.splitlines()[0].removeprefix("redrive: configuration: ")

    assert taken() == ("redrive.yaml", "redrive.yaml")
    (tmp_path / "redrive.yaml").unlink()
    assert taken() == ("config/redrive.yaml", "config/redrive.yaml")
    monkeypatch.setenv("REDRIVE_CONFIG", "env.yaml")
    assert taken() == ("env.yaml", "env.yaml (from $REDRIVE_CONFIG)")
    assert taken("-c", "given.yaml") == ("given.yaml", "given.yaml")


@pytest.mark.parametrize(
    "typed",
    [["check"], ["explain", "GET", "http://a.example/"], ["env"], ["env", "--unset"], ["healthcheck"], ["ca", "show"]],
    ids=" ".join,
)
def test_every_verb_says_which_file_it_took(typed: list[str], file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("admin: 127.0.0.1:1\n" + SMALL)
    main(typed)
    assert capsys.readouterr().err.splitlines()[0] == "redrive: configuration: redrive.yaml"
    file.unlink()
    main(typed)
    assert capsys.readouterr().err.splitlines()[0].startswith("redrive: configuration: the defaults (there is no ")


def test_simulate_says_which_file_it_took(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = file.with_name("scenario.yaml")
    scenario.write_text("duration: 10s\ncalls: 1/s\nupstream: {latency: 50ms}\n")

    def played(policy: str) -> str:
        assert main(["simulate", "--scenario", str(scenario), "--json"]) == 0
        out, err = capsys.readouterr()
        assert policy in [each["name"] for each in json.loads(out)["columns"]]
        return err.splitlines()[0]

    assert played("a: standard") == "redrive: configuration: redrive.yaml"
    file.unlink()
    assert played("defaults: standard").startswith("redrive: configuration: the defaults (there is no ")


def test_simulate_without_a_scenario_plays_a_restart_and_says_so(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--json"]) == 0
    out, err = capsys.readouterr()
    played = next(line for line in err.splitlines() if line.startswith("redrive: scenario: "))
    assert "/scenarios/restart.yaml (--scenario FILE for another" in played
    figures = json.loads(out)
    assert figures["scenario"] == "a restart"
    share = {each["name"]: each["success_rate"] for each in figures["columns"]}
    assert share["a: standard"] > 0.99 > 0.95 > share["none"], "worth seeing"


@pytest.mark.parametrize(
    "verb", [["check"], ["env"], ["explain", "GET", "http://a.example/"], ["run"], ["healthcheck"]], ids=" ".join
)
def test_which_file_was_refused(
    verb: list[str], file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("lisen: 127.0.0.1:1\n")
    assert main(verb) == 2
    taken, line = capsys.readouterr().err.splitlines()
    assert taken == "redrive: configuration: redrive.yaml"
    assert line.startswith("redrive.yaml:1:1: lisen: ")
    monkeypatch.setenv("REDRIVE_CONFIG", "redrive.yaml")
    assert main(verb) == 2
    assert capsys.readouterr().err.splitlines()[0] == "redrive: configuration: redrive.yaml (from $REDRIVE_CONFIG)"
    assert main([*verb, "-c", "redrive.yaml"]) == 2  # who named it knows it, and its errors begin with its name
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("redrive.yaml:1:1: lisen: ")


def test_every_error_is_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        "lisen: 127.0.0.1:1\nupstreams:\n  a: {url: 'http://x.example', strategie: none}\ndrain: 5 parsecs\n"
    )
    assert main(["check", "-c", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert [line.split(": ")[0].removeprefix(str(file)).split(":")[1] for line in lines] == ["1", "3", "4"]
    assert "did you mean listen?" in lines[0]
    assert "did you mean strategy?" in lines[1]


def test_the_schema_is_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    import jsonschema

    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.validators.validator_for(schema).check_schema(schema)


def test_env(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("listen: ['unix:/tmp/x', '0.0.0.0:8088']\nadmin: off\n")
    assert main(["env", "-c", str(file)]) == 0
    lines = dict(line.removeprefix("export ").split("=", 1) for line in capsys.readouterr().out.splitlines())
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "grpc_proxy"):
        assert lines[name] == "http://127.0.0.1:8088"
    for name in ("NO_PROXY", "no_proxy", "no_grpc_proxy"):
        assert {"localhost", "127.0.0.1", "::1", "169.254.169.254"} <= set(lines[name].split(","))
    file.write_text("listen: 'unix:/tmp/x'\n")
    assert main(["env", "-c", str(file)]) == 2
    assert "no listener has a TCP port" in capsys.readouterr().err


def test_health_of_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("admin: 127.0.0.1:1\n")
    assert main(["healthcheck", "-c", str(file)]) == 1
    assert capsys.readouterr().err.splitlines()[1].startswith("redrive: nothing answers at 127.0.0.1:1")
    file.write_text("admin: off\n")
    assert main(["healthcheck", "-c", str(file)]) == 2


def test_policy_tests(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
config: redrive.yaml
tests:
  - name: ridden out
    calls:
      - request: {method: GET, url: "http://a.example/"}
        attempts: [{status: 503}, {status: 200}]
        expect: {attempts: %d}
"""
    (tmp_path / "good.yaml").write_text(text % 2)
    (tmp_path / "bad.yaml").write_text(text % 3)
    assert main(["test", str(tmp_path / "good.yaml")]) == 0
    assert main(["test", str(tmp_path / "good.yaml"), str(tmp_path / "bad.yaml")]) == 1
    capsys.readouterr()
    assert main(["test", str(tmp_path / "none.yaml")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_checking_imports_no_server(file: Path) -> None:
    code = (
        "import sys; from proxy.cli import main; status = main(['check', '-c', sys.argv[1]]); "
        "print([m for m in ('aiohttp', 'uvloop', 'prometheus_client', 'rich', 'asyncio') if m in sys.modules]); "
        "sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]"), done.stderr


def test_a_reader_that_has_seen_enough(file: Path) -> None:
    (file.parent / "tests.yaml").write_text(
        "config: {upstreams: {a: {url: 'http://a.example'}}}\n"
        "tests:\n  - name: a success\n    calls: [{request: {url: 'http://a.example/'}, attempts: [{status: 200}]}]\n"
    )
    for typed in ("schema", "test tests.yaml", "demo --json --seconds 1"):
        reading, writing = os.pipe()
        os.close(reading)
        command = [sys.executable, "-m", "proxy", *typed.split()]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writing)
        assert (typed, done.returncode, done.stderr) == (typed, 0, "")


def test_output_that_can_not_be_written_is_one_line(file: Path) -> None:
    for redirect, status, printed in (
        (">/dev/full", 2, "redrive: no space left on device\n"),
        (">&-", 0, ""),
    ):
        command = f"'{sys.executable}' -m proxy schema {redirect}"
        done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (status, printed)


def test_names_that_are_no_utf8_and_terminals_without_our_signs(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.yaml")).write_text(SMALL)
    ascii_alone = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for typed in ([b"check", b"-c", b"\xff.yaml"], [b"explain", b"GET", b"http://a.example/\xff", b"--status", b"503"]):
        done = subprocess.run(
            [sys.executable, "-m", "proxy", *typed],
            env=ascii_alone,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
