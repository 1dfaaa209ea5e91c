"""What `check` says of the mistakes that newcomers make: where a key belongs, what YAML means, and secrets in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli import main

UPSTREAM = "upstreams:\n  a:\n    url: https://x.example\n"


def said(folder: Path, text: str, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    file = folder / "r.yaml"
    file.write_text(text)
    main(["check", str(file), *options])
    return [
        line.removeprefix(f"{file}:") for line in capsys.readouterr().err.splitlines() if line.startswith(str(file))
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "shop:\n  url: https://x.example\n",
            "1:1: shop: unknown key (did you mean to indent it under `upstreams:`?)",
        ),
        (
            "shop:\n  url:https://x.example\n  mode:off\n",
            "1:1: shop: unknown key (did you mean to indent it under `upstreams:` and to put a space after the colon "
            "of `url:`?)",
        ),
        (
            "shop: https://x.example\n",
            "1:1: shop: unknown key (did you mean to indent it under `upstreams:` with {url: https://x.example}?)",
        ),
        (
            "upstreams:\n  shop: https://x.example\n",
            "2:9: upstreams.shop: must be a mapping, not 'https://x.example' (did you mean {url: https://x.example}?)",
        ),
        (
            "upstreams:\n  shop: hello\n",
            "2:9: upstreams.shop: must be a mapping, not 'hello'; its keys are url, hosts, prefix and others",
        ),
        (
            "apps: {others: true}\n",
            "1:16: apps.others: must be a mapping, not 'true'; its keys are weight, priority",
        ),
        (
            f"{UPSTREAM}    scope: app\n",
            "4:12: upstreams.a.scope: 'app' must be one of host, upstream, or {header: NAME}",
        ),
        (
            "drain: 5s\n---\ndrain: 6s\n",
            "2:1: this is a second YAML document (the first began on line 1): a file has one",
        ),
        (
            "x-a: &base 1\nx-b: &base 2\n",
            "2:6: the anchor &base is already on line 1: give this one another name",
        ),
        (
            "admin: {listen: 0.0.0.0:9901, token: '${NO_SUCH_NAME}'}\n",  # one mistake is one line
            "1:38: admin.token: the environment has no NO_SUCH_NAME, and there is no default",
        ),
        (
            "upstreams:\n  - name: shop\n    url: https://x.example\n",
            "2:3: upstreams: must be a mapping, not a list (did you mean `shop:` in place of `- name: shop`?)",
        ),
        (
            f"{UPSTREAM}    strategy:none\n",
            "4:5: this is not valid YAML: a key without a colon and a space after it (in the line that began on line "
            "4); put a space after a key's colon, and quote text that contains a colon and a space",
        ),
        (
            f"{UPSTREAM}    headers: {{request: {{set: {{x-a: b: c}}}}}}\n",
            "4:37: this is not valid YAML: a comma or the closing } is missing (in the { } that began on line 4); "
            "quote text that contains a colon and a space, or a comma",
        ),
        (
            "upstreams: {a: {url: http://x}}}\n",
            "1:32: this is not valid YAML: a } that closes nothing, or comes before a value",
        ),
        (
            "upstreams: {a: {url: http://x, hosts: [x, *]}}\n",
            "1:44: this is not valid YAML: text that begins with * must be quoted, or it is an alias: '*'",
        ),
        ("include: [&]\n", "1:12: this is not valid YAML: a name is missing (in an anchor that began on line 1)"),
        (
            'include: ["C:\\data"]\n',
            "1:14: this is not valid YAML: a \\ that means nothing here: put it twice, or use single quotes (in the "
            "quoted text that began on line 1)",
        ),
        (
            "upstreams: {a: {url: , }}\nlisten: [ , 1]\n",
            "2:11: this is not valid YAML: a value is missing, or what stands here can't begin one",
        ),
        ("include: - a.yaml\n", "1:10: this is not valid YAML: a list's - where none can be: begin it on a new line"),
        ("drain: 5s\n...\nlisten: x\n", "3:1: this is not valid YAML: text after the end of the document"),
        (
            f"{UPSTREAM}    timeouts: 5s\n",
            "4:15: upstreams.a.timeouts: must be a mapping, not '5s' (did you mean {total: 5s}?)",
        ),
        (
            f"{UPSTREAM}    idempotency_key: true\n",
            "4:22: upstreams.a.idempotency_key: must be a mapping, not 'true' (did you mean {inject: true}?)",
        ),
        (
            f"{UPSTREAM}    unsafe_methods: always\n",
            "4:5: upstreams.a.unsafe_methods: unknown key (did you mean classify.unsafe_methods?)",
        ),
        (
            f"{UPSTREAM}    ahead: on\n",
            "4:5: upstreams.a.ahead: unknown key (did you mean pushback.ahead?)",
        ),
        (
            "apps: {known: {web: high}}\n",
            "1:21: apps.known.web: must be a mapping, not 'high' (did you mean {priority: high}?)",
        ),
        (
            f"{UPSTREAM}    pushback: {{spred: 10%}}\n",  # a key of earlier versions is no longer named
            "4:16: upstreams.a.pushback.spred: unknown key; choose from max_delay, cooldown, hold, ahead, of",
        ),
        (
            f"{UPSTREAM}    headers: {{X-Env: prod}}\n",
            "4:15: upstreams.a.headers.X-Env: unknown key; a field that is to be set goes under `request: {set: {…}}`, "
            "or under `response: {set: {…}}`",
        ),
        (
            f"{UPSTREAM}    routes:\n      - {{path: /v1/*, match: {{}}}}\n",
            "5:10: upstreams.a.routes[0].path: unknown key (did you mean match: {path: …}?)",
        ),
        (
            "defaults:\n  url: https://x.example\n",
            "2:3: defaults.url: unknown key (did you mean upstreams.NAME.url?)",
        ),
        ("log: debug\n", "1:6: log: must be a mapping, not 'debug' (did you mean {level: debug}?)"),
        (
            "upstreams:\n  a:\n    url:https://x.example\n",
            "3:5: upstreams.a: must be a mapping, not 'url:https://x.example' "
            "(did you mean url: …, with a space after the colon?)",
        ),
        (
            f"{UPSTREAM}   mode: off\n",
            "4:4: this is not valid YAML: the line is indented neither as the one above it nor under it, or a quote is "
            "missing (in the keys that began on line 2)",
        ),
        (
            'upstreams:\n  a:\n    url: "https://x.example\n',
            "3:28: this is not valid YAML: the file ends before this is closed (the quoted text that began on line 3)",
        ),
        (
            f"{UPSTREAM}    dialects: [http, aws\n\n# the end\n",
            "4:25: this is not valid YAML: a comma or the closing ] is missing (in the [ ] that began on line 4); "
            "quote text that contains a colon and a space, or a comma",
        ),
        (
            f"{UPSTREAM}\n      dialects: [http]\n",
            "5:15: this is not valid YAML: a colon and a space where no key can be; line 3 has a value already, so "
            "indent this line like that one",
        ),
        (
            "upstreams:\n  a\n    url: https://x.example\n",
            "3:8: this is not valid YAML: a colon and a space where no key can be; put a colon after the key on line "
            "2, or indent this line less",
        ),
        (
            "upstreams:\n  a:\n    url: http: //x.example\n",
            "3:14: this is not valid YAML: a colon and a space where no key can be; put a space after a key's colon, "
            "and quote text that contains a colon and a space",
        ),
        (
            "upstreams:\n  a:\n    url: “https://x.example”\n",
            "3:10: upstreams.a.url: '“https://x.example”' has no scheme (did you mean https://x.example?)",
        ),
        (
            "upstreams:\n  a:\n    url: @x\n",
            "3:10: this is not valid YAML: text that begins with @, ` or % must be quoted (in the text that began on "
            "line 3)",
        ),
        (
            f"{UPSTREAM}    strategy: grpc\n",
            "4:15: upstreams.a.strategy: warning: no grpc-status is retried: add the dialect, `dialects: [http, "
            "grpc]`, or list statuses in classify",
        ),
    ],
)
def test_each_says_where_and_how(text: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(tmp_path, text, capsys) == [line]


def test_a_secret_in_the_clear_is_told_of_and_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "sk-0123456789")
    fields = "    headers: {request: {set: {X-Api-Key: %s, X-Tenant: acme-corporation}}}\n"
    (line,) = said(tmp_path, UPSTREAM + fields % "sk-0123456789", capsys)
    assert line.endswith(
        "upstreams.a.headers.request.set.X-Api-Key: warning: a secret in the clear: write ${X_API_KEY} and set it in "
        "the environment, or ${file:PATH}"
    )
    assert said(tmp_path, UPSTREAM + fields % "'${KEY}'", capsys) == []
    keys = "    credentials: {header: x-api-key, values: [sk-0123456789, '${KEY}x']}\n"
    (line,) = said(tmp_path, UPSTREAM + keys, capsys)
    assert "upstreams.a.credentials.values[0]: warning: a secret in the clear" in line
    assert "sk-0123" not in line


def test_notes_are_printed_if_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(tmp_path, UPSTREAM, capsys) == []
    (note,) = said(tmp_path, UPSTREAM, capsys, "--notes")
    assert ": note: the quota drains where more than " in note


def test_two_different_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-c", "one.yaml", "two.yaml"]) == 2
    assert capsys.readouterr().err == "redrive: check takes one file, not one.yaml and two.yaml\n"
