"""`redrive ca` and `redrive env`: what is printed, where, and what it is worth to a shell."""

from __future__ import annotations

import shlex
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12

from proxy.cli import main
from proxy.extras import remedy

BUNDLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)
INTERCEPTING = "upstreams: {a: {url: 'https://a.example', connect: intercept}, b: {url: 'https://b.example'}}\n"
BLIND = "upstreams: {a: {url: 'https://a.example', connect: tunnel}}\n"


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDRIVE_CONFIG", "AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "it's a folder"  # paths are quoted for a shell
    folder.mkdir()
    made = folder / "redrive.yaml"
    made.write_text(INTERCEPTING)
    return made


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """Standard output, and the lines of standard error without what is said of the configuration."""
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "PRIVATE" not in out + err
    of_the_file = (": warning: ", ": note: ", "redrive: configuration: ")
    return out, [line for line in err.splitlines() if not any(mark in line for mark in of_the_file)]


def test_init_show_export(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = file.parent / "ca"
    assert main(["ca", "init", "-c", str(file), "--for", "a.example", "b.example", "--for", "10.0.0.1"]) == 0
    out, err = printed(capsys)
    assert f"{folder}/cert.pem" in out
    assert "a.example, b.example, 10.0.0.1/32" in out
    assert all(line.startswith("redrive: ") for line in err)
    assert stat.S_IMODE((folder / "key.pem").stat().st_mode) == 0o600

    assert main(["ca", "show", "-c", str(file)]) == 0
    assert printed(capsys) == (out, [])

    assert main(["ca", "export", "-c", str(file)]) == 0
    assert printed(capsys) == ((folder / "cert.pem").read_text(), [])

    bundle = (folder / "bundle.pem").read_text()
    assert main(["ca", "export", "--bundle", "-c", str(file)]) == 0
    assert printed(capsys)[0] == bundle
    last = x509.load_pem_x509_certificate(bundle[bundle.rindex("-----BEGIN") :].encode())
    assert last.subject.rfc4514_string() in out

    key = (folder / "key.pem").read_bytes()
    assert main(["ca", "init", "-c", str(file)]) == 2
    assert printed(capsys)[1] == [
        f"redrive: {folder}/key.pem already exists and is left alone: remove it by hand to make a new CA"
    ]
    assert (folder / "key.pem").read_bytes() == key


def test_init_where_there_may_be_one_already(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What starts with a machine, or with `docker compose up`, says the same each time."""
    assert main(["ca", "init", "--if-missing", "--for", "a.example", "-c", str(file)]) == 0
    out, _ = printed(capsys)
    key = (file.parent / "ca/key.pem").read_bytes()
    assert main(["ca", "init", "--if-missing", "--for", "a.example", "-c", str(file)]) == 0
    assert printed(capsys) == (out, [])
    assert (file.parent / "ca/key.pem").read_bytes() == key
    (file.parent / "ca/cert.pem").unlink()
    assert main(["ca", "init", "--if-missing", "-c", str(file)]) == 2
    assert printed(capsys) == ("", [f"redrive: {file.parent}/ca/cert.pem: there is no local CA yet: redrive ca init"])


def test_an_earlier_ca_for_other_hosts_is_not_taken(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ca", "init", "--for", "a.example", "10.0.0.0/8", "-c", str(file)]) == 0
    printed(capsys)
    assert main(["ca", "init", "--if-missing", "--for", "a.example", "x.a.example", "-c", str(file)]) == 0
    printed(capsys)
    for hosts, missing in ((["--for", "b.example"], "b.example"), ([], "any host")):
        assert main(["ca", "init", "--if-missing", *hosts, "-c", str(file)]) == 2
        assert printed(capsys)[1] == [
            f"redrive: {file.parent}/ca/cert.pem already exists and is not for {missing}: remove it and its key by "
            "hand to make a new CA"
        ]


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_export_to_a_folder(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """All that apps in other containers need, and not the key."""
    assert main(["ca", "init", "-c", str(file)]) == 0
    printed(capsys)
    folder = tmp_path / "trust/here"
    for _ in range(2):  # what is there is replaced
        assert main(["ca", "export", "--to", str(folder), "-c", str(file)]) == 0
        out, err = printed(capsys)
        assert out == ""
        assert err[0] == f"redrive: written: {folder}/cert.pem, {folder}/bundle.pem, {folder}/truststore.p12"
    for name in ("cert.pem", "bundle.pem"):
        assert (folder / name).read_bytes() == (file.parent / "ca" / name).read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == ["bundle.pem", "cert.pem", "truststore.p12"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}
    kept = pkcs12.load_pkcs12((folder / "truststore.p12").read_bytes(), b"changeit")
    assert kept.key is None
    bundled = x509.load_pem_x509_certificates((folder / "bundle.pem").read_bytes())
    assert {one.certificate for one in kept.additional_certs} == set(bundled)


def test_export_where_nothing_may_be_written(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ca", "init", "-c", str(file)]) == 0
    printed(capsys)
    assert main(["ca", "export", "--to", f"{file}/trust", "-c", str(file)]) == 2
    assert printed(capsys) == ("", [f"redrive: {file}/trust: Not a directory"])


def test_where_the_file_says(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("ca: {cert: ../pub/c.pem, key: ../sec/k.pem}\n" + INTERCEPTING)
    assert main(["ca", "init", "-c", str(file)]) == 0
    above = file.parent.parent
    assert sorted(path.name for path in (above / "pub").iterdir()) == ["bundle.pem", "c.pem"]
    assert [path.name for path in (above / "sec").iterdir()] == ["k.pem"]
    out = printed(capsys)[0]
    assert main(["env", "-c", str(file)]) == 0
    lines = printed(capsys)[0]
    assert "pub/bundle.pem" in lines
    assert "pub/c.pem" in lines
    assert "any host" in out


@pytest.mark.parametrize("verb", [["show"], ["export"], ["export", "--bundle"], ["export", "--to", "x"]])
def test_before_there_is_a_ca(file: Path, verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ca", *verb, "-c", str(file)]) == 2
    assert printed(capsys) == ("", [f"redrive: {file.parent}/ca/cert.pem: there is no local CA yet: redrive ca init"])


def test_what_is_no_host(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ca", "init", "--for", "https://a.example", "-c", str(file)]) == 2
    assert printed(capsys)[1] == ["redrive: --for https://a.example: neither a host name, an address nor a network"]
    assert not (file.parent / "ca").exists()


def test_a_wrong_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["ca"], ["ca", "fly"], ["ca", "init", "--for"], ["ca", "export", "--bundle", "--to", "x"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 2
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize("verb", [["init"], ["show"], ["export"]])
def test_without_the_extra(
    file: Path, verb: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.server.intercept.is_installed", lambda extra: False)
    assert main(["ca", *verb, "-c", str(file)]) == 2
    assert printed(capsys) == (
        "",
        [f"redrive: interception needs the package cryptography: {remedy('intercept')}"],
    )


# -- env ---------------------------------------------------------------------------------------------------------------


def variables(lines: str) -> dict[str, str]:
    """What a shell makes of them."""
    names = [line.removeprefix("export ").partition("=")[0] for line in lines.splitlines()]
    script = f"eval {shlex.quote(lines)}\nenv -0"
    out = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True, env={}).stdout
    found = dict(item.split("=", 1) for item in out.split("\0") if item)
    return {name: found[name] for name in names}


def test_env_where_nothing_is_intercepted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An app whose roots were replaced for nothing would be none the better."""
    file.write_text(BLIND)
    assert main(["env", "-c", str(file)]) == 0
    out, err = printed(capsys)
    assert err == []
    proxies = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "grpc_proxy"]
    names = [*proxies, "NO_PROXY", "no_proxy", "no_grpc_proxy", "NODE_USE_ENV_PROXY"]
    assert list(variables(out)) == names


def test_env_where_an_upstream_intercepts(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ca", "init", "-c", str(file)]) == 0
    printed(capsys)
    assert main(["env", "-c", str(file)]) == 0
    out, err = printed(capsys)
    found = variables(out)
    assert err == []
    assert {name: found[name] for name in BUNDLES} == dict.fromkeys(BUNDLES, f"{file.parent}/ca/bundle.pem")
    assert found["NODE_EXTRA_CA_CERTS"] == f"{file.parent}/ca/cert.pem"
    assert found["NODE_USE_ENV_PROXY"] == "1"
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        assert found[name] == "http://127.0.0.1:8080"
    for name in ("NO_PROXY", "no_proxy"):
        here = {"localhost", "127.0.0.1", "::1"}
        clouds = {"169.254.169.254", "fd00:ec2::254", "168.63.129.16", "100.100.100.200", "metadata.google.internal"}
        assert here | clouds <= set(found[name].split(","))


def test_the_bundle_is_made_of_the_roots_that_the_shell_had_before(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After eval "$(redrive env)" SSL_CERT_FILE names the bundle, and a company's own roots are the saved value."""
    company = tmp_path / "company.pem"
    company.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(company))
    assert main(["ca", "init", "-c", str(file)]) == 0
    printed(capsys)
    assert main(["env", "-c", str(file)]) == 0
    for name, value in variables(printed(capsys)[0]).items():
        monkeypatch.setenv(name, value)
    assert main(["ca", "export", "--bundle", "-c", str(file)]) == 0
    out, err = printed(capsys)
    assert out == (file.parent / "ca/bundle.pem").read_text()
    assert err == [f"redrive: the bundle has the 1 roots of {company}, and this CA"]


def test_env_before_there_is_a_ca(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said, since curl with a bundle that is not there trusts nobody."""
    assert main(["env", "-c", str(file)]) == 0
    out, err = printed(capsys)
    assert "SSL_CERT_FILE" in out
    assert len(err) == 1
    assert "run redrive ca init to make them" in err[0]
