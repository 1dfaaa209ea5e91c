"""References to files in values: `${file:PATH}` (contract, section 3)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from configs import lines, loaded, settings
from test_config_watch import watched

from proxy.config.load import load_tree
from proxy.config.settings import pack, unpack
from proxy.hidden_values import HiddenValues, later

TOKEN = "correct-horse-battery"
CONFIG = """
admin: {listen: 127.0.0.1:9901, token: "${file:secrets/token}"}
redis: {url: "redis://:${file:secrets/token}@localhost/0"}
"""


def secret(folder: Path, content: bytes, name: str = "token") -> Path:
    file = folder / "secrets" / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("content", [TOKEN.encode(), TOKEN.encode() + b"\n", TOKEN.encode() + b"\r\n"])
def test_a_files_content_takes_the_references_place(tmp_path: Path, content: bytes) -> None:
    file = secret(tmp_path, content)
    found = settings(tmp_path, CONFIG)
    assert found.admin is not None and found.admin.token == TOKEN
    assert found.redis.url == f"redis://:{TOKEN}@localhost/0"
    assert str(file) in found.files


def test_an_absolute_path_and_a_part_of_a_value(tmp_path: Path) -> None:
    file = secret(tmp_path, b"two")
    found = settings(tmp_path, f'redis: {{prefix: "one-${{file:{file}}}-$${{three}}"}}')
    assert found.redis.prefix == "one-two-${three}"


def test_what_came_is_not_looked_into_again(tmp_path: Path) -> None:
    secret(tmp_path, b"${HOME} and ${file:/etc/hostname} and $${x}")
    assert settings(tmp_path, 'redis: {prefix: "${file:secrets/token}"}', {"HOME": "no"}).redis.prefix == (
        "${HOME} and ${file:/etc/hostname} and $${x}"
    )


NOT_ONE = "has a line break or another control character inside: one value, and nothing else"
EMPTY = "is empty: write the value into it, and nothing else"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", EMPTY),
        (b"\n", EMPTY),
        (b"x" * (64 * 1024 + 1), "is larger than 64 KiB, too large for a value"),
        (b"a\nb\n", NOT_ONE),
        (b"a\n\n", NOT_ONE),
        (b"a\x00b", NOT_ONE),
        (b"a\x7f", NOT_ONE),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_what_is_no_value_is_an_error(tmp_path: Path, content: bytes, says: str) -> None:
    file = secret(tmp_path, content)
    result = loaded(tmp_path, 'redis:\n  prefix: "${file:secrets/token}"\n')
    assert lines(tmp_path, result) == [f"redrive.yaml:2:11: redis.prefix: secrets/token {says}"]
    assert str(file) in result.files  # so that its repair is noticed


def test_a_file_that_is_missing_or_not_named_is_an_error(tmp_path: Path) -> None:
    result = loaded(tmp_path, 'redis: {prefix: "${file:no}", url: "${file:}"}')
    assert lines(tmp_path, result) == [
        "redrive.yaml:1:17: redis.prefix: no can't be read (No such file or directory)",
        "redrive.yaml:1:36: redis.url: ${file:} names no file: write ${file:/run/secrets/NAME}",
    ]
    assert str(tmp_path / "no") in result.files


def test_64_kib_are_enough(tmp_path: Path) -> None:
    secret(tmp_path, b"x" * 64 * 1024)
    assert len(settings(tmp_path, 'redis: {prefix: "${file:secrets/token}"}').redis.prefix) == 64 * 1024


UPSTREAM = 'upstreams: {a: {url: "http://a.test", %s}}'


@pytest.mark.parametrize("reference", ["${file:secrets/token}", "${WORD}"])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('drain: "%s"', "987654"),
        ('drain: "%s"', "987654 seconds"),
        ('drain: "%s"', "987654ick"),
        ('buffers: {total: "%s"}', "987654mb"),
        ('limits: {resets: "%s"}', "987654"),
        ('defaults: {timeouts: "%s"}', "987654s"),
        ('defaults: {concurrency: "%s"}', "987654"),
        ('defaults: {dialects: "%s"}', "word-987654"),
        ('strategies: {s: {kind: hedging, hedging_delay: "%s"}}', "987654%"),
        ('upstreams: {a: {url: "%s"}}', "host-987654.test"),
        (UPSTREAM % 'hosts: "%s"', "http://host-987654.test"),
        (UPSTREAM % 'prefix: "%s"', "word-987654"),
        (UPSTREAM % 'services: "%s"', "/word987654"),
        ('version: "%s"', "987654"),
    ],
)
def test_no_message_shows_a_part_of_it(tmp_path: Path, text: str, value: str, reference: str) -> None:
    """A hint (did you mean …?) repeats the value with another unit, say."""
    secret(tmp_path, value.encode())
    result = loaded(tmp_path, text.replace("%s", reference), {"WORD": value})
    assert result.errors
    assert not [each for each in result.problems if "987654" in str(each) or "ick" in str(each)]


@pytest.mark.parametrize(
    "text",
    [
        'drain: "${file:secrets/token}"',
        'defaults: {strategy: "${file:secrets/token}"}',
        'defaults: {bucket: "x${file:secrets/token}"}',
        'defaults: {verify: "${file:secrets/token}"}',
        'defaults: {dialects: ["${file:secrets/token}"]}',
        'include: ["${file:secrets/token}"]',
        'upstreams: {a: {url: "ftp://${file:secrets/token}"}}',
        UPSTREAM % 'routes: [{match: {path: "${file:secrets/token}"}}]',
        UPSTREAM % 'classify: {rules: [{status: 503, as: "${file:secrets/token}"}]}',
        UPSTREAM % 'fallback: ["${file:secrets/token}"]',
        UPSTREAM % 'service_config: "${file:secrets/token}"',
        UPSTREAM % 'credentials: {header: x-key, values: ["${file:secrets/token}\\n"]}',
    ],
)
def test_no_message_shows_it(tmp_path: Path, text: str) -> None:
    secret(tmp_path, TOKEN.encode())
    result = loaded(tmp_path, text)
    assert result.errors
    assert not [each for each in result.problems if TOKEN in str(each)]


@pytest.mark.parametrize(
    "text",
    [
        'upstreams: {a: {url: "http://a.test/${file:secrets/token}"}}',
        'upstreams: {a: {url: [{url: "http://${file:secrets/token}"}]}}',
        UPSTREAM % 'hosts: [a.test, "${file:secrets/token}.test"]',
        UPSTREAM % 'prefix: "/${file:secrets/token}"',
        UPSTREAM % 'routes: [{match: {path: "/${file:secrets/token}/*"}}]',
        'defaults: {routes: [{match: {path: "/${file:secrets/token}"}}]}',
        UPSTREAM % 'services: ["${file:secrets/token}"]',
        UPSTREAM % 'scope: {header: "${file:secrets/token}"}',
        'defaults: {scope: {header: "${file:secrets/token}"}}',
        'apps: {by: [{header: "${file:secrets/token}"}], known: {a: {}}}',
        'listen: "unix:${file:secrets/token}"',
        'admin: {listen: "unix:${file:secrets/token}"}',
        'probe: "unix:${file:secrets/token}"',
    ],
)
def test_a_content_is_hidden_where_its_value_is_shown(tmp_path: Path, text: str) -> None:
    """An address may be completed by a file, and what came from there is a secret all the same (section 3)."""
    secret(tmp_path, TOKEN.encode())
    result = loaded(tmp_path, text)
    assert not [each for each in result.problems if TOKEN in str(each)]
    assert result.settings is not None and result.settings.hidden is not None
    assert result.settings.hidden.text(f"a {TOKEN.upper()} b") == "a ${file:secrets/token} b"


@pytest.mark.parametrize("text", [UPSTREAM % "bucket: off", CONFIG, UPSTREAM % 'prefix: "/${NAME}"'])
def test_where_no_shown_value_has_a_content_nothing_is_looked_for(tmp_path: Path, text: str) -> None:
    secret(tmp_path, TOKEN.encode())
    assert settings(tmp_path, text, {"NAME": "x-from-the-environment"}).hidden is None


@pytest.mark.parametrize(
    ("url", "content", "shown"),
    [
        (
            "${file:secrets/token}",
            "https://Hooks.example/intake/",
            "https://hooks.example, hooks.example:443, /intake",
        ),
        ("https://${file:secrets/token}", "hooks.example:8443/intake", "hooks.example:8443, hooks.example, /intake"),
        ("https://a.test/${file:secrets/token}", "T0/B0/abc", "/T0/B0/abc"),
    ],
)
def test_the_parts_of_an_address_are_hidden(tmp_path: Path, url: str, content: str, shown: str) -> None:
    secret(tmp_path, content.encode())
    hidden = settings(tmp_path, f'upstreams: {{a: {{url: "{url}"}}}}').hidden
    assert hidden is not None
    said = hidden.text(shown)
    assert not [each for each in ("hooks", "/intake", "T0") if each in said]


def test_a_part_that_names_no_host_is_not_taken_apart(tmp_path: Path) -> None:
    secret(tmp_path, b"services/T0/B0/abc")
    hidden = settings(tmp_path, 'upstreams: {a: {url: "https://a.test/${file:secrets/token}"}}').hidden
    assert hidden is not None and hidden.text("the services of a") == "the services of a"


def test_a_content_in_other_letters_is_hidden_as_requests_have_it(tmp_path: Path) -> None:
    secret(tmp_path, "büro-münchen".encode())
    hidden = settings(tmp_path, 'upstreams: {a: {url: "https://a.test/${file:secrets/token}"}}').hidden
    assert hidden is not None
    assert hidden.json('{"path":"/b%C3%BCro-m%C3%BCnchen/x","name":"b\\u00fcro-m\\u00fcnchen"}') == (
        '{"path":"/${file:secrets/token}/x","name":"${file:secrets/token}"}'
    )


def test_a_content_whose_lower_case_is_longer_is_hidden_in_pages(tmp_path: Path) -> None:
    """In lower case İ is two characters, which match no İ whatever their case."""
    secret(tmp_path, "İstanbul".encode())
    hidden = settings(tmp_path, 'upstreams: {a: {url: "https://a.test/${file:secrets/token}"}}').hidden
    assert hidden is not None
    assert hidden.text("/İstanbul/x") == "/${file:secrets/token}/x"


def test_redrives_own_words_stay_in_pages_and_lines(tmp_path: Path) -> None:
    secret(tmp_path, b"success")
    hidden = settings(tmp_path, UPSTREAM % 'prefix: "/${file:secrets/token}"').hidden
    assert hidden is not None
    assert hidden.data({"outcome": "success", "path": ["/success/x"], "successes": 3, "a.success:80": None}) == (
        {"outcome": "success", "path": ["/${file:secrets/token}/x"], "successes": 3, "a.${file:secrets/token}:80": None}
    )


def test_settings_in_a_worker_hide_the_same(tmp_path: Path) -> None:
    secret(tmp_path, TOKEN.encode())
    found = settings(tmp_path, UPSTREAM % 'prefix: "/${file:secrets/token}"')
    sent = unpack(pack(found))
    assert sent.hidden is not None and sent.hidden.text(TOKEN) == "${file:secrets/token}"


def test_contents_of_before_stay_hidden() -> None:
    before, now = HiddenValues({"before": "${file:x}"}), HiddenValues({"after": "${file:x}"})
    hidden = later(now, before)
    assert hidden is not None and hidden.text("before after") == "${file:x} ${file:x}"
    assert later(None, before) is before and later(now, None) is now and later(None, None) is None
    assert now.with_earlier(HiddenValues({"after": "${file:x}"})) is now


@pytest.mark.parametrize("short", [b"a", b"7", b"xyz"])
def test_a_content_too_short_to_be_hidden_is_told_of(tmp_path: Path, short: bytes) -> None:
    secret(tmp_path, short)
    result = loaded(tmp_path, UPSTREAM % 'prefix: "/${file:secrets/token}"')
    (said,) = lines(tmp_path, result, "warning")
    assert "upstreams.a.prefix: warning: ${file:secrets/token} is too short to be hidden: pages and logs show" in said
    assert result.settings is not None and result.settings.hidden is None


def test_where_values_are_shown_a_plain_reference_and_the_environment_are_fine(tmp_path: Path) -> None:
    found = settings(tmp_path, 'upstreams: {a: {url: "http://a.test", prefix: "/${X}$${file:y}"}}', {"X": "x"})
    assert found.router.by_name["a"].prefix == "/x${file:y}"


def test_no_message_shows_it_in_capitals(tmp_path: Path) -> None:
    secret(tmp_path, TOKEN.encode())
    text = "upstreams: {a: {url: 'http://a.test', routes: [{match: {methods: ['${file:secrets/token}']}}]}}"
    (said,) = [str(each) for each in loaded(tmp_path, text).problems if "case-sensitive" in each.message]
    assert TOKEN.upper() not in said and "${file:secrets/token}" in said


@pytest.mark.parametrize("reference", ["${file:secrets/token}", "${NOWHERE}", "${NAME}"])
def test_a_reference_in_the_place_of_all_upstreams_is_an_error_with_its_line(tmp_path: Path, reference: str) -> None:
    secret(tmp_path, TOKEN.encode())
    (said,) = lines(tmp_path, loaded(tmp_path, f"version: 1\nupstreams: '{reference}'", {"NAME": "a"}))
    assert said.startswith("redrive.yaml:2:12: upstreams: ") and TOKEN not in said


def test_no_message_shows_one_that_has_other_characters_in_lower_case(tmp_path: Path) -> None:
    secret(tmp_path, "\u0130-correct-horse".encode())
    (said,) = map(str, loaded(tmp_path, UPSTREAM % "bucket: '${file:secrets/token}'").errors)
    assert "horse" not in said and "'${file:secrets/token}'" in said


def test_no_message_shows_the_rest_of_one_that_begins_with_another(tmp_path: Path) -> None:
    secret(tmp_path, TOKEN.encode())
    secret(tmp_path, TOKEN.encode() + b"-tail", "longer")
    admin = "admin: {listen: '127.0.0.1:0', token: '${file:secrets/token}'}\n"
    (said,) = map(str, loaded(tmp_path, admin + UPSTREAM % "bucket: '${file:secrets/longer}'").errors)
    assert "tail" not in said and "'${file:secrets/longer}'" in said


@pytest.mark.parametrize("short", [b"a", b"7", b"xyz"])
def test_a_short_one_is_not_shown_where_its_own_value_is_wrong(tmp_path: Path, short: bytes) -> None:
    secret(tmp_path, short)
    errors = loaded(tmp_path, UPSTREAM % "bucket: '${file:secrets/token}', protocol: h").errors
    bucket, protocol = sorted((str(each) for each in errors), key=lambda each: "protocol" in each)
    assert "there is no bucket called '${file:secrets/token}'; define it under buckets" in bucket
    assert "must be one of auto, http/1.1, http/2" in protocol


def test_the_effective_configuration_shows_the_reference(tmp_path: Path) -> None:
    secret(tmp_path, TOKEN.encode())
    found = settings(tmp_path, UPSTREAM % 'headers: {request: {set: {x-tenant: "${file:secrets/token}"}}}')
    assert found.router.by_name["a"].policy.request_headers.set[0][1] == TOKEN
    assert TOKEN not in str(found.provenance.effective())
    shown = found.provenance.origin("a", "", "headers.request.set.x-tenant")
    assert shown is not None and shown.value == "${file:secrets/token}"


def test_in_an_inline_configuration_a_path_is_relative_to_its_file(tmp_path: Path) -> None:
    secret(tmp_path, b"here")
    result = load_tree({"redis": {"prefix": "${file:secrets/token}"}}, str(tmp_path / "test.yaml"), {})
    assert result.settings is not None and result.settings.redis.prefix == "here"


async def test_a_file_that_changes_is_read_again_and_a_bad_one_refused(tmp_path: Path) -> None:
    file = secret(tmp_path, b"one")
    config = tmp_path / "redrive.yaml"
    config.write_text('redis: {prefix: "${file:secrets/token}"}')
    async with watched(config) as (heard, _):
        file.write_bytes(b"two\n")
        await heard.until(lambda result: result.settings is not None and result.settings.redis.prefix == "two")
        file.write_bytes(b"")
        result, _ = await heard.until(lambda result: result.settings is None)
        assert "is empty" in str(result.errors[0])
        swapped = tmp_path / "new"
        swapped.write_bytes(b"three")
        os.replace(swapped, file)
        await heard.until(lambda result: result.settings is not None and result.settings.redis.prefix == "three")


async def test_ca_and_client_certificate_files_are_watched(tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("one")
    config = tmp_path / "redrive.yaml"
    tls = "verify: ca.pem, client_cert: {cert: cert.pem, key: key.pem}"
    config.write_text(f"upstreams: {{a: {{url: 'https://a.test', {tls}}}}}")
    async with watched(config) as (heard, _):
        for name in ("ca.pem", "cert.pem", "key.pem"):
            (tmp_path / name).write_text("two")
            assert (await heard.until(lambda result: result.settings is not None))[1] == "file"
