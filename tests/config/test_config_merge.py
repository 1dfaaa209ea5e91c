"""Layers: what replaces, what is merged, and what names stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
from configs import NO_FIELDS, lines, loaded, policy, settings

from proxy.config.load import find, load, load_tree
from proxy.retry.facts import Class, FaultKind
from proxy.retry.policies.bucket_specs import BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.policies.policy import AutoLimit, Backoff, Concurrency
from proxy.retry.strategies.presets import BUILT_IN

THREE_LINES = """\
upstreams:
  github:
    url: https://api.github.com
    dialects: [http, github]
"""
A_LIMIT = "upstreams: {a: {url: http://a.test, concurrency: {queue: 9}}}\n"


def test_a_route_that_says_anything_of_concurrency_has_a_limit_of_its_own(tmp_path: Path) -> None:
    upstream = settings(
        tmp_path,
        """\
        defaults: {concurrency: {max: 8, wait: 5s}}
        upstreams:
          a:
            url: https://api.example
            concurrency: {queue: 7}
            routes:
              - {match: {path: /own}, concurrency: {max: 2}}
              - {match: {path: /off}, concurrency: off}
              - {match: {path: /same}, strategy: none}
        """,
    ).router.by_name["a"]
    own, off, same = (route.policy.concurrency for route in upstream.routes)
    assert upstream.policy.concurrency == same == Concurrency(8, 7, 5.0)
    assert own == Concurrency(2, 7, 5.0, group="concurrency of /own")
    assert off is None


@pytest.mark.parametrize("inherited", ["auto", "off"])
def test_bounds_without_a_number_are_those_of_the_limit_that_redrive_finds(tmp_path: Path, inherited: str) -> None:
    text = f"defaults: {{concurrency: {inherited}}}\n{A_LIMIT}"
    found = policy(settings(tmp_path, text))
    assert found.concurrency is None and found.limit == AutoLimit(queue=9)
    text = text.replace(inherited, "{max: 3, queue: 5}")
    assert policy(settings(tmp_path, text)).concurrency == Concurrency(max=3, queue=9, group="concurrency")


def test_three_lines_are_enough_for_both_uses(tmp_path: Path) -> None:
    router = settings(tmp_path, THREE_LINES).router
    forward = router.by_authority("api.github.com", 80)
    assert forward is not None
    assert forward is router.by_authority("API.github.com:443", 80)
    assert router.by_authority("api.github.com:8080", 80) is None
    reverse = router.by_prefix(b"/github/repos?a=b")
    assert reverse == (forward, b"/repos?a=b")
    (end,) = forward.target.endpoints
    assert (end.scheme, end.host, end.port, end.path) == ("https", "api.github.com", 443, "")


def test_the_defaults_are_the_contracts() -> None:
    found = load(None, {}).settings
    assert found is not None
    assert [str(each) for each in found.listen] == ["127.0.0.1:8080"]
    assert str(found.admin.listen if found.admin else "") == "127.0.0.1:9901"
    assert (found.probe, found.workers, found.unmatched, found.via_proxy, found.drain) == (None, 1, "forward", None, 25)
    assert (found.buffers.per_request, found.buffers.total) == (1 << 20, 64 << 20)
    limits = found.limits
    assert (limits.header_bytes, limits.headers, limits.connections, limits.waiting) == (65536, 256, 10000, 2000)
    assert limits.connect_ports is None
    assert (limits.streams, limits.resets) == (1000, 1000.0)
    assert (found.pool.idle, found.pool.max_idle, found.pool.dns_ttl, found.pool.http2_idle) == (4, 100, 30, 60)
    assert (found.redis.timeout, found.redis.on_outage, found.redis.prefix) == (0.05, "share", "redrive:")
    assert (found.log.format, found.log.level) == ("auto", "info")
    assert len(found.deny_destinations) == 5
    rest = found.router.unmatched("Example.com:81")
    assert (rest.name, rest.label, rest.connect) == ("example.com:81", "unmatched", "tunnel")
    assert rest is found.router.unmatched("example.com:81")
    policy = rest.policy
    assert policy.strategy == BUILT_IN["standard"]
    assert policy.bucket is not None
    assert policy.bucket.spec == QuotaSpec().refilled_in_quiet(3)
    assert (policy.pushback.max_delay, policy.pushback.cooldown, policy.pushback.hold) == (60, "off", 20)
    timeouts = policy.timeouts
    assert (timeouts.connect, timeouts.attempt, timeouts.total, timeouts.idle) == (5, None, 900, 900)
    assert policy.classify.statuses == {
        **dict.fromkeys((425, 500, 502, 503), Class.TRANSIENT),
        429: Class.THROTTLING,
        **dict.fromkeys((408, 504), Class.TIMEOUT),
    }
    assert policy.classify.faults[FaultKind.ATTEMPT_TIMEOUT] is Class.TIMEOUT
    assert (policy.mode, policy.scope.by, policy.classify.unsafe_methods) == ("enforce", "host", "provider")
    key = policy.idempotency_key
    assert (key.header, key.inject, key.form) == ("Idempotency-Key", False, "bare")
    assert (policy.idempotency_key.header, policy.idempotency_key.inject) == ("Idempotency-Key", False)


@pytest.mark.parametrize("kind", BUILT_IN)
def test_a_built_in_kind_is_what_it_is_by_name_and_by_mapping(tmp_path: Path, kind: str) -> None:
    text = f"upstreams:\n  a: {{url: http://x, strategy: {kind}}}\n  b: {{url: http://y, strategy: {{kind: {kind}}}}}\n"
    found = settings(tmp_path, text)
    for name in "ab":
        assert policy(found, name).strategy == BUILT_IN[kind]
        own = BUILT_IN[kind].default_bucket
        bucket = policy(found, name).bucket
        assert (bucket.spec if bucket else None) == own


def test_partial_backoff_keeps_the_kinds_other_values(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        upstreams:
          a: {url: http://x, strategy: {kind: standard-2026, backoff: {base: 70ms}}}
          b: {url: http://y, strategy: {kind: grpc, initial_backoff: 2s, jitter: proportional}}
        """,
    )
    assert policy(found, "a").strategy.backoff == Backoff(0.07, 20, 2, "full", throttling_base=1)
    assert policy(found, "a").strategy.pushback_clamp == 5
    assert policy(found, "b").strategy.backoff == Backoff(2, 5, 3, "proportional")
    assert policy(found, "b").strategy.exact_pushback


def test_a_mapping_without_kind_is_merged_into_what_the_name_stands_for(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        strategies:
          patient: {kind: legacy, max_attempts: 9, backoff: {base: 1s}}
        buckets:
          big: {kind: quota, capacity: 1000, timeout_cost: 7}
        defaults: {strategy: patient, bucket: big}
        upstreams:
          a:
            url: http://x
            strategy: {backoff: {max: 5s}}
            bucket: {retry_cost: 2}
            routes:
              - match: {path: /more}
                strategy: {max_attempts: 2}
              - match: {path: /new}
                strategy: {kind: standard}
                bucket: {kind: budget}
              - match: {path: /named}
                strategy: patient
                bucket: big
              - match: {path: /none}
                bucket: off
        """,
    )
    base = policy(found)
    assert base.strategy.kind == "legacy"
    assert (base.strategy.max_attempts, base.strategy.backoff) == (9, Backoff(1, 5, throttling_base=0.5))
    assert base.bucket is not None
    assert (base.bucket.name, base.bucket.spec) == (
        None,
        QuotaSpec(capacity=1000, retry_cost=2, timeout_cost=7, throttling_cost=2),
    )
    more = policy(found, path="/more")
    assert (more.strategy.max_attempts, more.strategy.backoff) == (2, base.strategy.backoff)
    assert more.bucket == base.bucket
    new = policy(found, path="/new")
    assert new.strategy == BUILT_IN["standard"]
    assert new.bucket is not None
    assert (new.bucket.spec, new.bucket.group) == (BudgetSpec(), "/new")
    named = policy(found, path="/named")
    assert named.strategy.name == "patient"
    assert named.bucket is not None
    assert named.bucket.name == "big"
    assert policy(found, path="/none").bucket is None


def test_a_bucket_without_kind_is_merged_into_the_strategys_own(tmp_path: Path) -> None:
    text = "upstreams:\n  a: {url: http://x, strategy: smithy, bucket: {capacity: 20}}\n"
    bucket = policy(settings(tmp_path, text)).bucket
    assert bucket is not None
    assert bucket.spec == QuotaSpec(capacity=20, timeout_cost=10, flat_refund=True)
    text = "upstreams:\n  a: {url: http://x, bucket: {retry_cost: 20}}\n"
    bucket = policy(settings(tmp_path, text)).bucket
    assert bucket is not None
    assert bucket.spec == QuotaSpec(retry_cost=20, timeout_cost=20, throttling_cost=20)


def test_what_never_retries_needs_no_bucket_to_merge_an_inherited_one_into(tmp_path: Path) -> None:
    text = """\
        defaults: {bucket: {capacity: 20}}
        upstreams:
          a: {url: http://x, routes: [{match: {path: /none}, strategy: none}]}
        """
    found = settings(tmp_path, text)
    assert policy(found, path="/none").bucket is None
    assert policy(found).bucket is not None


def test_a_users_name_shadows_a_kind_but_kind_does_not_follow_it(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        strategies:
          standard: {max_attempts: 7}
        upstreams:
          a: {url: http://x}
          b: {url: http://y, strategy: {kind: standard}}
        """,
    )
    assert policy(found, "a").strategy.max_attempts == 7
    assert policy(found, "b").strategy.max_attempts == 3


def test_a_list_replaces_and_a_mapping_is_merged(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        defaults:
          classify: {transient: [500, 5xx], throttling: [429, 503]}
          headers: {request: {set: {X-One: 1, X-Two: 2.50}}}
          timeouts: {attempt: 3s}
        upstreams:
          a:
            url: http://x
            classify: {timeout: [503, 504]}
            headers: {request: {set: {X-Two: two}, remove: [Cookie]}}
            timeouts: {total: off}
        """,
    )
    base = policy(found)
    assert base.classify.statuses[503] is Class.THROTTLING
    assert base.classify.statuses[504] is Class.TIMEOUT
    assert base.classify.statuses[599] is Class.TRANSIENT
    assert FaultKind.RESET not in base.classify.faults
    assert base.request_headers.set == (("X-One", "1"), ("X-Two", "two"))
    assert base.request_headers.remove == {"cookie"}
    assert (base.timeouts.attempt, base.timeouts.total) == (3, None)


def test_a_route_takes_what_a_file_says_in_order(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        upstreams:
          a:
            url: http://x
            mode: observe
            routes:
              - match: {methods: [POST], path: /v1/charges/*}
                strategy: none
              - match: {path: /v1/**}
                verify: false
                attempt_headers: [grpc, aws]
        """,
    )
    assert policy(found, method="POST", path="/v1/charges/7").strategy.kind == "none"
    second = policy(found, path="/v1/charges/7")
    assert (second.route, second.strategy.kind, second.mode) == ("/v1/**", "standard", "observe")
    assert second.attempt_headers == {"grpc", "aws"}
    assert (second.target.verify, policy(found).target.verify) == (False, True)
    assert second.target.endpoints == policy(found).target.endpoints
    assert policy(found, path="/v2").route == ""


def test_off_bare_or_quoted_and_other_yaml_1_1_words(tmp_path: Path) -> None:
    for off in ("off", "'off'", "false", "OFF"):
        text = f"admin: {off}\nprobe: {off}\nupstreams:\n  a:\n    url: http://x\n    bucket: {off}\n    mode: {off}\n"
        text += f"    timeouts: {{total: {off}}}\n    pushback: {{cooldown: {off}}}\n    prefix: {off}\n"
        found = settings(tmp_path, text)
        made = policy(found)
        assert (found.admin, found.probe, made.bucket, made.mode) == (None, None, None, "off")
        assert (made.timeouts.total, made.pushback.cooldown) == (None, "off")
        assert found.router.by_name["a"].prefix is None


def test_python_data_reads_like_a_file() -> None:
    data = {
        "upstreams": {
            "a": {"url": "http://x", "mode": False, "timeouts": {"attempt": False}, "strategy": {"max_attempts": 5}}
        }
    }
    data = {**data, "strategies": {}, "defaults": {"strategy": "standard"}}
    found = load_tree(data, "inline", {}).settings
    assert found is not None
    made = policy(found)
    assert (made.mode, made.timeouts.attempt, made.strategy.max_attempts) == ("off", None, 5)
    wrong = load_tree({"drain": 5}, "inline.yaml", {})
    assert [str(each) for each in wrong.problems] == [
        "inline.yaml:1:1: drain: '5' has no unit; write it as 250ms, 2s, 1m or 1h (did you mean 5s?)"
    ]


def test_environment_in_values(tmp_path: Path) -> None:
    text = """\
        drain: ${DRAIN:-7s}
        workers: "${N}"
        admin: {token: "a-${TOKEN:-}-${EMPTY:-full}-$${not}"}
        upstreams:
          a: {url: "http://${HOST}:81", strategy: {max_attempts: "${N}"}}
        """
    found = settings(tmp_path, text, {"HOST": "x.test", "N": "4", "EMPTY": ""})
    assert (found.drain, found.workers) == (7, 4)
    assert found.admin is not None
    assert found.admin.token == "a--full-${not}"
    made = policy(found)
    assert (made.target.endpoints[0].host, made.strategy.max_attempts) == ("x.test", 4)
    # A value brings no structure with it.
    found = settings(tmp_path, "admin: {token: '${T}'}\n", {"T": "a, hosts: [x]"})
    assert found.admin is not None
    assert (found.admin.token, found.admin.hosts) == ("a, hosts: [x]", ())


@pytest.mark.parametrize(
    ("environ", "kind", "attempts"),
    [
        ({}, "standard", 3),
        ({"AWS_RETRY_MODE": "legacy"}, "legacy", 4),
        ({"AWS_RETRY_MODE": "Adaptive"}, "adaptive", 3),
        ({"AWS_MAX_ATTEMPTS": "7"}, "standard", 7),
        ({"AWS_RETRY_MODE": "legacy", "AWS_MAX_ATTEMPTS": "2"}, "legacy", 2),
        ({"AWS_RETRY_MODE": "", "AWS_MAX_ATTEMPTS": ""}, "standard", 3),
    ],
)
def test_the_aws_sdks_variables(tmp_path: Path, environ: dict[str, str], kind: str, attempts: int) -> None:
    found = settings(tmp_path, "upstreams:\n  a: {url: http://x}\n  b: {url: http://y, strategy: grpc}\n", environ)
    assert (policy(found).strategy.kind, policy(found).strategy.max_attempts) == (kind, attempts)
    assert policy(found, "b").strategy.kind == "grpc"
    named = settings(tmp_path, "defaults: {strategy: smithy}\nupstreams:\n  a: {url: http://x}\n", environ)
    assert policy(named).strategy.max_attempts == 6
    kindless = "defaults: {strategy: {backoff: {base: 7s}}}\nupstreams:\n  a: {url: http://x}\n"
    merged = policy(settings(tmp_path, kindless, environ)).strategy
    assert (merged.kind, merged.max_attempts, merged.backoff.base) == (kind, attempts, 7.0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("AWS_RETRY_MODE", "standart", "(did you mean standard?)"),
        ("AWS_MAX_ATTEMPTS", "string", "must be a whole number of 1 or more"),
        ("AWS_MAX_ATTEMPTS", "-1", "must be a whole number of 1 or more"),
        ("AWS_MAX_ATTEMPTS", "0", "must be a whole number of 1 or more"),
    ],
)
def test_a_wrong_aws_variable_is_named(tmp_path: Path, name: str, value: str, message: str) -> None:
    (line,) = lines(tmp_path, loaded(tmp_path, "", {name: value}))
    assert line.startswith(f"environment: {name}: ")
    assert message in line


def test_sockets_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.yaml").write_text("upstreams: {a: {url: ['unix:a.sock', 'unix:/run/b.sock']}}\n")
    text = "listen: [127.0.0.1:0, 'unix:x.sock']\nadmin: unix:run/admin.sock\nprobe: unix:p\ninclude: [more/a.yaml]\n"
    made = settings(tmp_path, text)
    assert made.listen[1].unix == f"{tmp_path}/x.sock"
    assert made.admin is not None
    assert made.admin.listen.unix == f"{tmp_path}/run/admin.sock"
    assert made.probe is not None
    assert made.probe.unix == f"{tmp_path}/p"
    assert [end.unix for end in made.router.by_name["a"].target.endpoints] == [
        f"{tmp_path}/more/a.sock",
        "/run/b.sock",
    ]


def test_defaults_that_depend_on_the_listeners(tmp_path: Path) -> None:
    local = settings(tmp_path, "listen: ['127.0.0.1:0', '[::1]:0', 'unix:/tmp/x', 'localhost:0']\n")
    assert (local.unmatched, local.limits.connect_ports) == ("forward", None)
    wide = settings(tmp_path, "listen: ['127.0.0.1:0', '0.0.0.0:0']\n")
    assert (wide.unmatched, wide.limits.connect_ports) == ("deny", {80, 443})
    assert tuple(wide.unmatched_on(loopback=here) for here in (True, False)) == ("forward", "deny")
    assert tuple(wide.connect_ports_on(loopback=here) for here in (True, False)) == (None, {80, 443})
    said = settings(tmp_path, "listen: 0.0.0.0:0\nunmatched: forward\nlimits: {connect_ports: any}\n")
    assert (said.unmatched, said.limits.connect_ports) == ("forward", None)
    assert (said.unmatched_on(loopback=False), said.connect_ports_on(loopback=False)) == ("forward", None)
    said = settings(tmp_path, "limits: {connect_ports: [443, 8443]}\n")
    assert said.limits.connect_ports == {443, 8443}
    token = settings(tmp_path, "admin: {listen: '0.0.0.0:9901', token: t, hosts: [admin.test]}\n")
    assert token.admin is not None
    assert (token.admin.token, token.admin.hosts) == ("t", ("admin.test",))


def test_unmatched_hosts_follow_defaults(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        defaults:
          pushback: {cooldown: reject}
          connect: intercept
          scope: upstream
          strategy: none
          routes: [{match: {path: /slow}, timeouts: {total: 1h}}]
        """,
    )
    rest = found.router.unmatched("x.test")
    assert (rest.policy.pushback.cooldown, rest.connect, rest.policy.scope.by) == ("reject", "tunnel", "host")
    assert rest.policy_for("GET", b"/slow", NO_FIELDS).timeouts.total == 3600
    denied = settings(tmp_path, "defaults: {connect: deny}\n").router.unmatched("x.test")
    assert (denied.connect, denied.policy.pushback.cooldown) == ("deny", "off")


def test_places_of_an_upstream(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        via_proxy: http://parent:3128
        upstreams:
          a:
            url: [http://x.test:81/base, "https://[::1]"]
          b: {hosts: "b.test", via_proxy: none}
        """,
    )
    a, b = found.router.upstreams
    assert [str(host) for host in a.hosts] == ["x.test:81", "x.test:80", "[::1]:443", "[::1]:80"]
    assert (a.target.via_proxy, b.target.via_proxy) == ("http://parent:3128", None)
    assert (b.target.endpoints, b.prefix) == ((), None)
    assert {81, 80, 443} <= found.router.named_ports


def test_included_files(tmp_path: Path) -> None:
    folder = tmp_path / "upstreams"
    folder.mkdir()
    (folder / "one.yaml").write_text("upstreams:\n  one: {url: http://one, strategy: calm}\n")
    (folder / "two.yaml").write_text("strategies:\n  calm: {kind: standard, max_attempts: 2}\n")
    main = "include: [upstreams/*.yaml]\nupstreams:\n  a: {url: http://a}\n"
    result = loaded(tmp_path, main)
    assert result.settings is not None
    assert [each.name for each in result.settings.router.upstreams] == ["a", "one"]
    assert policy(result.settings, "one").strategy.max_attempts == 2
    assert [Path(file).name for file in result.files] == ["redrive.yaml", "one.yaml", "two.yaml"]

    (folder / "three.yaml").write_text("drain: 5s\nupstreams:\n  a: {url: http://b}\n  c: {url: http://c, mod: off}\n")
    assert lines(tmp_path, loaded(tmp_path, main)) == [
        "upstreams/three.yaml:1:1: drain: unknown key; choose from buckets, strategies, upstreams",
        "upstreams/three.yaml:3:3: upstreams.a: is already defined, in redrive.yaml:3",
        "upstreams/three.yaml:4:22: upstreams.c.mod: unknown key (did you mean mode?)",
    ]
    assert lines(tmp_path, loaded(tmp_path, "include: [none/*.yaml]\n"), "warning") == [
        "redrive.yaml:1:11: include[0]: warning: no file matches none/*.yaml"
    ]


def test_a_file_is_read_once_and_does_not_include_itself(tmp_path: Path) -> None:
    """A glob for the files beside it finds the configuration too."""
    (tmp_path / "more.yaml").write_text("upstreams: {b: {url: http://b.test}}\n")
    (tmp_path / "link.yaml").symlink_to("more.yaml")
    found = settings(tmp_path, "include: ['*.yaml', more.yaml]\nupstreams: {a: {url: http://a.test}}\n")
    assert [each.name for each in found.router.upstreams] == ["a", "b"]
    assert lines(tmp_path, loaded(tmp_path, "include: [redrive.yaml]\n")) == [
        "redrive.yaml:1:11: include[0]: is the file that includes it: remove it"
    ]


def test_endpoints_of_one_host_and_port_are_told_apart(tmp_path: Path) -> None:
    urls = (
        "'https://h.test/a/', 'https://h.test/b', 'http://h.test:443/b', 'https://h.test/${SECRET}', 'https://i.test/'"
    )
    found = settings(tmp_path, f"upstreams: {{a: {{url: [{urls}], circuit_breaker: {{}}}}}}\n", {"SECRET": "s3cret"})
    labels = [share.label for share in policy(found).endpoints]
    assert labels == ["h.test:443/a", "h.test:443/b", "h.test:443/b #2", "h.test:443/***", "i.test:443"]


def test_merge_keys_and_anchors(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        upstreams:
          a: &base
            url: http://x
            timeouts: &slow {total: 1h, attempt: 5s}
          b:
            <<: *base
            url: http://y
            timeouts: {<<: *slow, attempt: 9s}
        """,
    )
    assert (policy(found, "b").timeouts.total, policy(found, "b").timeouts.attempt) == (3600, 9)
    assert policy(found, "b").target.endpoints[0].host == "y"


def test_buckets_of_every_kind(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        buckets:
          q: {kind: quota, capacity: 20, retry_cost: 3, initial: 5, refund: flat, store: redis}
          t: {kind: throttle, max_tokens: 4.0009, token_ratio: 0.5466}
          b: {kind: budget, percent: 15%}
          r: {kind: rate, rate: 600/m}
          s: {kind: rate, rate: 6/m, when_empty: reject}
        """,
    )
    specs = {name: ref.spec for name, ref in found.buckets.items()}
    assert specs == {
        "q": QuotaSpec(20, 3, 3, 3, 1, flat_refund=True, initial=5, store="redis"),
        "t": ThrottleSpec(4.0, 0.546),
        "b": BudgetSpec(15),
        "r": RateSpec(10, 10),
        "s": RateSpec(0.1, 1, "reject"),
    }
    assert found.uses_redis


def test_a_users_own_strategy(tmp_path: Path) -> None:
    (tmp_path / "own_strategy_for_a_test.py").write_text(
        "class Calm:\n"
        "    backoff_strategy = None\n"
        "    def __init__(self, attempts, flags=()):\n"
        "        self.max_attempts = attempts\n"
        "        self.flags = flags\n"
        "    def acquire_initial_retry_token(self, *, token_scope=None): ...\n"
        "    def refresh_retry_token_for_retry(self, *, token_to_renew, error): ...\n"
        "    def record_success(self, *, token): ...\n"
    )
    found = settings(
        tmp_path,
        """\
        strategies:
          calm: {kind: "own_strategy_for_a_test:Calm", attempts: 4, flags: [true, 1.5, "7"]}
        upstreams:
          a: {url: http://x, strategy: calm}
          b: {url: http://y, strategy: {kind: "own_strategy_for_a_test:Calm", attempts: 2}}
          c: {url: http://z, strategy: {kind: "own_strategy_for_a_test:Calm", attempts: 3}}
          d: {url: http://w, strategy: {kind: "own_strategy_for_a_test:Calm", attempts: 2}}
        """,
    )
    made = policy(found).strategy
    assert (made.kind, made.name, made.max_attempts, made.custom.flags) == ("custom", "calm", 4, [True, 1.5, "7"])
    assert policy(found, "b").strategy.name == "own_strategy_for_a_test:Calm"
    assert policy(found, "c").strategy.name == "own_strategy_for_a_test:Calm #2"  # no argument becomes a name
    assert policy(found, "d").strategy.name == "own_strategy_for_a_test:Calm"
    assert policy(found).bucket is None


def test_equal_inline_definitions_have_one_name_and_others_another(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        upstreams:
          a:
            url: http://x
            strategy: {max_attempts: 5}
            routes:
              - {match: {path: /same}, strategy: {kind: standard, max_attempts: 5}}
              - {match: {path: /other}, strategy: {kind: standard, max_attempts: 6, backoff: {base: 1s}}}
        """,
    )
    names = [policy(found, path=path).strategy.name for path in ("/", "/same", "/other")]
    assert names == ["standard(max_attempts=5)"] * 2 + ["standard(backoff.base=1s, max_attempts=6)"]


def test_which_file_a_command_works_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find("x.yaml", {"REDRIVE_CONFIG": "y.yaml"}) == "x.yaml"
    assert find(None, {"REDRIVE_CONFIG": "y.yaml"}) == "y.yaml"
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "redrive.yaml").write_text("")
    assert find(None, {}) == "config/redrive.yaml"


def test_routes_are_named_by_what_they_ask_for_and_never_by_a_headers_value(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        upstreams:
          a:
            url: http://x
            routes:
              - match: {methods: [POST], headers: {authorization: Bearer s3cret}}
              - match: {headers: {Authorization: Bearer s3cret}}
              - match: {headers: {authorization: Bearer 0ther, x-tier: gold}}
              - match: {path: "/hooks/${TOKEN}/*"}
              - match: {path: "/hooks/${TOKEN}/*"}
              - match: {}
        """,
        {"TOKEN": "s3cret"},
    )
    upstream = found.router.by_name["a"]
    assert [route.policy.route for route in upstream.routes] == [
        "POST",
        "header authorization #2",
        "header authorization, x-tier #3",
        "/hooks/${TOKEN}/*",
        "/hooks/${TOKEN}/* #2",
        "route 6",
    ]
    assert upstream.routes[3].match.paths == ("/hooks/s3cret/*",)


def test_protocol_is_inherited_and_services_are_one_or_several(tmp_path: Path) -> None:
    text = """\
        defaults: {protocol: http/2}
        upstreams:
          a: {url: http://a, services: x.A}
          b: {url: http://b, services: [x.B, "y.*"], protocol: auto, routes: [{match: {path: /x}}]}
    """
    found = settings(tmp_path, text).router
    assert [each.services for each in found.upstreams] == [("x.A",), ("x.B", "y.*")]
    assert [policy.target.protocol for each in found.upstreams for policy in each.policies] == [
        "http/2",
        "auto",
        "auto",
    ]
    assert found.fallback.target.protocol == "http/2"


def test_via_is_on_and_off_for_an_upstream_or_a_route(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """\
        upstreams:
          plain: {url: "https://api.example", routes: [{match: {path: /off}, via: off}]}
          without: {url: "https://api2.example", via: off, routes: [{match: {path: /on}, via: on}]}
        """,
    ).router.by_name
    plain, without = found["plain"], found["without"]
    assert (plain.policy.via, plain.routes[0].policy.via) == (True, False)
    assert (without.policy.via, without.routes[0].policy.via) == (False, True)


@pytest.mark.parametrize(
    ("urls", "of"),
    [
        ("http://a.test", "upstream"),
        ("[http://a.test, http://b.test]", "endpoint"),
        ("[http://a.test, http://a.test:81]", "endpoint"),
        ("[http://a.test/one, http://a.test/two]", "upstream"),  # one server: its limit is not got round by a path
        ("[http://a.test, http://A.test:80]", "upstream"),
    ],
)
def test_a_pushback_is_an_endpoints_own_word_if_there_are_several_hosts_or_ports(
    tmp_path: Path, urls: str, of: str
) -> None:
    assert policy(settings(tmp_path, f"upstreams:\n  a: {{url: {urls}}}\n"), "a").pushback.of == of
    written = loaded(tmp_path, f"upstreams:\n  a: {{url: {urls}, pushback: {{of: endpoint}}}}\n")
    assert bool(lines(tmp_path, written)) == (of == "upstream")
