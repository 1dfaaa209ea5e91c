"""Every error names file, line, column and key, and all of them are told at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from configs import lines, loaded

from proxy.config.classification import built_in_names
from proxy.config.load import load

A_TEST = "upstreams:\n  a:\n    url: http://a.test\n"

# (the file, the lines that are printed; each must begin the printed line)
CASES: dict[str, tuple[str, list[str]]] = {
    "endpoints": (
        "upstreams:\n"
        "  a:\n"
        "    url:\n"
        "      - {url: http://a.test, weight: 0}\n"
        "      - {url: http://b.test, wieght: 2}\n"
        "      - {weight: 101, priority: -1}\n"
        "  b: {url: {url: http://a.test}}\n",
        [
            "redrive.yaml:4:38: upstreams.a.url[0].weight: must be 1 or more",
            "redrive.yaml:5:30: upstreams.a.url[1].wieght: unknown key (did you mean weight?)",
            "redrive.yaml:6:9: upstreams.a.url[2].url: is missing",
            "redrive.yaml:6:18: upstreams.a.url[2].weight: must be at most 100",
            "redrive.yaml:6:33: upstreams.a.url[2].priority: must be 0 or more",
            "redrive.yaml:7:12: upstreams.b.url: must be a word or a list, not a mapping",
        ],
    ),
    "circuit breakers": (
        "upstreams:\n"
        "  a: {url: http://a.test, circuit_breaker: {failure_ration: 50%, failure_ratio: 0, minimum_attempts: 0}}\n"
        "  b: {url: http://b.test, circuit_breaker: {failure_ratio: 101%, window: 0s, open: 5}}\n"
        "  c:\n"
        "    url: http://c.test\n"
        "    circuit_breaker: on\n"
        "    routes:\n"
        "      - {match: {path: /x}, circuit_breaker: {}}\n",
        [
            "redrive.yaml:2:45: upstreams.a.circuit_breaker.failure_ration: unknown key (did you mean failure_ratio?)",
            "redrive.yaml:2:81: upstreams.a.circuit_breaker.failure_ratio: must be above 0%",
            "redrive.yaml:2:102: upstreams.a.circuit_breaker.minimum_attempts: must be 1 or more",
            "redrive.yaml:3:60: upstreams.b.circuit_breaker.failure_ratio: must be at most 100%",
            "redrive.yaml:3:74: upstreams.b.circuit_breaker.window: must be longer than 0",
            "redrive.yaml:3:84: upstreams.b.circuit_breaker.open: '5' has no unit; ",
            "redrive.yaml:6:22: upstreams.c.circuit_breaker: 'on' is not off; write circuit_breaker: {failure",
            "redrive.yaml:8:29: upstreams.c.routes[0].circuit_breaker: unknown key (did you mean upstreams.NAME.",
        ],
    ),
    "what would part a call from its idempotency key": (
        "upstreams:\n"
        "  a: {url: http://a.test, idempotency_key: {header: Content-Length, inject: true}}\n"
        "  b: {url: http://b.test, idempotency_key: {header: via}}\n"
        "  c: {url: http://c.test, idempotency_key: {header: X-Retry-Timeout}}\n"
        "  d: {url: http://d.test, headers: {request: {remove: [idempotency-key]}}, routes: [{match: {path: /x}}]}\n"
        "  e: {url: http://e.test, headers: {request: {set: {X-Key: a}}}, idempotency_key: {header: x-key}}\n"
        "  f: {url: http://f.test, headers: {request: {set: {Idempotency-Key: a}}}, idempotency_key: {header: x-key}}\n"
        "  g: {url: http://g.test, credentials: {header: x-key, values: [a]}, idempotency_key: {header: X-Key}}\n",
        [
            "redrive.yaml:2:53: upstreams.a.idempotency_key.header: Content-Length never reaches an upstream as the",
            "redrive.yaml:3:53: upstreams.b.idempotency_key.header: via never reaches an upstream as the app sent it",
            "redrive.yaml:4:53: upstreams.c.idempotency_key.header: X-Retry-Timeout never reaches an upstream as the",
            "redrive.yaml:5:56: upstreams.d.headers.request.idempotency-key: calls are repeated for their idempotency-",
            "redrive.yaml:6:53: upstreams.e.headers.request.X-Key: calls are repeated for their X-Key: leave it, or na",
            "redrive.yaml:8:96: upstreams.g.idempotency_key.header: credentials replace X-Key: calls would be repeated",
        ],
    ),
    "unknown key": (
        "upstreams:\n  a:\n    url: http://x\n    timeout: {total: 5s}\n",
        ["redrive.yaml:4:5: upstreams.a.timeout: unknown key (did you mean timeouts?)"],
    ),
    "a policy's key at the top": (
        "mode: observe\nurl: http://x\n",
        [
            "redrive.yaml:1:1: mode: unknown key (did you mean defaults.mode?)",
            "redrive.yaml:2:1: url: unknown key (did you mean upstreams.NAME.url?)",
        ],
    ),
    "an event without a status": (
        "defaults: {classify: {rules: [{event: {event: error}, as: fatal}]}}\n",
        [
            "redrive.yaml:1:32: defaults.classify.rules[0].event: needs a status below 400 next to it, such as "
            "status: 200"
        ],
    ),
    "an event on what is never a stream": (
        "defaults:\n  classify:\n    rules:\n"
        "      - {status: 503, event: {}, as: transient}\n"
        "      - {status: [204, 304, 5xx], event: {event: error}, as: transient}\n"
        "      - {status: [204, 200, 5xx], event: {event: error}, as: transient}\n",
        [
            "redrive.yaml:4:23: defaults.classify.rules[0].event: never matches: status 503 is never a stream; name a",
            "redrive.yaml:5:35: defaults.classify.rules[1].event: never matches: status 204, 304, 500… is never a stre",
        ],
    ),
    "an event beside what is no stream": (
        "defaults: {classify: {rules: [{status: 200, event: {}, fail: reset, grpc_status: OK, xml: {a: b}, as: fatal}]}"
        "}\n",
        [
            "redrive.yaml:1:56: defaults.classify.rules[0].fail: cannot be combined with event: a fault has no answer",
            "redrive.yaml:1:69: defaults.classify.rules[0].grpc_status: cannot be combined with event: a gRPC call's",
            "redrive.yaml:1:86: defaults.classify.rules[0].xml: cannot be combined with event: a stream of",
        ],
    ),
    "what is no event": (
        "defaults: {classify: {rules: [{status: 200, event: {name: x}, as: fatal, counts_as: 500}]}}\n",
        [
            "redrive.yaml:1:53: defaults.classify.rules[0].event.name: unknown key; choose from event, json",
            "redrive.yaml:1:74: defaults.classify.rules[0].counts_as: unknown key",
        ],
    ),
    "a first byte that is no time": (
        "defaults: {timeouts: {first_byte: 20}}\n",
        ["redrive.yaml:1:35: defaults.timeouts.first_byte: '20' has no unit"],
    ),
    "another name of it": (
        "defaults: {timeouts: {ttfb: 20s}}\n",
        ["redrive.yaml:1:23: defaults.timeouts.ttfb: unknown key"],
    ),
    "a key that only shares letters with another": (
        "upstreams:\n  a:\n    url: http://x\n    pushback: {headers: [x-pause]}\n",
        ["redrive.yaml:4:16: upstreams.a.pushback.headers: unknown key; choose from max_delay, cooldown, hold,"],
    ),
    "unknown top key": ("upstream: {}\n", ["redrive.yaml:1:1: upstream: unknown key (did you mean upstreams?)"]),
    "a number for the mapping": (
        "upstreams:\n  a:\n    url: http://x\n    concurrency: 8\n",
        [
            "redrive.yaml:4:18: upstreams.a.concurrency: '8' must be auto, off, or a mapping with max "
            "(did you mean {max: 8}?)"
        ],
    ),
    "needed keys with nothing behind them": (
        "upstreams:\n"
        "  a:\n"
        "    url: [{url: , weight: 2}, http://x]\n"
        "    fallback: [{to: }]\n"
        "    credentials: {header: , values: [k]}\n"
        "  b: {url: http://y, concurrency: {max: }}\n",
        [
            "redrive.yaml:3:11: upstreams.a.url[0].url: is missing",
            "redrive.yaml:4:16: upstreams.a.fallback[0].to: is missing: the name of an upstream with a url",
            "redrive.yaml:5:18: upstreams.a.credentials.header: is missing: the field that carries it, as x-api-key",
            "redrive.yaml:6:36: upstreams.b.concurrency.max: has nothing after it: write a value, or leave the key out",
        ],
    ),
    "no place at all": (
        "upstreams:\n  a:\n    url: http://x\n    concurrency: {max: 0, wait: 5}\n",
        [
            "redrive.yaml:4:24: upstreams.a.concurrency.max: '0' must be a whole number of at least 1, or auto",
            "redrive.yaml:4:33: upstreams.a.concurrency.wait: '5' has no unit",
        ],
    ),
    "another proxy's name of it": (
        "upstreams:\n  a:\n    url: http://x\n    max_requests: 8\n",
        ["redrive.yaml:4:5: upstreams.a.max_requests: unknown key (did you mean concurrency.max?)"],
    ),
    "duplicate key": (
        "drain: 5s\nlisten: 127.0.0.1:1\ndrain: 6s\n",
        ["redrive.yaml:3:1: drain: duplicate key; it is already set on line 1"],
    ),
    "duplicate upstream": (
        "upstreams:\n  a: {url: http://x}\n  a: {url: http://y}\n",
        ["redrive.yaml:3:3: upstreams.a: duplicate key; it is already set on line 2"],
    ),
    "wrong unit": (
        "upstreams:\n  a:\n    url: http://x\n    timeouts:\n      total: 5sec\n",
        ["redrive.yaml:5:14: upstreams.a.timeouts.total: '5sec' has the unit 'sec'"],
    ),
    "no unit": ("drain: 25\n", ["redrive.yaml:1:8: drain: '25' has no unit"]),
    "sexagesimal": ("drain: 12:30\n", ["redrive.yaml:1:8: drain: '12:30' is not a duration"]),
    "size": ("buffers: {total: 64MB}\n", ["redrive.yaml:1:18: buffers.total: '64MB' has the unit 'MB'"]),
    "a word for a list": (
        "defaults: {dialects: aws}\n",
        ["redrive.yaml:1:22: defaults.dialects: must be a list, not 'aws' (did you mean [aws]?)"],
    ),
    "a list for a mapping": (
        "upstreams: [a]\n",
        ["redrive.yaml:1:12: upstreams: must be a mapping, not a list"],
    ),
    "a mapping for a word": ("drain: {a: 1}\n", ["redrive.yaml:1:8: drain: must be a duration"]),
    "the whole file a list": ("- a\n", ["redrive.yaml:1:1: a configuration is a mapping of keys, not a list"]),
    "no such strategy": (
        "strategies:\n  patient: {kind: standard}\nupstreams:\n  a: {url: http://x, strategy: pateint}\n",
        ["redrive.yaml:4:32: upstreams.a.strategy: there is no strategy called 'pateint' (did you mean patient?)"],
    ),
    "no such bucket": (
        "buckets:\n  spare: {kind: budget}\nupstreams:\n  a: {url: http://x, bucket: spaer}\n",
        ["redrive.yaml:4:30: upstreams.a.bucket: there is no bucket called 'spaer' (did you mean spare?)"],
    ),
    "a kind for a bucket's name": (
        "upstreams:\n  a: {url: http://x, bucket: quota}\n",
        ["redrive.yaml:2:30: upstreams.a.bucket: there is no bucket called 'quota' (did you mean {kind: quota}?)"],
    ),
    "no such kind": (
        "strategies:\n  p: {kind: standart}\n",
        ["redrive.yaml:2:13: strategies.p.kind: 'standart' is not a kind of strategy (did you mean standard?)"],
    ),
    "a strategy's name as a kind": (
        "strategies:\n  p: {kind: standard}\nupstreams:\n  a: {url: http://x, strategy: {kind: p}}\n",
        ["redrive.yaml:4:39: upstreams.a.strategy.kind: 'p' is not a kind of strategy; p is the name of a strategy"],
    ),
    "kind is missing": (
        "strategies:\n  p: {max_attempts: 5}\nbuckets:\n  b: {capacity: 5}\n",
        ["redrive.yaml:2:3: strategies.p.kind: is missing", "redrive.yaml:4:3: buckets.b.kind: is missing"],
    ),
    "another kind's key": (
        "buckets:\n  b: {kind: throttle, capacity: 5}\n",
        ["redrive.yaml:2:23: buckets.b.capacity: unknown key for the kind throttle; it belongs to quota"],
    ),
    "a percentile without hedging": (
        "strategies:\n  p: {kind: standard, hedging_delay: p95}\n",
        ["redrive.yaml:2:23: strategies.p.hedging_delay: unknown key for the kind standard; it belongs to hedging"],
    ),
    "a share of hedges without hedging": (
        "upstreams:\n  a: {url: http://x, strategy: {extra: 5%}}\n",
        ["redrive.yaml:2:33: upstreams.a.strategy.extra: unknown key for the kind standard; it belongs to hedging"],
    ),
    **{
        f"the percentile {written}": (
            f"strategies:\n  p: {{kind: hedging, hedging_delay: {written}}}\n",
            [f"redrive.yaml:2:37: strategies.p.hedging_delay: '{written}' is {message}"],
        )
        for written, message in {
            "p49": "out of range; a percentile is p50 to p99.9",
            "p100": "out of range; a percentile is p50 to p99.9",
            "p99.95": "out of range; a percentile is p50 to p99.9",
            "p95ms": "neither a duration nor a percentile (did you mean p95?)",
            "95%": "neither a duration nor a percentile (did you mean p95?)",
            "P95": "neither a duration nor a percentile (did you mean p95?)",
            "pct95": "not a duration; write it as 250ms, 2s, 1m or 1h",
        }.items()
    },
    "more hedges than calls": (
        "strategies:\n  p: {kind: hedging, hedging_delay: p95, extra: 101%}\n",
        ["redrive.yaml:2:49: strategies.p.extra: must be at most 100%"],
    ),
    "fewer hedges than none": (
        "strategies:\n  p: {kind: hedging, hedging_delay: p95, extra: -1%}\n",
        ["redrive.yaml:2:49: strategies.p.extra: '-1%' is not a percentage; write it as 20 or 20%"],
    ),
    "a key of no kind": (
        "strategies:\n  p: {kind: standard, max_attemps: 5}\n",
        ["redrive.yaml:2:23: strategies.p.max_attemps: unknown key for the kind standard (did you mean max_attempts?)"],
    ),
    "a bucket of the wrong kind": (
        "buckets:\n  p: {kind: rate, rate: 5/s}\n  q: {kind: quota}\n"
        "upstreams:\n  a: {url: http://x, bucket: p, rate: q}\n",
        [
            "redrive.yaml:5:30: upstreams.a.bucket: takes a quota, a throttle or a budget, but p is of kind rate",
            "redrive.yaml:5:39: upstreams.a.rate: takes a bucket of kind rate, but q is of kind quota",
        ],
    ),
    "a rate without rate": ("buckets:\n  p: {kind: rate}\n", ["redrive.yaml:2:6: buckets.p.rate: is missing"]),
    "a burst below one": (
        "buckets:\n  p: {kind: rate, rate: 5/s, burst: 0.5}\n",
        ["redrive.yaml:2:37: buckets.p.burst: must be at least 1"],
    ),
    "fuller than full": (
        "buckets:\n  p: {kind: quota, capacity: 5, initial: 6}\n",
        ["redrive.yaml:2:42: buckets.p.initial: must not be above what the bucket holds, 5"],
    ),
    "off without a kind": (
        "defaults: {bucket: off}\nupstreams:\n  a: {url: http://x, bucket: {capacity: 5}}\n",
        ["redrive.yaml:3:30: upstreams.a.bucket: needs a kind: the inherited bucket is off"],
    ),
    "no own bucket to merge into": (
        "upstreams:\n  a: {url: http://x, strategy: grpc, bucket: {capacity: 5}}\n",
        ["redrive.yaml:2:46: upstreams.a.bucket: needs a kind: grpc has no bucket of its own"],
    ),
    "connect off": (
        "defaults: {timeouts: {connect: off}}\n",
        ["redrive.yaml:1:32: defaults.timeouts.connect: 'off' is not a duration"],
    ),
    "nothing near": (
        "zzz: 1\nbuckets: {b: {kind: pool}}\ndefaults:\n  timeouts: {zzz: 1}\n  strategy: zzz\n  bucket: zzz\n"
        "  dialects: [zzz]\n  classify: {throttling: [zzz], rules: [{status: 400}]}\n",
        [
            "redrive.yaml:1:1: zzz: unknown key; redrive schema lists all keys",
            "redrive.yaml:2:21: buckets.b.kind: 'pool' must be one of quota, throttle, budget, rate",
            "redrive.yaml:4:14: defaults.timeouts.zzz: unknown key; choose from connect, attempt, first_byte, total",
            "redrive.yaml:5:13: defaults.strategy: there is no strategy called 'zzz'; define it under strategies, or",
            "redrive.yaml:6:11: defaults.bucket: there is no bucket called 'zzz'; define it under buckets",
            "redrive.yaml:7:14: defaults.dialects[0]: there is no dialect called 'zzz'; choose from anthropic, aws",
            "redrive.yaml:8:27: defaults.classify.throttling[0]: 'zzz' is neither an HTTP status, nor a gRPC status, "
            "nor a fault kind; write it as 503, 5xx, 520-527, UNAVAILABLE or reset",
            "redrive.yaml:8:41: defaults.classify.rules[0].as: is missing: transient, throttling, timeout",
        ],
    ),
    "an undefined name, told once": (
        "defaults: {headers: {request: {set: {a: '${NO_SUCH_NAME}'}}}}\n",
        ["redrive.yaml:1:41: defaults.headers.request.set.a: the environment has no NO_SUCH_NAME"],
    ),
    "a field set twice": (
        "defaults: {headers: {request: {set: {X-B: 1, x-b: 2}}}}\n",
        ["redrive.yaml:1:46: defaults.headers.request.set.x-b: duplicate key; line 1 has X-B"],
    ),
    "a tag of a language": (
        "upstreams: !!python/object:os.system {}\n",
        ["redrive.yaml:1:12: upstreams: the tag tag:yaml.org,2002:python/object:os.system has no meaning here"],
    ),
    "undefined environment name": (
        "admin: {token: '${NO_SUCH_NAME}'}\n",
        ["redrive.yaml:1:16: admin.token: the environment has no NO_SUCH_NAME, and there is no default"],
    ),
    "broken reference": ("drain: '${A B}'\n", ["redrive.yaml:1:8: drain: '${A B}' is not a reference"]),
    "unclosed reference": ("drain: '${AB'\n", ["redrive.yaml:1:8: drain: '${AB' is not a reference"]),
    "off loopback without a token": (
        "admin: 0.0.0.0:9901\n",
        ["redrive.yaml:1:8: admin.token: 0.0.0.0:9901 can be reached from other machines"],
    ),
    "a dialect's name beyond all measure": (
        "defaults: {dialects: [http, " + "x" * 5000 + "]}\n",
        [
            "redrive.yaml:1:29: defaults.dialects[1]: there is no dialect called '"
            + "x" * 57
            + "...'; choose from "
            + ", ".join(built_in_names())
        ],
    ),
    "no such dialect": (
        "defaults: {dialects: [http, gihub]}\n",
        ["redrive.yaml:1:29: defaults.dialects[1]: there is no dialect called 'gihub' (did you mean github?)"],
    ),
    "a rule without a class": (
        "defaults:\n  classify:\n    rules:\n      - {status: 400}\n",
        ["redrive.yaml:4:9: defaults.classify.rules[0].as: is missing"],
    ),
    "a route without a match": (
        "upstreams:\n  a:\n    url: http://x\n    routes:\n      - {strategy: none}\n",
        ["redrive.yaml:5:9: upstreams.a.routes[0].match: is missing"],
    ),
    "keys that a route has not": (
        "upstreams:\n  a:\n    url: http://x\n    routes:\n      - {match: {path: /x}, scope: host, prefix: /y}\n",
        [
            "redrive.yaml:5:29: upstreams.a.routes[0].scope: unknown key",
            "redrive.yaml:5:42: upstreams.a.routes[0].prefix: unknown key",
        ],
    ),
    "services": (
        "upstreams:\n  a: {url: http://x, services: [/x.Greeter/SayHello, 'x y', x.Greeter]}\n"
        "  b: {hosts: y, services: x.A}\nlimits: {resets: 1000, streams: 0}\n",
        [
            "redrive.yaml:2:33: upstreams.a.services[0]: "
            "'/x.Greeter/SayHello' is a path, not a service such as helloworld.Greeter (did you mean x.Greeter?)",
            "redrive.yaml:2:54: upstreams.a.services[1]: "
            "'x y' is not a gRPC service; it is written as helloworld.Greeter, or acme.*",
            "redrive.yaml:3:17: upstreams.b.services: needs a url: a call by its service has nowhere to go without one",
            "redrive.yaml:4:18: limits.resets: '1000' is not a rate; write it as 100/s, 30/m or 5/h",
            "redrive.yaml:4:33: limits.streams: must be 1 or more",
        ],
    ),
    "words of which there are few": (
        "limits: {connect_ports: foo}\nupstreams:\n  a: {url: http://x, pushback: {ahead: maybe}}\n",
        [
            "redrive.yaml:1:25: limits.connect_ports: 'foo' must be any",
            "redrive.yaml:3:40: upstreams.a.pushback.ahead: 'maybe' is neither true (on) nor false (off)",
        ],
    ),
    "protocol is no route's": (
        "defaults: {protocol: h2}\nupstreams:\n  a:\n    url: http://x\n    routes:\n"
        "      - {match: {path: /x}, protocol: http/2}\n",
        [
            "redrive.yaml:1:22: defaults.protocol: 'h2' must be one of auto, http/1.1, http/2",
            "redrive.yaml:6:29: upstreams.a.routes[0].protocol: unknown key",
        ],
    ),
    "one prefix for two": (
        "upstreams:\n  a: {url: http://x, prefix: /p}\n  b: {url: http://y, prefix: /p/}\n",
        ["redrive.yaml:3:30: upstreams.b.prefix: /p is already the prefix of a"],
    ),
    "files that are not there": (
        "upstreams:\n  a: {url: https://x, verify: ca.pem, client_cert: {cert: c.pem}}\n",
        [
            "redrive.yaml:2:31: upstreams.a.verify: there is no file",
            "redrive.yaml:2:52: upstreams.a.client_cert.key: is missing",
        ],
    ),
    "framing fields": (
        "defaults: {headers: {request: {set: {Content-Length: 5}}}}\n",
        ["redrive.yaml:1:38: defaults.headers.request.set.Content-Length: Content-Length is written by the proxy"],
    ),
    "line breaks in a header": (
        'defaults: {headers: {request: {set: {x-a: "a\\r\\nb: c"}}}}\n',
        ["redrive.yaml:1:43: defaults.headers.request.set.x-a: must not contain control characters"],
    ),
    "a strategy that cannot be imported": (
        'strategies:\n  own: {kind: "no_such_module_here:Own"}\n',
        ["redrive.yaml:2:15: strategies.own: cannot import no_such_module_here: ModuleNotFoundError"],
    ),
    "a class that is not there": (
        'strategies:\n  own: {kind: "json:JSONDecodr"}\n',
        ["redrive.yaml:2:15: strategies.own: json has no class JSONDecodr (did you mean JSONDecoder?)"],
    ),
    "a class that is no strategy": (
        'strategies:\n  own: {kind: "json:JSONDecoder"}\n',
        ["redrive.yaml:2:15: strategies.own: json:JSONDecoder is not a RetryStrategy"],
    ),
    "what is no class": (
        'strategies:\n  own: {kind: "os:path"}\n  two: {kind: "os.path:sep"}\n  three: {kind: "os:"}\n',
        [
            "redrive.yaml:2:15: strategies.own: os:path is a module, not a class; write module:Class, a class ",
            "redrive.yaml:3:15: strategies.two: os.path:sep is of type str, not a class; write module:Class, ",
            "redrive.yaml:4:17: strategies.three: 'os:' names no class; write module:Class, as in my_retries:Patient",
        ],
    ),
    "paths that no path matches": (
        A_TEST + "    routes:\n"
        "      - {match: {path: v1/*}}\n"
        "      - {match: {path: 'https://a.test/v1/x'}}\n"
        "      - {match: {path: '^/v1/.*$'}}\n"
        "      - {match: {path: '(a|b)'}}\n"
        "      - {match: {path: /a/../b}}\n"
        "      - {match: {path: ' '}}\n"
        "      - {match: {path: '**/x'}}\n"
        "      - {match: {path: '*', methods: [OPTIONS]}}\n",
        [
            "redrive.yaml:5:24: upstreams.a.routes[0].match.path: 'v1/*' must begin with / (did you mean /v1/*?)",
            "redrive.yaml:6:24: upstreams.a.routes[1].match.path: 'https://a.test/v1/x' is a url, but a route looks at "
            "the path alone (did you mean /v1/x?)",
            "redrive.yaml:7:24: upstreams.a.routes[2].match.path: '^/v1/.*$' must begin with /: it is a glob, not a "
            "regular expression (did you mean /v1/**?)",
            "redrive.yaml:8:24: upstreams.a.routes[3].match.path: '(a|b)' must begin with /",
            "redrive.yaml:9:24: upstreams.a.routes[4].match.path: '/a/../b' never matches: a path is compared without",
            "redrive.yaml:10:24: upstreams.a.routes[5].match.path: must not be empty",
        ],
    ),
    "lists that nothing is in": (
        A_TEST + "    routes: [{match: {methods: []}}]\n"
        "    classify:\n"
        "      rules:\n"
        "        - {status: [], as: fatal}\n"
        "        - {grpc_status: [], as: fatal}\n"
        "        - {fail: [], as: fatal}\n",
        [
            "redrive.yaml:4:32: upstreams.a.routes[0].match.methods: must not be empty: nothing would match; leave the",
            "redrive.yaml:7:20: upstreams.a.classify.rules[0].status: must not be empty: nothing would match; leave",
            "redrive.yaml:8:25: upstreams.a.classify.rules[1].grpc_status: must not be empty: nothing would match",
            "redrive.yaml:9:18: upstreams.a.classify.rules[2].fail: must not be empty: nothing would match",
        ],
    ),
    "rules that nothing matches": (
        A_TEST + "    classify:\n"
        "      rules:\n"
        "        - {status: 503, fail: reset, as: timeout}\n"
        "        - {fail: reset, header: {x-a: b}, as: timeout}\n"
        "        - {status: 400, json: {a: b}, xml: {c: d}, as: fatal}\n"
        "        - {status: [204, 304], json: {a: b}, as: fatal}\n"
        "        - {status: 200, xml: {a: b}, as: fatal}\n"
        "        - {header: {x-a: 'b '}, as: fatal}\n"
        "        - {xml: {a: ' b'}, as: fatal}\n",
        [
            "redrive.yaml:6:12: upstreams.a.classify.rules[0].status: cannot be combined with fail: a fault has no",
            "redrive.yaml:7:25: upstreams.a.classify.rules[1].header: cannot be combined with fail: a fault has no",
            "redrive.yaml:8:39: upstreams.a.classify.rules[2].xml: cannot be combined with json: no body is both",
            "redrive.yaml:9:32: upstreams.a.classify.rules[3].json: never matches: an answer with the status 204, 304",
            "redrive.yaml:10:25: upstreams.a.classify.rules[4].xml: never matches: below status 400 only json is",
            "redrive.yaml:11:26: upstreams.a.classify.rules[5].header.x-a: a space at its end does not belong there",
            "redrive.yaml:12:21: upstreams.a.classify.rules[6].xml.a: a space at its beginning does not belong there",
        ],
    ),
    "names and a token that no request has": (
        "admin: {hosts: ['http://x.y/', '*.z', 'a b', 'ok.test:99', '[::1]', '[::1]:80', ok], token: 'tok '}\n"
        "limits: {header_bytes: 0}\n",
        [
            "redrive.yaml:1:17: admin.hosts[0]: 'http://x.y/' is a url, not a name (did you mean x.y?)",
            "redrive.yaml:1:32: admin.hosts[1]: '*.z' is a pattern, but names are compared whole: list each name",
            "redrive.yaml:1:39: admin.hosts[2]: 'a b' is not a name such as redrive.internal",
            "redrive.yaml:1:93: admin.token: a space at its end does not belong there; remove it",
            "redrive.yaml:2:24: limits.header_bytes: must be above 0",
        ],
    ),
    "words of another key": (
        A_TEST + "    classify:\n"
        "      rules:\n"
        "        - {status: [reset, 7], as: fatal}\n"
        "        - {fail: [rest, 503], as: fatal}\n"
        "        - {grpc_status: [14, unavailable, zz], as: fatal}\n",
        [
            "redrive.yaml:6:21: upstreams.a.classify.rules[0].status[0]: 'reset' is not an HTTP status; write it as "
            "503, 5xx or 520-527 (grpc_status and fail name the others)",
            "redrive.yaml:6:28: upstreams.a.classify.rules[0].status[1]: '7' is not an HTTP status; write it as",
            "redrive.yaml:7:19: upstreams.a.classify.rules[1].fail[0]: 'rest' is not a fault kind (did you mean",
            "redrive.yaml:7:25: upstreams.a.classify.rules[1].fail[1]: '503' is not a fault kind; choose from",
            "redrive.yaml:8:26: upstreams.a.classify.rules[2].grpc_status[0]: '14' is not a gRPC status such as "
            "UNAVAILABLE (did you mean UNAVAILABLE?)",
            "redrive.yaml:8:30: upstreams.a.classify.rules[2].grpc_status[1]: 'unavailable' is not a gRPC status",
            "redrive.yaml:8:43: upstreams.a.classify.rules[2].grpc_status[2]: 'zz' is not a gRPC status such as ",
        ],
    ),
    # One fault is one line: what follows from it is not told as well.
    "a wrong rate": (
        "buckets:\n  pace: {kind: rate, rate: 0/s}\n  two: {kind: rate, rate: -1}\n  three: {kind: rate, rat: 5/s}\n"
        "upstreams:\n  a: {url: http://a.test, rate: {rate: 5}}\n  b: {url: http://b.test, rate: 5/s}\n"
        "  c: {url: http://c.test, rate: pace}\n",
        [
            "redrive.yaml:2:28: buckets.pace.rate: must be above 0, as in 100/s",
            "redrive.yaml:3:27: buckets.two.rate: '-1' is not a rate; write it as 100/s, 30/m or 5/h",
            "redrive.yaml:4:23: buckets.three.rat: unknown key (did you mean rate?)",
            "redrive.yaml:6:40: upstreams.a.rate.rate: '5' is not a rate; write it as 100/s, 30/m or 5/h (did you mean",
            "redrive.yaml:7:33: upstreams.b.rate: there is no bucket called '5/s' (did you mean {rate: 5/s}?)",
        ],
    ),
    "a misspelt key that must be there": (
        "buckets: {b: {knd: quota}}\n"
        "upstreams:\n"
        "  a:\n"
        "    url: http://a.test\n"
        "    scope: {headr: x-t}\n"
        "    concurrency: {mx: 5}\n"
        "    client_cert: {cert: [redrive.yaml], ky: redrive.yaml}\n"
        "    classify: {rules: [{statsu: 200, event: {}, as: fatal}, {status: 400, a: fatal}]}\n"
        "    strategy: {knd: hedging, hedging_delay: 1s}\n"
        "    fallback: [{too: b}]\n"
        "    routes: [{mtch: {path: /x}}]\n",
        [
            "redrive.yaml:1:15: buckets.b.knd: unknown key (did you mean kind?)",
            "redrive.yaml:5:13: upstreams.a.scope.headr: unknown key (did you mean header?)",
            "redrive.yaml:6:19: upstreams.a.concurrency.mx: unknown key (did you mean max?)",
            "redrive.yaml:7:25: upstreams.a.client_cert.cert: must be text, not a list",
            "redrive.yaml:7:41: upstreams.a.client_cert.ky: unknown key (did you mean key?)",
            "redrive.yaml:8:25: upstreams.a.classify.rules[0].statsu: unknown key (did you mean status?)",
            "redrive.yaml:8:75: upstreams.a.classify.rules[1].a: unknown key (did you mean as?)",
            "redrive.yaml:9:16: upstreams.a.strategy.knd: unknown key (did you mean kind?)",
            "redrive.yaml:10:17: upstreams.a.fallback[0].too: unknown key (did you mean to?)",
            "redrive.yaml:11:15: upstreams.a.routes[0].mtch: unknown key (did you mean match?)",
        ],
    ),
    "what refers to something refused": (
        "buckets: off\n"
        "strategie: {patient: {kind: standard}}\n"
        "upstreams:\n"
        "  a:\n"
        "    url: banana\n"
        "    strategy: patient\n"
        "    bucket: mine\n"
        "    services: [a.B]\n"
        "    credentials: {header: x-api-key, values: [k]}\n"
        "  b: {url: http://b.test, fallback: [a, c]}\n"
        "  c: nothing\n",
        [
            "redrive.yaml:1:10: buckets: must be a mapping, not text",
            "redrive.yaml:2:1: strategie: unknown key (did you mean strategies?)",
            "redrive.yaml:5:10: upstreams.a.url: 'banana' has no scheme (did you mean https://banana?)",
            "redrive.yaml:11:6: upstreams.c: must be a mapping, not 'nothing'",
        ],
    ),
    "urls of this machine without a scheme": (
        "upstreams: {a: {url: localhost:3000}, b: {url: 127.0.0.1}, c: {url: localhost.example}}\n",
        [
            "redrive.yaml:1:22: upstreams.a.url: 'localhost:3000' has no scheme (did you mean http://localhost:3000?)",
            "redrive.yaml:1:48: upstreams.b.url: '127.0.0.1' has no scheme (did you mean http://127.0.0.1?)",
            "redrive.yaml:1:69: upstreams.c.url: 'localhost.example' has no scheme "
            "(did you mean https://localhost.example?)",
        ],
    ),
    "a kind that there is not": (
        "upstreams:\n"
        "  a: {url: http://a.test, bucket: {kind: banana, capacity: 4}, strategy: {kind: [], max_attempts: 2}}\n",
        [
            "redrive.yaml:2:42: upstreams.a.bucket.kind: 'banana' must be one of quota, throttle, budget, rate",
            "redrive.yaml:2:81: upstreams.a.strategy.kind: must be text, not a list",
        ],
    ),
    "wrong arguments": (
        'strategies:\n  own: {kind: "json:JSONDecoder", nonsense: 1}\n',
        ["redrive.yaml:2:15: strategies.own: json:JSONDecoder cannot be made: TypeError"],
    ),
    "an alias inside itself": ("a: &a [*a]\n", ["redrive.yaml:1:4: an alias is inside the value that it names"]),
    "a tag": ("drain: !seconds 5s\n", ["redrive.yaml:1:8: drain: the tag !seconds has no meaning here"]),
    "a key that is no text": ("? [a]\n: b\n", ["redrive.yaml:1:3: a key must be plain text"]),
    "a tab": ("upstreams:\n\ta: 1\n", ["redrive.yaml:2:1: this is not valid YAML: a tab where YAML needs spaces"]),
    "bad syntax": ("a: [1\nb: 2\n", ["redrive.yaml:2:2: this is not valid YAML: a comma or the closing ] is missing"]),
    "two documents": ("drain: 5s\n---\ndrain: 6s\n", ["redrive.yaml:2:1: this is a second YAML document"]),
    "a bare reference within braces": (
        "admin: {token: ${X}}\n",
        ["redrive.yaml:1:17: this is not valid YAML: a comma or the closing } is missing"],
    ),
    "no listener": ("listen: []\n", ["redrive.yaml:1:9: listen: must not be empty"]),
    "two doors on one address": (
        "listen: 127.0.0.1:9901\n",
        ["redrive.yaml:1:9: admin: 127.0.0.1:9901 is already taken, by listen"],
    ),
    "no methods, no url": (
        "upstreams:\n  a: {url: [], routes: [{match: {methods: []}}]}\n",
        [
            "redrive.yaml:2:12: upstreams.a.url: must not be empty",
            "redrive.yaml:2:43: upstreams.a.routes[0].match.methods: must not be empty: nothing would match",
        ],
    ),
    "a taken name": (
        "upstreams:\n  unmatched: {url: http://x}\n",
        ["redrive.yaml:2:3: upstreams.unmatched: unmatched is the label of hosts that no upstream names"],
    ),
    "no place of a Redis": (
        "redis: {url: 'http://user:secret@cache:6379'}\n",
        [
            "redrive.yaml:1:14: redis.url: 'http://…@cache:6379' is not the address of a Redis server; write "
            "redis://host:6379/0, "
        ],
    ),
    "a Redis at no port": (
        "redis: {url: 'redis://user:secret@cache:99999/0'}\n",
        ["redrive.yaml:1:14: redis.url: 'redis://…@cache:99999/0' has no valid port; a port is a number"],
    ),
    "a password with a slash": (
        "redis: {url: 'redis://user:se/cret@cache/0'}\n",
        ["redrive.yaml:1:14: redis.url: 'redis://…@cache/0' is not the address of a Redis server; "],
    ),
    "undefined names in a list": (
        "include: ['${NOPE}', b.yaml]\n",
        [
            "redrive.yaml:1:11: include[0]: the environment has no NOPE, and there is no default",
            "redrive.yaml:1:22: include[0]: there is no file",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_error_lines(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    result = loaded(tmp_path, text)
    assert result.settings is None
    found = lines(tmp_path, result)
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start), line


def test_every_error_is_told_at_once_from_top_to_bottom(tmp_path: Path) -> None:
    result = loaded(
        tmp_path,
        """\
        listen: 8080
        drain: 5
        buckets:
          b: {kind: quota, capacity: lots}
        upstreams:
          a: {url: nowhere, strategy: nobody, bucket: nothing, mode: of}
        """,
    )
    places = [(each.line, each.column) for each in result.errors]
    assert places == [(1, 9), (2, 8), (4, 30), (6, 12), (6, 31), (6, 47), (6, 62)]


def test_what_many_inherit_is_told_once(tmp_path: Path) -> None:
    result = loaded(
        tmp_path,
        """\
        defaults: {strategy: nobody}
        upstreams:
          a: {url: http://x}
          b: {url: http://y, routes: [{match: {path: /z}}]}
        """,
    )
    (line,) = lines(tmp_path, result)
    assert line.startswith(
        "redrive.yaml:1:22: upstreams.a.strategy: there is no strategy called 'nobody'; define it under"
    )


def test_what_the_environment_said_is_never_printed(tmp_path: Path) -> None:
    result = loaded(tmp_path, "drain: '${SECRET}'\n", {"SECRET": "hunter2"})
    assert lines(tmp_path, result) == [
        "redrive.yaml:1:8: drain: '${SECRET}' is not a duration; write it as 250ms, 2s, 1m or 1h"
    ]


@pytest.mark.parametrize(
    ("content", "start"),
    [
        (b"drain: 5s\nlisten: \xff\n", ":2:9: this is not UTF-8 (byte 0xff)"),
        ("drain: 5s".encode("utf-16"), ":1:1: this is not UTF-8 (UTF-16)"),
        (b"a: \x00\n", ":1:4: this is not valid YAML: a character that is not allowed here"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes, start: str) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_bytes(content)
    assert str(load(str(file), {}).problems[0]).startswith(f"{file}{start}")


def test_files_that_are_none(tmp_path: Path) -> None:
    missing, folder = str(tmp_path / "no.yaml"), str(tmp_path)
    assert [str(each) for each in load(missing, {}).problems] == [
        f"{missing}:1:1: cannot be read: no such file or directory"
    ]
    said = f"{folder}:1:1: this is a directory, not a file"
    assert [str(each) for each in load(folder, {}).problems] == [said]
    (tmp_path / "a.yaml").touch()
    assert [str(each) for each in load(folder, {}).problems] == [f"{said} (did you mean {folder}/a.yaml?)"]
    (tmp_path / "b.yaml").touch()
    assert [str(each) for each in load(folder, {}).problems] == [f"{said} (did you mean one of {folder}/*.yaml?)"]
    (tmp_path / "redrive.yaml").touch()
    assert [str(each) for each in load(folder, {}).problems] == [f"{said} (did you mean {folder}/redrive.yaml?)"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n", "upstreams:\n", "\ufeffdrain: 25s\n"])
def test_an_empty_file_is_the_defaults(tmp_path: Path, text: str) -> None:
    found, defaults = loaded(tmp_path, text).settings, load(None, {}).settings
    assert found is not None
    assert defaults is not None
    assert (found.listen, found.admin, found.limits, found.drain) == (
        defaults.listen,
        defaults.admin,
        defaults.limits,
        defaults.drain,
    )


def test_billions_of_values_are_refused(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
    )
    found = lines(tmp_path, loaded(tmp_path, bomb))
    assert len(found) == 1
    assert "the aliases expand to more than" in found[0]


def test_a_strategy_whose_methods_are_async(tmp_path: Path) -> None:
    (tmp_path / "awaited_strategy.py").write_text(
        "class Own:\n    max_attempts = 3\n"
        "    async def acquire_initial_retry_token(self, *, token_scope=None): ...\n"
        "    def refresh_retry_token_for_retry(self, *, token_to_renew, error): ...\n"
        "    def record_success(self, *, token): ...\n"
    )
    assert lines(tmp_path, loaded(tmp_path, 'strategies:\n  own: {kind: "awaited_strategy:Own"}\n')) == [
        "redrive.yaml:2:15: strategies.own: awaited_strategy:Own is not a RetryStrategy: its methods must be "
        "plain functions, not async: acquire_initial_retry_token"
    ]


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("dialects: [{}.yaml]", "4:16: upstreams.a.dialects[0]: "),
        ("verify: {}", "4:13: upstreams.a.verify: there is no file "),
        ("client_cert: {{cert: {}, key: k}}", "4:25: upstreams.a.client_cert.cert: there is no file "),
        ("service_config: {}.json", "4:21: upstreams.a.service_config: "),
    ],
)
def test_a_file_s_name_beyond_all_measure_is_told_where_it_stands(tmp_path: Path, line: str, where: str) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("upstreams:\n  a:\n    url: https://x.test\n    " + line.format("x" * 5000) + "\n")
    expected = str(load(str(file), {}).errors[0])
    assert expected.startswith(f"{file}:{where}")
    assert len(expected) < 600


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listen: 127.0.0.1 :8080\n", "1:9: listen: a space before ':' does not belong there; remove it"),
        ("upstreams: {a: {url: 'http://x '}}\n", "1:22: upstreams.a.url: a space at its end does not belong there"),
        ('upstreams: {a: {url: "http://x\\t"}}\n', "1:22: upstreams.a.url: a tab at its end does not belong there"),
        ("upstreams: {a: {url: http://x, prefix: '/a '}}\n", "1:40: upstreams.a.prefix: a space at its end"),
        ("upstreams: {'a ': {url: http://x}}\n", "1:13: upstreams.a : a space at its end does not belong there"),
        ("'listen ': 127.0.0.1:1\n", "1:1: listen : unknown key (did you mean listen?)"),
        ("upstreams: {a: {url:http://x}}\n", "unknown key (did you mean url: …, with a space after the colon?)"),
        ("upstreams:\n\ta: {}\n", "2:1: this is not valid YAML: a tab where YAML needs spaces; indent with spaces"),
        (
            "upstreams: {a: {strategy: *fast}}\n",
            "1:27: this is not valid YAML: *fast is an alias, but there is no anchor &fast",
        ),
        (
            "upstreams: {a: {hosts: [*.x.test]}}\n",
            "text that begins with * must be quoted, or it is an alias: '*.x.test'",
        ),
        ("listen: 127.0.0.1:99999\n", "a port is a number from 0 to 65535"),
        ("upstreams: {a: {url: 'http://x:abc'}}\n", "has no valid port; a port is a number from 1 to 65535"),
        ("upstreams: {a: {url: http://x, hosts: ['x:0']}}\n", "has no valid port; a port is a number from 1 to 65535"),
        ("retries: 3\n", "retries: unknown key (did you mean defaults.strategy.max_attempts, which counts the first"),
        ("upstreams: {a: {retries: 3}}\n", "a.retries: unknown key (did you mean strategy.max_attempts, which counts"),
        (
            "upstreams: {a: {strategy: {max_retries: 3}}}\n",
            "(did you mean max_attempts, which counts the first attempt too?)",
        ),
        (
            "defaults: {backoff_factor: 1}\n",
            "defaults.backoff_factor: unknown key (did you mean strategy.backoff.base?)",
        ),
    ],
)
def test_what_is_hard_to_see_and_what_others_call_it(tmp_path: Path, text: str, expected: str) -> None:
    found = lines(tmp_path, loaded(tmp_path, text))
    assert len(found) == 1 and expected in found[0], found


def test_keys_of_the_user_s_own_are_left_alone(tmp_path: Path) -> None:
    text = "x-fast: &fast {max_attempts: 2, kind: standard}\nx-note: '${NOWHERE}'\n"
    text += "upstreams: {a: {url: http://x, strategy: *fast}}\n"
    result = loaded(tmp_path, text)
    assert result.settings is not None, lines(tmp_path, result)
    assert result.settings.router.upstreams[0].policy.strategy.max_attempts == 2
    assert lines(tmp_path, loaded(tmp_path, "upstreams: {x-a: {x-b: 1}}\n")), "at the top alone"
