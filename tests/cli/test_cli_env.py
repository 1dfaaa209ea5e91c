"""`redrive env`: what each shell makes of the lines."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from proxy.app_env import NO_PROXY, NotWritableError, lines
from proxy.cli import main

#: What a path may hold, and a shell reads as something else.
NASTY = '/it\'s "here" $HOME $(id) `id` %PATH% \\n\\\\ ‘a’ ; & | # ! * ~ {a,b} é/x'
RUNS = {
    "sh": ["sh", "-c", 'eval "$(cat "$1")"; printf %s "$A"', "sh"],
    "fish": ["fish", "--no-config", "-c", 'source $argv[1]; printf %s "$A"'],
    "powershell": ["pwsh", "-NoProfile", "-NonInteractive", "-File"],
}
#: Their rules, for machines without them.
WRITTEN = {
    "sh": """export A='/it'"'"'s \"here\" $HOME $(id) `id` %PATH% \\n\\\\ ‘a’ ; & | # ! * ~ {a,b} é/x'""",
    "fish": """set -gx A '/it\\'s \"here\" $HOME $(id) `id` %PATH% \\\\n\\\\\\\\ ‘a’ ; & | # ! * ~ {a,b} é/x';""",
    "powershell": """$env:A = '/it''s \"here\" $HOME $(id) `id` %PATH% \\n\\\\ ‘‘a’’ ; & | # ! * ~ {a,b} é/x'""",
}
UNSET = {"sh": "unset A", "fish": "set -e A;", "powershell": "Remove-Item Env:A -ErrorAction Ignore"}


@pytest.mark.parametrize("shell", RUNS)
def test_a_value_is_quoted_by_the_shells_own_rules(shell: str, tmp_path: Path) -> None:
    assert list(lines({"A": NASTY}, shell)) == [WRITTEN[shell]]
    assert list(lines({"A": None}, shell)) == [UNSET[shell]]


@pytest.mark.parametrize("shell", RUNS)
def test_the_shell_itself_reads_it_so(shell: str, tmp_path: Path) -> None:
    command = RUNS[shell]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    script = tmp_path / "lines.ps1"
    text = "\n".join(lines({"A": NASTY}, shell)) + "\n"
    script.write_text(text + ("[Console]::Out.Write($env:A)\n" if shell == "powershell" else ""))
    done = subprocess.run([*command, script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (NASTY, "")
    script.write_text(text + "\n".join(lines({"A": None}, shell)) + "\n")
    done = subprocess.run([*command, script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


def test_dotenv_is_written_only_where_all_readers_agree() -> None:
    assert list(lines({"A": "http://127.0.0.1:8080", "B": "a b#c$d"}, "dotenv")) == [
        "A=http://127.0.0.1:8080",
        "B='a b#c$d'",
    ]
    for value in ("it's", "a\\b", "a\nb"):
        with pytest.raises(NotWritableError, match=r"^A contains a quote, a backslash or a line end"):
            list(lines({"A": value}, "dotenv"))


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDRIVE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    proxies = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "grpc_proxy"]
    names = [*proxies, "NO_PROXY", "no_proxy", "no_grpc_proxy", "NODE_USE_ENV_PROXY"]

    def printed(*typed: str) -> list[str]:
        assert main(["env", *typed]) == 0
        return capsys.readouterr().out.splitlines()

    assert printed() == printed("--shell", "sh")
    assert [line.partition("=")[0] for line in printed("--shell", "dotenv")] == names
    assert printed("--shell", "fish")[0] == "set -gx HTTP_PROXY 'http://127.0.0.1:8080';"
    assert printed("--shell", "powershell")[0] == "$env:HTTP_PROXY = 'http://127.0.0.1:8080'"
    assert printed("--unset") == [f"unset {name}" for name in names]
    assert printed("--unset", "--java") == [f"unset {name}" for name in (*names, "JAVA_TOOL_OPTIONS")]
    assert printed("--java")[-1] == (
        "export JAVA_TOOL_OPTIONS='-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=8080 -Dhttps.proxyHost=127.0.0.1 "
        "-Dhttps.proxyPort=8080 -Dhttp.nonProxyHosts=localhost|127.0.0.1|[::1]|169.254.169.254|169.254.170.2|"
        "[fd00:ec2::254]|168.63.129.16|100.100.100.200|metadata.google.internal'"
    )
    assert "grpc_proxy=http://127.0.0.1:8080" in printed("--shell", "dotenv")
    assert main(["env", "--unset", "--shell", "dotenv"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "redrive: a .env file can't unset a variable: leave its lines out\n")


def test_nothing_half_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "it's"
    folder.mkdir()
    file = folder / "redrive.yaml"
    file.write_text("upstreams: {a: {url: 'https://a.example', connect: intercept}}\n")
    assert main(["env", "--shell", "dotenv", "-c", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "readers of .env" in err.splitlines()[-1]


def test_what_was_set_before_is_kept_and_given_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "REDRIVE_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def evaluated(*typed: str) -> str:
        """What the shell has after the lines were evaluated, which becomes our environment."""
        assert main(["env", *typed]) == 0
        printed = capsys.readouterr()
        names = ("HTTP_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "REDRIVE_SAVED_HTTP_PROXY")
        script = "\n".join([printed.out, *(f'printf "%s\\n" "${{{name}-(unset)}}"' for name in names)])
        found = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
        for name, value in zip(names, found, strict=True):
            monkeypatch.delenv(name, raising=False) if value == "(unset)" else monkeypatch.setenv(name, value)
        saved = [line for line in printed.out.splitlines() if "REDRIVE_SAVED_" in line]
        for line in saved:
            name, equals, value = shlex.split(line)[1].partition("=")
            monkeypatch.setenv(name, value) if equals else monkeypatch.delenv(name, raising=False)
        return printed.err

    corporate = "http://user:secret@proxy.corp:3128"
    monkeypatch.setenv("HTTP_PROXY", corporate)
    monkeypatch.setenv("no_proxy", "db.internal, localhost")
    for _ in range(2):  # twice is as once
        said = evaluated()
        assert os.environ["HTTP_PROXY"] == os.environ["https_proxy"] == "http://127.0.0.1:8080"
        # Python reads no_proxy before NO_PROXY, others the reverse: what one named, the other must name too.
        assert os.environ["NO_PROXY"] == os.environ["no_proxy"] == f"db.internal,{NO_PROXY}"
        assert (
            "redrive: this replaces the proxy http://proxy.corp:3128 (HTTP_PROXY); if requests must go through it, add "
            "`via_proxy: http://proxy.corp:3128` to the configuration"
        ) in said
        assert "secret" not in said
    evaluated("--unset")
    assert (os.environ["HTTP_PROXY"], os.environ["no_proxy"]) == (corporate, "db.internal, localhost")
    assert "NO_PROXY" not in os.environ
    assert "https_proxy" not in os.environ
    assert not [name for name in os.environ if name.startswith("REDRIVE_SAVED_")]


def test_a_proxy_that_is_the_parent_is_not_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("via_proxy: http://proxy.corp:3128\n")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.corp:3128")
    assert main(["env", "-c", str(file)]) == 0
    assert "replaces" not in capsys.readouterr().err


def test_java_trusts_the_local_ca_and_keeps_its_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(
        "upstreams: {a: {url: https://a.example, connect: intercept}}\nca: {cert: c/cert.pem, key: c/key.pem}\n"
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx64m")
    assert main(["env", "-c", str(file), "--java"]) == 0
    printed = capsys.readouterr()
    (line,) = [line for line in printed.out.splitlines() if line.startswith("export JAVA_TOOL_OPTIONS=")]
    store = tmp_path / "c" / "truststore.p12"
    assert line.startswith("export JAVA_TOOL_OPTIONS='-Xmx64m -Dhttp.proxyHost=127.0.0.1 ")
    assert line.endswith(
        f" -Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStoreType=PKCS12"
        " -Djavax.net.ssl.trustStorePassword=changeit'"
    )
    assert f"missing: {store}: run redrive ca export --to {store.parent} to make it" in printed.err
    assert "proxyUser" not in line
    assert main(["env", "-c", str(file), "--java", "--app", "batch"]) == 0
    named = capsys.readouterr().out
    for scheme in ("http", "https"):
        assert f" -D{scheme}.proxyUser=batch -D{scheme}.proxyPassword=x " in named


@pytest.mark.parametrize(
    ("apps", "said"),
    [
        ("", "has no effect without the section apps, whose `known` lists the apps"),
        ("{by: [unix_user], known: {web: {}}}", "has no effect: apps.by does not list proxy_user"),
        ("{known: {web: {}}}", "wbe is not in apps.known: its calls count as those of others (did you mean web?)"),
        ("{known: {wbe: {}}}", ""),
    ],
)
def test_a_name_that_will_not_count_is_told(
    apps: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(f"apps: {apps}\n")
    assert main(["env", "-c", str(file), "--app", "wbe"]) == 0
    printed = capsys.readouterr()
    assert "HTTP_PROXY=http://wbe:x@" in printed.out
    assert [line for line in printed.err.splitlines() if "--app" in line] == (
        [f"redrive: --app wbe: {said}"] if said else []
    )


@pytest.mark.parametrize(
    ("by", "app", "port", "said"),
    [
        ("[listener, proxy_user]", "batch", 8082, ""),
        ("[listener, proxy_user]", "web", 8081, ""),
        ("[listener, proxy_user]", "cron", 8083, ""),
        ("[listener]", "batch", 8082, ""),
        ("[proxy_user, listener]", "batch", 8081, ""),
        (
            "[listener]",
            "cron",
            8081,
            "127.0.0.1:8081 names it web first: give it a listener of its own, or one without",
        ),
    ],
)
def test_an_app_is_sent_where_it_is_known_by_its_name(
    by: str, app: str, port: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a listener says comes first: at the first one, every app would be counted as web."""
    file = tmp_path / "redrive.yaml"
    own = '{address: "127.0.0.1:8081", app: web}, {address: "127.0.0.1:8082", app: batch}'
    file.write_text(
        f"listen: [unix:x, {own}, 127.0.0.1:8083]\napps: {{by: {by}, known: {{web: {{}}, batch: {{}}, cron: {{}}}}}}\n"
    )
    assert main(["env", "-c", str(file), "--app", app]) == 0
    printed = capsys.readouterr()
    assert f"export HTTP_PROXY=http://{app}:x@127.0.0.1:{port}\n" in printed.out
    told = [line for line in printed.err.splitlines() if "--app" in line]
    assert len(told) == bool(said) and all(line.startswith(f"redrive: --app {app}: {said}") for line in told)


def test_an_empty_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A variable of the script that is not set, say: the app would be counted among the others, and nothing said so."""
    file = tmp_path / "redrive.yaml"
    file.write_text("listen: 127.0.0.1:8080\n")
    assert main(["env", "-c", str(file), "--app", ""]) == 2
    assert "--app '': a name has letters" in capsys.readouterr().err
