"""Settings without effect are told, with their place, and refuse nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from configs import lines, loaded

from proxy.config.addresses import as_glob
from proxy.config.quota_drain import draining_share

A = "upstreams:\n  a:\n    url: http://x.test\n"

CASES: dict[str, tuple[str, list[str]]] = {
    "nothing to say": (A, []),
    "IPv6 alone": (
        "listen: ['[::]:8080', 127.0.0.1:8081]\nadmin: {listen: '[::]:9901', token: x}\nprobe: '[::]:9902'\n" + A,
        [
            "1:10: listen[0]: warning: takes IPv6 alone; add 0.0.0.0:8080 for IPv4",
            "2:17: admin.listen: warning: takes IPv6 alone; 0.0.0.0:9901 takes IPv4 alone",
            "3:8: probe: warning: takes IPv6 alone; 0.0.0.0:9902 takes IPv4 alone",
        ],
    ),
    "two apps and one listener": (
        "listen: [{address: '127.0.0.1:0', app: a}, {address: '127.0.0.1:0', app: b}]\n"
        "apps: {by: [listener], known: {a: {}, b: {}}}\n" + A,
        [
            "1:44: listen[1]: warning: 127.0.0.1:0 stands there twice, and is one listener with one app: "
            "give each a port of its own"
        ],
    ),
    "one listener twice": (
        "listen: ['127.0.0.1:0', '127.0.0.1:0']\n" + A,
        ["1:25: listen[1]: warning: 127.0.0.1:0 stands there twice, and is one listener: give each a port of its own"],
    ),
    "IPv6 and IPv4": ("listen: ['[::]:8080', 0.0.0.0:8080]\n" + A, []),
    "attempt not below total": (
        A + "    timeouts: {attempt: 20s, total: 15s}\n",
        ["4:25: upstreams.a.timeouts.attempt: warning: has no effect: 20s is not shorter than timeouts.total, 15s"],
    ),
    "connect not below total": (
        A + "    timeouts: {connect: 5s, total: 5s}\n",
        ["4:25: upstreams.a.timeouts.connect: warning: has no effect: 5s is not shorter than timeouts.total, 5s"],
    ),
    "a wait for a place that the deadline ends": (
        A + "    timeouts: {total: 15s}\n    concurrency: {max: 8, wait: 15s}\n",
        ["5:33: upstreams.a.concurrency.wait: warning: has no effect: 15s is not shorter than timeouts.total, 15s"],
    ),
    "a wait for a place that nobody wrote": (A + "    timeouts: {total: 15s}\n    concurrency: {max: 8}\n", []),
    "more in the queue than may wait": (
        A + "    concurrency: {max: 8, queue: 5000}\n",
        ["4:34: upstreams.a.concurrency.queue: warning: is more than can wait: half of limits.waiting, 1000 calls"],
    ),
    "no place for a hedge": (
        A + "    strategy: {kind: hedging, extra: 5%}\n    concurrency: {max: 1}\n",
        ["5:24: upstreams.a.concurrency.max: warning: leaves no room for a hedge: nothing is sent during an attempt"],
    ),
    "a breaker that one call opens": (
        A + "    circuit_breaker: {minimum_attempts: 3}\n",
        [
            "4:41: upstreams.a.circuit_breaker.minimum_attempts: warning: "
            "one call that fails can open it: a call makes 3 attempts"
        ],
    ),
    "a breaker's half of a percent": (
        A + "    circuit_breaker: {failure_ratio: 0.5}\n",
        [
            "4:38: upstreams.a.circuit_breaker.failure_ratio: warning: opens where 0.5 % fail (did you mean 50%?)",
        ],
    ),
    "a budget's fraction of one": (
        A + "    bucket: {kind: budget, percent: 0.2}\n",
        [
            "4:37: upstreams.a.bucket.percent: warning: grants retries for 0.2 % of the calls (did you mean 20%?)",
        ],
    ),
    "a budget of so few on purpose": (A + "    bucket: {kind: budget, percent: 0.2%}\n", []),
    "a hedging share that is a fraction of one": (
        A + "    strategy: {kind: hedging, hedging_delay: p95, extra: 0.05}\n",
        [
            "4:58: upstreams.a.strategy.extra: warning: grants hedges for 0.05 % of the calls (did you mean 5%?)",
        ],
    ),
    "a hedging share of so few on purpose": (
        A + "    strategy: {kind: hedging, hedging_delay: p95, extra: 0.5%}\n",
        [],
    ),
    "a breaker of one's own": (A + "    circuit_breaker: {}\n", []),
    "hedging without a bucket": (
        A + "    strategy: hedging\n",
        ["4:15: upstreams.a.strategy: warning: hedges without a bucket: nothing limits the load that they add"],
    ),
    "hedging within a share": (A + "    strategy: {kind: hedging, hedging_delay: p95}\n", []),
    "hedging within no share": (
        A + "    strategy: {kind: hedging, extra: 0}\n",
        ["4:38: upstreams.a.strategy.extra: warning: grants no hedge: nothing is sent during an attempt"],
    ),
    "hedging methods that are never hedged": (
        A + "    bucket: {kind: budget}\n    routes:\n      - {match: {methods: [POST]}, strategy: hedging}\n",
        [
            "6:46: upstreams.a.routes[0].strategy: warning: "
            "has no effect: these methods are not idempotent, and such calls are never hedged"
        ],
    ),
    "a dialect of reads": (A + "    dialects: [http, mcp]\n", []),
    "a dialect of reads without retries": (
        A + "    dialects: [http, mcp]\n    strategy: none\n",
        ["4:15: upstreams.a.dialects: warning: mcp has no effect: the strategy none never retries"],
    ),
    "a dialect of reads that one route retries": (
        A + "    dialects: [http, mcp]\n    strategy: none\n"
        "    routes:\n      - {match: {headers: {mcp-method: tools/list}}, strategy: standard}\n",
        [],
    ),
    "a dialect of reads where all is repeated": (
        A + "    dialects: [http, mcp]\n    classify: {unsafe_methods: always}\n",
        [
            "4:15: upstreams.a.dialects: warning: mcp has no effect: "
            "unsafe_methods: always repeats every POST, and not its reads alone"
        ],
    ),
    "a dialect of reads with injected keys": (
        A + "    dialects: [http, mcp]\n    idempotency_key: {inject: true}\n",
        [
            "4:15: upstreams.a.dialects: warning: mcp has no effect: "
            "idempotency_key.inject lets every POST be repeated, and not its reads alone"
        ],
    ),
    "a dialect of reads where no POST comes": (
        A + "    routes:\n      - {match: {methods: [GET]}, dialects: [http, mcp]}\n",
        [
            "5:45: upstreams.a.routes[0].dialects: warning: mcp has no effect: "
            "its reads are POSTs, and this route takes none"
        ],
    ),
    "hedging unsafe methods": (
        A + "    bucket: {kind: budget}\n    strategy: hedging\n    classify: {unsafe_methods: always}\n",
        [
            "5:15: upstreams.a.strategy: warning: "
            "hedges unsafe methods too (unsafe_methods: always): a POST may be carried out several times"
        ],
    ),
    "a quota too small": (
        A + "    bucket: {capacity: 8, timeout_cost: 10}\n",
        ["4:13: upstreams.a.bucket: warning: holds 8, but a retry after a timeout costs 10: no retry is ever granted"],
    ),
    "a quota too small for any": (
        A + "    bucket: {capacity: 4}\n",
        ["4:13: upstreams.a.bucket: warning: holds 4, but a retry costs 5: no retry is ever granted"],
    ),
    "a quota too small for two": (
        A + "    bucket: {capacity: 4, throttling_cost: 3, timeout_cost: 7}\n",
        [
            "4:13: upstreams.a.bucket: warning: "
            "holds 4, but a retry costs 5 and a retry after a timeout costs 7: no retry is ever granted"
        ],
    ),
    "a quota of nothing": (
        A + "    bucket: {capacity: 0}\n",
        ["4:13: upstreams.a.bucket: warning: holds 0, but a retry costs 5: no retry is ever granted"],
    ),
    "a throttle too small": (
        A + "    strategy: grpc\n    dialects: [http, grpc]\n    bucket: {kind: throttle, max_tokens: 2}\n",
        [
            "6:13: upstreams.a.bucket: warning: "
            "holds 2: the first failure leaves no more than half, and nothing is retried"
        ],
    ),
    "a budget of nothing": (
        A + "    bucket: {kind: budget, percent: 0, min_per_second: 0}\n",
        ["4:13: upstreams.a.bucket: warning: grants no retry: percent and min_per_second are both 0"],
    ),
    "a bucket that nobody pays": (
        "buckets: {b: {kind: budget}}\n" + A + "    strategy: none\n    bucket: b\n",
        ["6:13: upstreams.a.bucket: warning: has no effect: the strategy none never retries"],
    ),
    "a multiplier that does not multiply": (
        A + "    strategy: {backoff: {jitter: decorrelated, multiplier: 3}}\n",
        [
            "4:60: upstreams.a.strategy.backoff.multiplier: warning: "
            "has no effect: jitter decorrelated does not multiply"
        ],
    ),
    "a route behind another": (
        A + "    routes:\n      - {match: {path: /a/**}, mode: off}\n      - {match: {methods: [GET], path: /a/b/*}}\n",
        ["6:9: upstreams.a.routes[1]: warning: is never reached: the route /a/** on line 5 takes all its calls"],
    ),
    "a host that is taken": (
        A + "  b: {url: http://x.test}\n",
        ["4:12: upstreams.b.url: warning: a already has x.test:80: b is reached only by its prefix"],
    ),
    "a host that two have": (
        "upstreams:\n  a: {url: http://x.test}\n  b: {url: http://y.test}\n  c: {url: [http://x.test, http://y.test]}\n",
        ["4:12: upstreams.c.url: warning: a and b already have x.test:80, y.test:80: c is reached only by its prefix"],
    ),
    "hosts that many share": (
        "upstreams:\n" + "".join(f"  u{number}: {{url: 'https://x.test/{number}'}}\n" for number in range(30)),
        [
            "3:13: upstreams.u1.url: warning: u0 already has x.test:443, x.test:80: "
            "u1, u2, u3 and 26 more are reached only by their prefixes"
        ],
    ),
    "a host that another has by its url": (
        "upstreams:\n  b: {url: http://127.0.0.1:9, hosts: [x.test, y.test]}\n  a: {url: https://x.test}\n",
        [
            "2:40: upstreams.b.hosts[0]: warning: "
            "a takes x.test:443, x.test:80 first, the hosts of its url; give it hosts of its own"
        ],
    ),
    "https that would leave in the clear": (
        "upstreams:\n  a: {url: http://x.test, hosts: ['x.test:443', 'x.test:80']}\n  b: {url: https://y}\n",
        [
            "2:35: upstreams.a.hosts[0]: warning: "
            "an https request for x.test:443 would leave in the clear: url is http; make it https"
        ],
    ),
    "a path that is a regular expression": (
        A + "    routes:\n      - {match: {path: '/v1/.*$'}}\n      - {match: {path: /a/**/x}}\n",
        [
            "5:24: upstreams.a.routes[0].match.path: warning: .* reads like a regular expression; "
            "here * is any text within a segment, ** across (did you mean /v1/**?)"
        ],
    ),
    "a path as a url has it": (
        A + "    routes:\n      - {match: {path: '/v1/x?y=1'}}\n      - {match: {path: '/a%20b/*'}}\n",
        [
            "5:24: upstreams.a.routes[0].match.path: warning: a path is compared without its query: remove the ? and "
            "what follows it",
            "6:24: upstreams.a.routes[1].match.path: warning: a path is compared percent-decoded: write the characters "
            "themselves",
        ],
    ),
    "rules that an earlier one leaves nothing": (
        A + "    classify:\n"
        "      rules:\n"
        "        - {status: 4xx, as: fatal}\n"
        "        - {status: 400, json: {a: b}, as: throttling}\n"
        "        - {json: {a: b}, as: timeout}\n"
        "        - {status: 200, json: {a: b}, as: timeout}\n"
        "        - {status: 500, json: {a: '*'}, as: timeout}\n"
        "        - {status: [500, 501], json: {a: c}, as: fatal}\n"
        "        - {status: 500, json: {a: c}, header: {x: y}, as: fatal}\n"
        "        - {fail: [reset, attempt_timeout], as: timeout}\n"
        "        - {fail: reset, as: fatal}\n",
        [
            "7:11: upstreams.a.classify.rules[1]: warning: is never reached: rule 1 takes all that it matches",
            "12:11: upstreams.a.classify.rules[6]: warning: is never reached: rule 5 takes all that it matches",
            "14:11: upstreams.a.classify.rules[8]: warning: is never reached: rule 8 takes all that it matches",
        ],
    ),
    "a rule without a condition": (
        A + "    classify:\n      rules: [{status: 200, as: success}, {as: throttling}]\n",
        [
            "5:43: upstreams.a.classify.rules[1]: warning: matches successes too, and has them retried: name a status, "
            "as in status: [4xx, 5xx]"
        ],
    ),
    "a rule for all the rest": (A + "    classify: {rules: [{as: fatal}]}\n", []),
    "an upstream that nothing leads to": (
        "upstreams:\n"
        "  a: {url: http://a.test, hosts: [], prefix: off}\n"
        "  b: {url: http://b.test, hosts: [], prefix: off}\n"
        "  c: {url: http://c.test, fallback: [b]}\n",
        [
            "2:3: upstreams.a: warning: is never reached: it has no hosts, no prefix and no services, and no fallback "
            "names it"
        ],
    ),
    "what TLS would need, without TLS": (
        "upstreams:\n"
        "  a: {url: http://a.test, verify: redrive.yaml, client_cert: {cert: redrive.yaml, key: redrive.yaml}}\n"
        "  b: {url: [http://b.test, https://b.test], verify: true}\n"
        "  c: {url: http://c.test, verify: false}\n",
        [
            "2:27: upstreams.a.verify: warning: has no effect: no url of it is https",
            "2:49: upstreams.a.client_cert: warning: has no effect: no url of it is https",
        ],
    ),
    "a success after which hedges go on": (
        A + "    strategy: {kind: hedging, extra: 5%, non_fatal: [200, 503]}\n",
        [
            "4:53: upstreams.a.strategy.non_fatal: warning: 200 is not a failure, and hedges would go on from it: "
            "remove what is below 400 from the list"
        ],
    ),
    "a success among failures": (
        A + "    classify: {transient: [200, 503], throttling: [429]}\n",
        [
            "4:27: upstreams.a.classify.transient: warning: "
            "200 is not a failure, and would be retried: remove what is below 400 from the list"
        ],
    ),
    "many attempts at once": (
        A + "    strategy: {max_attempts: 10, backoff: {base: 0}}\n",
        [
            "4:15: upstreams.a.strategy: warning: "
            "makes 10 attempts with next to no wait between them: give backoff a base"
        ],
    ),
    "a few attempts at once": (A + "    strategy: {max_attempts: 3, backoff: {base: 0}}\n", []),
    "a delay of hours": (
        A + "    pushback: {max_delay: 2h}\n",
        [
            "4:27: upstreams.a.pushback.max_delay: warning: "
            "lets an upstream hold a call for 2 h; apps give up long before that: try 60s"
        ],
    ),
    "a hold that the deadline ends": (
        A + "    timeouts: {total: 15s}\n    outage: fail\n    pushback: {hold: 15s}\n",
        ["6:22: upstreams.a.pushback.hold: warning: has no effect: 15s is not shorter than timeouts.total, 15s"],
    ),
    "a hold that says how late a call may come in an outage": (
        A + "    timeouts: {total: 10s}\n    pushback: {hold: 60s}\n",
        [],
    ),
    "a hold that nobody wrote": (A + "    timeouts: {total: 15s}\n    pushback: {ahead: on}\n", []),
    "a hold where nothing holds": (
        A + "    outage: fail\n    concurrency: off\n    pushback: {cooldown: reject, hold: 5s}\n",
        [
            "6:40: upstreams.a.pushback.hold: warning: "
            "has no effect: cooldown, outage, concurrency and ahead let no call be held"
        ],
    ),
    "a hold for what is left alone": (
        A + "    outage: fail\n    concurrency: off\n    pushback: {cooldown: off, ahead: on, hold: 5s}\n",
        [],
    ),
    "a hold that lets no call wait": (
        A + "    pushback: {ahead: on, hold: 0s}\n",
        [
            "4:23: upstreams.a.pushback.ahead: warning: "
            "holds no call: with hold: 0s none waits for what is left of a limit"
        ],
    ),
    "a file that says nothing": (
        "# to be done\n",
        ["1:1: warning: is empty, or contains only comments"],
    ),
    "one host of two that is taken": (
        A + "  b: {url: http://y, hosts: [x.test:80, y.test]}\n",
        ["4:29: upstreams.b.hosts: warning: a already has x.test:80"],
    ),
    "a gRPC service that is taken": (
        "upstreams:\n"
        "  a: {url: http://x, dialects: [http, grpc], services: [x.A, x.B]}\n"
        "  b: {url: http://y, dialects: [grpc], services: [x.B, 'x.*']}\n",
        ["3:50: upstreams.b.services: warning: a already has x.B: it comes first"],
    ),
    "a gRPC service, and no name of its failures": (
        A + "    services: x.A\n",
        [
            "4:15: upstreams.a.services: warning: no grpc-status is retried: "
            "add the dialect, `dialects: [http, grpc]`, or list statuses in classify"
        ],
    ),
    "a gRPC service whose failures have names": (
        A + "    services: [x.A]\n    classify: {transient: [ABORTED]}\n",
        [],
    ),
    "a gRPC service by HTTP/1.1": (
        A + "    services: [x.A]\n    protocol: http/1.1\n",
        [
            "5:15: upstreams.a.protocol: warning: "
            "protocol is http/1.1: every gRPC call on HTTP/2 is answered UNIMPLEMENTED"
        ],
    ),
    "nowhere to go": (
        "upstreams:\n  a: {strategy: none}\n",
        ["2:3: upstreams.a: warning: is never reached: it has neither url nor hosts"],
    ),
    "a prefix with nowhere to go": (
        "upstreams:\n  a: {hosts: x.test, prefix: /x}\n",
        ["2:30: upstreams.a.prefix: warning: has no effect: without url, a call by prefix has nowhere to go"],
    ),
    "interception without a CA": (
        A + "    connect: intercept\n",
        ["4:14: upstreams.a.connect: warning: needs the local CA, ca/cert.pem: redrive ca init makes it"],
    ),
    "faults that prove nothing among those that do": (
        A + "    classify: {throttling: [429, attempt_timeout], rules: [{fail: [reset], as: throttling}]}\n",
        [
            "4:28: upstreams.a.classify.throttling: warning: as throttling, attempt_timeout says that the request was "
            "not carried out, and a POST is repeated after it: list it under timeout or transient",
            "4:60: upstreams.a.classify.rules[0]: warning: as throttling, reset says that the request was not carried "
            "out, and a POST is repeated after it: list it under timeout or transient",
        ],
    ),
    "such faults where nothing changes by it": (
        A + "    classify: {unsafe_methods: always, throttling: [429, attempt_timeout]}\n    routes:\n"
        "      - {match: {path: /a}, classify: {unsafe_methods: never}}\n"
        "      - {match: {path: /b, methods: [GET, PUT]}, classify: {unsafe_methods: unprocessed}}\n"
        "      - {match: {path: /c}, classify: {unsafe_methods: unprocessed}, strategy: none}\n",
        [],
    ),
    "methods in small letters": (
        A + "    routes: [{match: {methods: [post]}}]\n",
        ["4:33: upstreams.a.routes[0].match.methods: warning: methods are case-sensitive (did you mean POST?)"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_warnings(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    result = loaded(tmp_path, text)
    assert result.settings is not None, lines(tmp_path, result)
    assert lines(tmp_path, result, "warning") == [f"redrive.yaml:{line}" for line in expected]


@pytest.mark.parametrize("address", ["unix:/run/redrive.sock", "127.0.0.1:8080"])
def test_an_address_that_is_refused_the_second_time_is_told_of_once(address: str, tmp_path: Path) -> None:
    result = loaded(tmp_path, f"listen: ['{address}', '{address}']\n{A}")
    assert result.settings is None
    told = [each.message for each in result.problems if address in each.message]
    assert told == [f"{address} is already taken, by listen"]


@pytest.mark.parametrize(
    ("pack", "attempts", "says"),
    [
        ("openai", 2, "makes 2 attempts, and openai-python"),
        ("anthropic", 1, "makes 1 attempt, and anthropic-sdk-python"),
        ("azure", 3, "makes 3 attempts, and azure-core"),
        ("openai", 3, None),
        ("azure", 4, None),
        ("github", 1, None),
    ],
)
def test_fewer_attempts_than_the_providers_client_makes(
    tmp_path: Path, pack: str, attempts: int, says: str | None
) -> None:
    text = A + f"    dialects: [http, {pack}]\n    strategy: {{kind: standard, max_attempts: {attempts}}}\n"
    said = lines(tmp_path, loaded(tmp_path, text), "warning")
    if says is None:
        assert said == []
    else:
        (line,) = said
        assert line.startswith(f"redrive.yaml:5:15: upstreams.a.strategy: warning: {says}")
        assert line.endswith(f"set max_attempts: {4 if pack == 'azure' else 3}")


def test_what_is_inherited_is_told_once(tmp_path: Path) -> None:
    text = "defaults: {strategy: hedging}\nupstreams:\n  a: {url: http://x}\n  b: {url: http://y}\n"
    assert len(lines(tmp_path, loaded(tmp_path, text), "warning")) == 1


@pytest.mark.parametrize(("cost", "percent"), [(5, "32.1"), (10, "24.6"), (14, "21.5")])
def test_when_a_quota_drains(tmp_path: Path, cost: int, percent: str) -> None:
    text = A + f"    bucket: {{retry_cost: {cost}}}\n"
    assert lines(tmp_path, loaded(tmp_path, text), "note") == [
        f"redrive.yaml:4:13: upstreams.a.bucket: note: the quota drains where more than {percent} % of attempts fail "
        f"(a retry costs {cost}, 3 attempts)"
    ]


def test_how_large_a_fleet_a_bucket_in_redis_is_for(tmp_path: Path) -> None:
    text = (
        "buckets:\n  fleet: {kind: quota, capacity: 100, timeout_cost: 10, store: redis}\n"
        "  pace: {kind: rate, rate: 50/s, store: redis}\n  small: {kind: rate, rate: 1/s, store: redis}\n"
        "upstreams:\n  a: {url: http://x, bucket: fleet, rate: [pace, small]}\n  b: {url: http://y, bucket: fleet}\n"
    )
    found = [line for line in lines(tmp_path, loaded(tmp_path, text), "note") if "drains" not in line]
    assert found == [
        "redrive.yaml:6:30: upstreams.a.bucket: note: the bucket fleet lets 5 processes keep a retry (10 tokens) ready "
        "each; a fleet of N processes needs a capacity of 20 * N, and in a larger fleet every retry asks Redis",
        "redrive.yaml:6:43: upstreams.a.rate: note: the bucket pace lets 25 processes keep a token ready each; a fleet "
        "of N processes needs a burst of 2 * N, and in a larger fleet every attempt asks Redis",
    ]


@pytest.mark.parametrize(
    ("capacity", "ready"),
    [
        (4, None),
        (9, "is too small to keep a retry (5 tokens) ready: every retry asks Redis; {}"),
        (19, "lets 1 process keep a retry (5 tokens) ready; {}, and in a larger fleet every retry asks Redis"),
    ],
)
def test_what_a_small_quota_in_redis_is_told(tmp_path: Path, capacity: int, ready: str | None) -> None:
    """A quota that can't pay for one retry is told that instead, in a warning."""
    text = A + f"    bucket: {{kind: quota, capacity: {capacity}, store: redis}}\n"
    found = [line for line in lines(tmp_path, loaded(tmp_path, text), "note") if "drains" not in line]
    needs = "a fleet of N processes needs a capacity of 10 * N"
    assert found == (
        [f"redrive.yaml:4:13: upstreams.a.bucket: note: the bucket {ready.format(needs)}"] if ready else []
    )


def test_a_fleet_that_counts_tokens_is_told_nothing_of_its_size(tmp_path: Path) -> None:
    """What a call costs is known only when it comes."""
    text = (
        A + "    dialects: [openai]\n    rate: {kind: rate, unit: tokens, rate: 40000/m, burst: 4000, store: redis}\n"
    )
    assert not [line for line in lines(tmp_path, loaded(tmp_path, text), "note") if "drains" not in line]


def test_the_share_by_simulation() -> None:
    """The formula against its own words: the expected change of the level over all ways a call can go."""
    for cost, attempts, flat in ((5, 3, False), (14, 6, False), (5, 6, True), (2, 2, False)):
        share = draining_share(cost, attempts, flat=flat)
        assert share is not None
        change = 0.0
        for failures in range(attempts + 1):
            weight = share**failures * ((1 - share) if failures < attempts else 1)
            paid = cost * min(failures, attempts - 1)
            won = failures < attempts
            back = (1 if flat else cost if failures else 1) if won else 0
            change += weight * (back - paid)
        assert abs(change) < 1e-9


def test_a_quota_that_never_drains() -> None:
    assert draining_share(0, 3) is None
    assert draining_share(5, 1) is None
    assert draining_share(5, 3, 0) == pytest.approx(0)


def test_a_quota_that_only_failures_could_drain(tmp_path: Path) -> None:
    """Where the refund is huge, the two are equal at a share that a float cannot tell from 1."""
    result = loaded(tmp_path, A + "    bucket: {success_refund: 99999999999999999999}\n")
    assert result.settings is not None and not lines(tmp_path, result, "note", "warning")


def test_an_optional_part_that_is_missing_is_told_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "buckets: {fleet: {kind: quota, store: redis}}\n"
        "upstreams:\n  a: {url: https://x.example, connect: intercept, bucket: fleet}\n"
    )
    assert not [line for line in lines(tmp_path, loaded(tmp_path, text), "warning") if "package" in line]
    monkeypatch.setattr("proxy.config.upstream_advice.is_installed", lambda extra: False)
    problems = [line for line in lines(tmp_path, loaded(tmp_path, text), "warning") if "package" in line]
    assert problems == [
        "redrive.yaml:1:39: buckets.fleet.store: warning: needs the package redis, or the bucket is this "
        "process's own: "
        "in a checkout make extras, or for an environment of your own pip install '.[redis]'",
        "redrive.yaml:3:40: upstreams.a.connect: warning: needs the package cryptography: "
        "in a checkout make extras, or for an environment of your own pip install '.[intercept]'",
    ]


@pytest.mark.parametrize(
    ("regex", "glob"),
    [
        ("^/v1/.*$", "/v1/**"),
        (r"/v1/\d+", "/v1/*"),
        ("/v1/[^/]+/x", "/v1/*/x"),
        (r"/v1/(\d+)/x\.json", "/v1/*/x.json"),
        ("/v1/(a|b)", ""),
        ("(", ""),
    ],
)
def test_the_glob_that_was_meant(regex: str, glob: str) -> None:
    assert as_glob(regex) == glob


@pytest.mark.parametrize("path", ["/(", r"/v1/\d", "/a+$", "/v1/.+", "/[a-z]/x"])
def test_paths_that_read_like_regular_expressions(tmp_path: Path, path: str) -> None:
    found = lines(tmp_path, loaded(tmp_path, A + f"    routes: [{{match: {{path: '{path}'}}}}]\n"), "warning")
    assert any("reads like a regular expression" in line for line in found)


@pytest.mark.parametrize("path", ["/v1/*", "/**", "/a.b/c", "/x-y/~z", "/v1/models:generate", "/a+b/*"])
def test_paths_that_do_not(tmp_path: Path, path: str) -> None:
    found = lines(tmp_path, loaded(tmp_path, A + f"    routes: [{{match: {{path: '{path}'}}}}]\n"), "warning")
    assert not any("regular expression" in line for line in found)


def test_advice_beside_errors_is_of_what_has_none(tmp_path: Path) -> None:
    text = (
        "drain: soon\nupstreams:\n  a:\n    url: http://x.test\n    bucket: {capacity: 4}\n    mode: obseve\n"
        "  b:\n    url: http://y.test\n    bucket: {capacity: 4}\n"
    )
    result = loaded(tmp_path, text)
    assert result.settings is None
    problems = [line.split(": ")[0] + " " + line.split(": ")[1] for line in lines(tmp_path, result, "error", "warning")]
    assert problems == [
        "redrive.yaml:1:8 drain",
        "redrive.yaml:6:11 upstreams.a.mode",
        "redrive.yaml:9:13 upstreams.b.bucket",
    ]
    inherited = loaded(tmp_path, text.replace("drain: soon", "defaults: {drain: 5s}"))
    assert all(problem.severity == "error" for problem in inherited.problems)
