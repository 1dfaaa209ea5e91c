"""The section `apps`, and listeners with a name."""

from __future__ import annotations

from pathlib import Path

import pytest
from configs import lines, loaded, policy, settings

from proxy.retry.apps import Apps, NamedApp


def test_the_contracts_example(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """
        apps:
          by: [listener, unix_user, proxy_user, {header: X-App}]
          required: true
          known:
            web:   {weight: 4, priority: high}
            batch: {weight: 1, priority: low}
          others: {weight: 2}
        listen: ["127.0.0.1:8080", {address: "127.0.0.1:8082", app: batch}]
        upstreams: {a: {url: "http://a.test", headers: {request: {remove: [X-Other]}}}}
        """,
    )
    known = {"web": NamedApp("web", 4, 0), "batch": NamedApp("batch", 1, 2)}
    by = ("listener", "unix_user", "proxy_user", "x-app")
    assert found.apps == Apps(by, True, known, NamedApp("others", 2, 1), frozenset({"x-app"}))
    assert [each.app for each in found.listen] == ["", "batch"]
    assert policy(found).request_headers.remove == {"x-other", "x-app", "x-retry-priority"}


def test_defaults(tmp_path: Path) -> None:
    assert settings(tmp_path, "apps: {}").apps == Apps()
    assert settings(tmp_path, "").apps is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apps: {by: []}", "redrive.yaml:1:12: apps.by: must not be empty"),
        ("apps: {by: [user]}", "redrive.yaml:1:13: apps.by[0]: "),
        ("apps: {known: {others: {}}}", "redrive.yaml:1:16: apps.known.others: "),
        ("apps: {known: {web: {weight: 0}}}", "redrive.yaml:1:30: apps.known.web.weight: "),
        ("apps: {known: {web: {priority: top}}}", "redrive.yaml:1:32: apps.known.web.priority: "),
        ("listen: {address: '127.0.0.1:1'}", "redrive.yaml:1:9: listen.app: is missing"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (line,) = lines(tmp_path, loaded(tmp_path, text))
    assert line.startswith(message), line


#: What is said of a listener's app that the section does not know.
UNKNOWN = " is not in apps.known: its calls count as those of others"


@pytest.mark.parametrize(
    ("apps", "app", "message"),
    [
        ("", "batch", "has no effect without the section apps, whose `known` lists the apps"),
        ("{by: [proxy_user], known: {batch: {}}}", "batch", "has no effect: apps.by does not list listener"),
        ("{known: {job: {}}}", "jobs", f"jobs{UNKNOWN} (did you mean job?)"),
        ("{known: {batch: {}}}", "nope", f"nope{UNKNOWN}"),
        ("{known: {batch: {}}}", "batch", ""),
        ("{known: {batch: {}}}", "others", ""),
    ],
)  # fmt: skip
def test_a_name_at_a_listener_that_has_no_effect(tmp_path: Path, apps: str, app: str, message: str) -> None:
    listen = f"listen: [127.0.0.1:8080, {{address: 127.0.0.1:8082, app: {app}}}]"
    found = loaded(
        tmp_path, "\n".join([listen, f"apps: {apps}" if apps else "", "upstreams: {a: {url: https://a.test}}"])
    )
    expected = [f"redrive.yaml:1:57: listen[1].app: warning: {message}"] if message else []
    assert lines(tmp_path, found, "warning") == expected


def test_a_field_that_carries_credentials_is_not_to_name_apps(tmp_path: Path) -> None:
    text = "apps: {by: [listener, {header: Authorization}]}\nupstreams: {a: {url: https://a.test}}"
    (line,) = lines(tmp_path, loaded(tmp_path, text), "warning")
    assert line == (
        "redrive.yaml:1:32: apps.by[1].header: warning: authorization is not forwarded if it names apps, "
        "so no upstream gets it: take a field of your own"
    )
