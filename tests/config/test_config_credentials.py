"""Credentials in a configuration: what is refused, in one line each, and that no value is ever shown."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from pathlib import Path

import pytest
from configs import lines, loaded, policy, settings

from proxy.config.provenance import shown
from proxy.config.value_files import current_key
from proxy.observe import masking

SECRET = "s3cr3t-value"
OTHER = "0ther-value"

WRONG: dict[str, tuple[str, str]] = {
    "no url": (
        "upstreams: {a: {hosts: [x.test], credentials: {header: x-api-key, values: [%(s)s]}}}",
        "upstreams.a.credentials: needs a url: where requests choose the host, keys would go to any host they name",
    ),
    "defaults": (
        "defaults: {credentials: {header: x-api-key, values: [%(s)s]}}",
        "defaults.credentials: unknown key (did you mean upstreams.NAME.credentials, next to its url?)",
    ),
    "a route": (
        "upstreams: {a: {url: http://x, routes: [{match: {path: /a}, credentials: {header: k, values: [%(s)s]}}]}}",
        "routes[0].credentials: unknown key (did you mean upstreams.NAME.credentials, next to its url?)",
    ),
    "a word": ("upstreams: {a: {url: http://x, credentials: %(s)s}}", "credentials: must be none, or a mapping"),
    "a list": ("upstreams: {a: {url: http://x, credentials: [%(s)s]}}", "credentials: must be a word or a mapping"),
    "no header": ("upstreams: {a: {url: http://x, credentials: {values: [%(s)s]}}}", "credentials.header: is missing"),
    "no values": ("upstreams: {a: {url: http://x, credentials: {header: k}}}", "credentials.values: is missing"),
    "values no list": (
        "upstreams: {a: {url: http://x, credentials: {header: k, values: %(s)s}}}",
        "credentials.values: must be a list of one or more values",
    ),
    "values empty": (
        "upstreams: {a: {url: http://x, credentials: {header: k, values: []}}}",
        "credentials.values: must be a list of one or more values",
    ),
    "an empty value": (
        "upstreams: {a: {url: http://x, credentials: {header: k, values: [%(s)s, '']}}}",
        "credentials.values[1]: is empty",
    ),
    "a mapping for a value": (
        "upstreams: {a: {url: http://x, credentials: {header: k, values: [{%(s)s: x}]}}}",
        "credentials.values[0]: must be a value, or {file: PATH}",
    ),
    "twice": (
        "upstreams: {a: {url: http://x, credentials: {header: k, values: [%(s)s, b, %(s)s]}}}",
        "credentials.values[2]: is the same as number 1: list each only once",
    ),
    "a control character": (
        'upstreams: {a: {url: http://x, credentials: {header: k, values: ["%(s)s\\r\\nx: y"]}}}',
        "credentials.values[0]: has characters that no credential has",
    ),
    "a space at its end": (
        "upstreams: {a: {url: http://x, credentials: {header: k, values: ['%(s)s ']}}}",
        "credentials.values[0]: has a space or a line break at its beginning or end; remove it",
    ),
    "no ASCII": (
        "upstreams: {a: {url: http://x, credentials: {header: k, values: ['%(s)sä']}}}",
        "credentials.values[0]: has characters that no credential has",
    ),
    "a reference that is none": (
        "upstreams: {a: {url: http://x, credentials: {header: k, values: ['${%(s)s']}}}",
        "credentials.values[0]: contains a ${ that does not begin a reference",
    ),
    "a format without a place": (
        "upstreams: {a: {url: http://x, credentials: {header: k, format: 'Bearer %(s)s', values: [b]}}}",
        "credentials.format: must contain {} once, where the value goes, as in 'Bearer {}'",
    ),
    "a format with two": (
        "upstreams: {a: {url: http://x, credentials: {header: k, format: '%(s)s{}{}', values: [b]}}}",
        "credentials.format: must contain {} once",
    ),
    "a header of the proxy's own": (
        "upstreams: {a: {url: http://x, credentials: {header: Host, values: [%(s)s]}}}",
        "credentials.header: Host is written by the proxy itself",
    ),
    "a header that is set": (
        "upstreams: {a: {url: http://x, headers: {request: {set: {X-Api-Key: %(o)s}}},"
        " credentials: {header: x-api-key, values: [%(s)s]}, routes: [{match: {path: /a}}]}}",
        "upstreams.a.headers.request.X-Api-Key: credentials already carry X-Api-Key: remove one of the two",
    ),
    "a header that is removed": (
        "upstreams: {a: {url: http://x, headers: {request: {remove: [X-Api-Key]}},"
        " credentials: {header: x-api-key, values: [%(s)s]}}}",
        "upstreams.a.headers.request.X-Api-Key: credentials already carry X-Api-Key: remove one of the two",
    ),
    "the field of the idempotency key": (
        "upstreams: {a: {url: http://x, credentials: {header: idempotency-key, values: [%(s)s]},"
        " routes: [{match: {path: /a}}]}}",
        "upstreams.a.idempotency_key.header: credentials replace Idempotency-Key",
    ),
    "an unknown pick": (
        "upstreams: {a: {url: http://x, credentials: {header: k, pick: random, values: [%(s)s]}}}",
        "credentials.pick: 'random' must be one of next, first",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_in_one_line_without_a_value(name: str, tmp_path: Path) -> None:
    text, wanted = WRONG[name]
    result = loaded(tmp_path, text % {"s": SECRET, "o": OTHER} + "\n")
    (line,) = lines(tmp_path, result)
    assert wanted in line
    assert line.startswith("redrive.yaml:1:")
    assert SECRET not in line
    assert OTHER not in line


TEXT = """
upstreams:
  a:
    url: http://x
    credentials: {header: Authorization, format: "Bearer {}", values: ["${KEY_A}", %s]}
    routes: [{match: {path: /r}}]
""" % (OTHER,)  # noqa: UP031 - braces all over


def test_every_policy_of_the_upstream_has_them(tmp_path: Path) -> None:
    found = settings(tmp_path, TEXT, {"KEY_A": SECRET})
    for path in ("/", "/r"):
        credentials = policy(found, path=path).credentials
        assert credentials is not None
        assert credentials.values == (f"Bearer {SECRET}", f"Bearer {OTHER}")
        assert credentials.pick == "next"


def test_no_value_is_shown(tmp_path: Path) -> None:
    found = settings(tmp_path, TEXT, {"KEY_A": SECRET})
    chosen = policy(found)
    told = [
        *(repr(each) for each in (chosen, chosen.credentials, found, found.router, copy.copy(chosen))),
        str(masking.config(found.provenance.effective())),
        *(masking.place(each.path, each.plain) for each in found.provenance.of("a")),
        *(each.value for each in found.provenance.of("a")),
        shown(found.provenance.policies["a", ""]),
    ]
    assert "key 1, key 2" in "".join(told)
    assert not [text for text in told if SECRET in text or OTHER in text]
    assert pickle.loads(pickle.dumps(found)).router.by_name["a"].policies[0].credentials == chosen.credentials


def test_a_format_that_may_hold_a_secret_is_not_shown_either(tmp_path: Path) -> None:
    text = f"upstreams: {{a: {{url: http://x, credentials: {{header: k, format: '{SECRET}{{}}', values: [b]}}}}}}\n"
    found = settings(tmp_path, text)
    assert SECRET not in shown(found.provenance.policies["a", ""])
    assert policy(found).credentials.values == (f"{SECRET}b",)  # type: ignore[union-attr]


def test_none_is_none(tmp_path: Path) -> None:
    assert policy(settings(tmp_path, "upstreams: {a: {url: http://x, credentials: none}}\n")).credentials is None


ADVICE: dict[str, tuple[str, str]] = {
    "a scope by the field that is replaced": (
        "scope: {header: authorization}",
        "upstreams.a.scope: warning: Authorization is set by `credentials`, not by apps: leave scope out",
    ),
    "signed calls": (
        "dialects: [http, aws]",
        "upstreams.a.credentials.header: warning: replace an AWS signature",
    ),
    "a tunnel": (
        "connect: tunnel",
        "upstreams.a.connect: warning: carries no credentials: nothing in a blind tunnel can be read",
    ),
}


@pytest.mark.parametrize("name", ADVICE)
def test_what_does_not_go_together_is_told(name: str, tmp_path: Path) -> None:
    more, wanted = ADVICE[name]
    text = f"upstreams: {{a: {{url: https://x, {more}, credentials: {{header: Authorization, values: [{SECRET}]}}}}}}\n"
    found = lines(tmp_path, loaded(tmp_path, text), "warning")
    (line,) = [each for each in found if "a secret in the clear" not in each]
    assert wanted in line
    assert not [each for each in found if SECRET in each]


def test_a_value_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("from-a-file\n")
    text = (
        "upstreams:\n  a:\n    url: https://a.test\n    credentials:\n      header: authorization\n"
        '      format: "Bearer {}"\n      values: [{file: secrets/key}, "${KEY_B}"]\n'
    )
    result = loaded(tmp_path, text, {"KEY_B": "from-the-environment"})
    assert result.settings is not None
    credentials = policy(result.settings).credentials
    assert credentials is not None
    assert credentials.values == ("Bearer from-a-file", "Bearer from-the-environment")
    assert [None if each is None else Path(each.path).name for each in credentials.files] == ["key", None]
    assert str(tmp_path / "secrets" / "key") in result.files  # it is watched
    assert "from-a-file" not in str(result.settings.provenance)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "can't be read (No such file or directory): write the key into it, and nothing else"),
        ("", "is empty: write the key into it, and nothing else"),
        ("\n", "is empty: write the key into it, and nothing else"),
        ("two\nlines", "has characters that no credential has"),
        ("x" * 70_000, "is larger than 64 KiB"),
    ],
)
def test_a_file_without_a_key_is_refused_at_start_and_told_later(tmp_path: Path, content: str | None, why: str) -> None:
    key = tmp_path / "key"
    text = "upstreams:\n  a:\n    url: https://a.test\n    credentials: {header: x-key, values: [{file: key}]}\n"
    if content is not None:
        key.write_text(content)
    (line,) = lines(tmp_path, loaded(tmp_path, text))
    assert line.startswith("redrive.yaml:4:50: upstreams.a.credentials.values[0].file: ") and why in line
    key.write_text("fine")
    assert policy(settings(tmp_path, text)).credentials is not None
    key.unlink() if content is None else key.write_text(content)
    later = loaded(tmp_path, text)
    assert later.settings is not None
    assert policy(later.settings).credentials.values == ("fine",)  # type: ignore[union-attr]
    (line,) = lines(tmp_path, later, "warning")
    assert "the value that was read before stays in use" in line


def test_a_key_that_the_system_refuses_to_look_at_is_an_error(tmp_path: Path) -> None:
    """A folder that this user may not enter is like a name that is too long, and that holds for root too."""
    key = "k" * 300
    text = f"upstreams:\n  a:\n    url: https://a.test\n    credentials: {{header: x-key, values: [{{file: {key}}}]}}\n"
    (line,) = lines(tmp_path, loaded(tmp_path, text))
    assert "can't be read (File name too long)" in line
    assert current_key(str(tmp_path / key)) is None


def test_a_pipe_in_the_place_of_a_key_is_not_read(tmp_path: Path) -> None:
    """Else a 401 would stop the whole process until somebody wrote into it."""
    key = tmp_path / "key"
    os.mkfifo(key)
    writer = threading.Thread(target=key.write_text, args=("first\n",), daemon=True)
    writer.start()  # whoever read the pipe would get this
    text = "upstreams:\n  a:\n    url: https://a.test\n    credentials: {header: x-key, values: [{file: key}]}\n"
    (line,) = lines(tmp_path, loaded(tmp_path, text))
    assert line.endswith("key is a pipe, and a key is read again when it changes: name a file")
    assert current_key(str(key)) is None
    assert key.read_text() == "first\n"
    writer.join()


@pytest.mark.parametrize("item", ["{file: ''}", "{path: x}", "{file: x, also: y}", "{file: [x]}"])
def test_a_mapping_that_names_no_file_is_refused(tmp_path: Path, item: str) -> None:
    text = f"upstreams:\n  a: {{url: 'https://a.test', credentials: {{header: x-key, values: [{item}]}}}}\n"
    (line,) = lines(tmp_path, loaded(tmp_path, text))
    assert "credentials.values[0]: must be a value, or {file: PATH}" in line
