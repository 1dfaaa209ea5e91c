"""What compiled code reads of a head is what Python reads of it, and both refuse the same with the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from wire_cases import ANSWERS, REFUSED, TAKEN, answer, request
from wire_mutants import mutated, seeds

from proxy.wire.errors import BadMessage
from proxy.wire.http1.compiled import CORE
from proxy.wire.http1.parser import RequestParser, ResponseParser
from proxy.wire.http1.request import RequestHead
from proxy.wire.http1.response import ResponseHead

pytestmark = pytest.mark.skipif(CORE != "compiled", reason="the compiled reader is not built (make core)")
if CORE == "compiled":
    from proxy.wire.http1.scan import read_also, same_naming, scan_answer, scan_request

WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"add": b"Via: 1.1 us\r\n"},
    {"drop": frozenset({b"x"})},
    {"drop": frozenset({b"x-attempt-count"}), "add": b"X-Attempt-Count: 2\r\n"},
)
OF_REQUESTS: tuple[dict[str, Any], ...] = (
    {"host": b"there"},
    {"target": b"/t?u", "host": b"there:80", "add": b"A: b\r\n"},
    {"target": b"/t"},
)
#: Fields that name apps in some tests, and names that are dropped: none, these, and others beside them.
NAMING = frozenset({b"x-app", b"x-retry-priority"})
DROPS = (
    frozenset[bytes](),
    NAMING,
    frozenset({b"x-app"}),
    NAMING | {b"x", b"cookie", b"host"},
    NAMING | {b"a", b"server"},
)
COMMON = [
    request("GET /v1/items?q=1 HTTP/1.1", "Accept: */*", "X-Request-Id: 1-abc", "Connection: keep-alive"),
    request("PUT http://h.example/v1 HTTP/1.1", "Connection: Keep-Alive", "Content-Type: a/b", "Content-Length: 3")
    + b"abc",
    b"DELETE / HTTP/1.1\r\nConnection: keep-alive\r\nA: b\r\nhOST:  h.example:80 \r\nVia: 1.1 a\r\n\r\n",
    request("POST / HTTP/1.1", "Transfer-Encoding: chunked", "Content-Type: A/B", "authorization: Bearer n")
    + b"0\r\n\r\n",
    request("BREW /\xff HTTP/1.1", "X-Retry-Timeout: 3", "Idempotency-Key: K", "Origin: http://A", "cookie: a=b"),
    request("GET / HTTP/1.1", "X-App: web", "Proxy-Authorization: Basic d2ViOng=", "X-Retry-Priority: low", "A: b"),
    request("GET /a HTTP/1.1", "x-app:Web", "Connection: close", "Proxy-Connection: a", "Keep-Alive: 3", "X-App-: a"),
]
TOLD = [
    answer("HTTP/1.1 200 OK", "Content-Length: 3", "Date: Sun", "X: y", "Connection: keep-alive") + b"abc",
    answer("HTTP/1.1 503 ", "transfer-encoding:chunked", "Retry-After: 1", "X-Attempt-Count: 3", "Server: s")
    + b"0\r\n\r\n",
    answer("HTTP/1.1 429 Too many", "Content-Length: 000", "RateLimit: A", "www-authenticate: Basic x"),
    answer("HTTP/1.1 200 OK", "Content-Length: 0", "X-App: web", "Connection: close", "x-retry-priority: low", "A: b"),
]


def seen(head: RequestHead | ResponseHead) -> dict[str, Any]:
    """All that can be asked of a head."""
    names = [name for each in type(head).__mro__ for name in getattr(each, "__slots__", ()) if not name.startswith("_")]
    found: dict[str, Any] = {name: getattr(head, name) for name in names if name != "scanned"}
    found["specials"] = [(name, value if name != b"content-length" else b"") for name, value in head.specials.items()]
    found |= {
        name: getattr(head, name) for name in ("raw", "slow_path", "upgrade", "login_bound", "version", "lowered")
    }
    ways = WAYS
    if isinstance(head, RequestHead):
        found |= {name: getattr(head, name) for name in ("body_size", "expect_continue", "max_forwards")}
        ways += OF_REQUESTS
    else:
        found["sizes"] = [head.body_size(method) for method in ("GET", "HEAD", "CONNECT")]
    found["types"] = {name: type(value) for name, value in found.items()}
    found["values"] = [head.get_all(name) for name in ("host", "x", "connection", "content-length", "via", "date")]
    found["messages"] = (
        [
            head.message(target, host, b"A: b\r\n", b"body", drop)
            for target in (None, b"/t?u")
            for host in (None, b"h")
            for drop in DROPS
        ]
        if isinstance(head, RequestHead)
        else [head.message(b"A: b\r\n", b"body", drop) for drop in DROPS]
    )
    return found | {"sent": [head.render(**way) for way in ways]}


def read(parser: RequestParser | ResponseParser, packets: list[bytes]) -> list[object]:
    """All heads of a stream, and what is left or why it is refused."""
    heads: list[object] = []
    try:
        for packet in packets:
            head = parser.feed(packet)
            while head is not None:
                heads.append(seen(head))
                head = parser.feed(b"") if parser.pending and len(heads) < 20 else None
    except BadMessage as bad:
        return [*heads, type(bad), str(bad)]
    return [*heads, parser.leftover()]


def taken(parser: ResponseParser, packets: list[bytes]) -> list[object]:
    """The same by `take`, which hands over what is behind a head; each packet twice, so that heads repeat."""
    found: list[object] = []
    try:
        for packet in [each for each in packets for _ in range(2)]:
            head, rest = parser.take(packet)
            found += [rest] if head is None else [seen(head), rest]
    except BadMessage as bad:
        found += [type(bad), str(bad)]
    return found


def compare(data: bytes, random: Random, *, requests: bool, **limits: int) -> bool:
    """Have both read it, whole or cut; whether compiled code took its first head."""
    packets = [data]
    if random.random() < 0.3:
        cut = random.randrange(len(data) + 1)
        packets = [data[:cut], data[cut:]]
    if requests:
        assert read(RequestParser(**limits), packets) == read(RequestParser(**limits, compiled=False), packets), (
            packets,
            limits,
        )
    else:
        assert read(ResponseParser(**limits), packets) == read(ResponseParser(**limits, compiled=False), packets), (
            packets,
            limits,
        )
        assert taken(ResponseParser(**limits), packets) == taken(ResponseParser(**limits, compiled=False), packets)
    try:
        scan: Callable[[bytes, None, int, int], object] = scan_request if requests else scan_answer
        return scan(packets[0], None, limits.get("header_bytes", 65536), limits.get("headers", 256)) is not None
    except BadMessage:  # of its target, or its Host
        return False


def search(seed: int, rounds: int) -> int:
    """Compare that many mutants of requests, and of answers; how many heads compiled code took."""
    random = Random(seed)
    asked, told = seeds(random)
    pools = {True: asked + COMMON * 40, False: told + TOLD * 40}
    taken = 0
    for _ in range(rounds):
        for requests, pool in pools.items():
            data = mutated(random.choice(pool), random) if random.random() < 0.9 else random.choice(pool)
            if random.random() < 0.2:
                data += random.choice(pool)
            limits = {"header_bytes": random.randrange(20, 200), "headers": random.randrange(1, 8)}
            taken += compare(data, random, requests=requests, **(limits if random.random() < 0.1 else {}))
    return taken


def test_both_read_the_same_of_whatever_comes() -> None:
    assert search(seed=1, rounds=4000) > 1000


@pytest.fixture
def naming() -> Iterator[int]:
    """The fields that name apps, found in passing."""
    yield read_also(NAMING)
    read_also(frozenset())


def test_both_read_the_same_with_fields_that_name_apps(naming: int) -> None:
    assert naming and search(seed=2, rounds=2000) > 500


def scanned(*fields: str) -> RequestHead:
    head = scan_request(request("GET /a HTTP/1.1", *fields), None, 65536, 256)
    assert head is not None
    return head


def test_heads_with_the_same_lines_that_name_apps_say_so(naming: int) -> None:
    head = scanned("A: 1", "X-App: web", "Proxy-Authorization: Basic d2ViOng=", "Connection: close")
    for fields in (
        ("X-App: web", "Proxy-Connection: close", "Proxy-Authorization: Basic d2ViOng="),
        ("X-App: web", "Proxy-Authorization: Basic d2ViOng=", "A: 2", "Keep-Alive: 3"),
    ):
        assert same_naming(head, scanned(*fields), naming) == 1
    for fields in (
        (),
        ("X-App: web",),
        ("Proxy-Authorization: Basic d2ViOng=",),
        ("X-App: web", "Proxy-Authorization: Basic D2ViOng="),
        ("X-App: Web", "Proxy-Authorization: Basic d2ViOng="),
        ("X-App: webs", "Proxy-Authorization: Basic d2ViOng="),
        ("Proxy-Authorization: Basic d2ViOng=", "X-App: web"),
        ("X-App: web", "Proxy-Authorization: Basic d2ViOng=", "X-Retry-Priority: low"),
    ):
        other = scanned(*fields)
        assert same_naming(head, other, naming) == same_naming(other, head, naming) == 0


def test_heads_that_were_read_by_other_names_say_nothing(naming: int) -> None:
    before = scanned("X-App: web")
    assert read_also(NAMING) == naming
    after = read_also(frozenset({b"x-team"}))
    head = scanned("X-Team: a")
    assert after not in (0, naming)
    assert same_naming(head, before, after) == same_naming(before, head, after) == -1
    assert same_naming(before, before, after) == same_naming(head, head, naming) == -1
    many = scanned("X-Team: a", "Connection: close", "Keep-Alive: 1", "Proxy-Connection: a", "Proxy-Authorization: b")
    assert same_naming(many, many, after) == -1, "there is no place for so many lines"
    assert same_naming(scanned(), scanned("A: b"), after) == 1


def test_an_answer_without_the_names_that_requests_are_searched_for_has_none_of_them(naming: int) -> None:
    head = scan_answer(answer("HTTP/1.1 200 OK", "Content-Length: 0", "X-App: a", "X-Retry-Priority: b"), None, 999, 99)
    assert naming and head is not None
    assert head.message(b"A: b\r\n", b"", NAMING) == answer("HTTP/1.1 200 OK", "Content-Length: 0", "A: b")


@pytest.mark.parametrize(
    "name", [b"host", b"authorization", b"via", b"proxy-authorization", b"x_app", b"x" * 40, b"X-App"]
)
def test_a_name_that_cannot_be_found_in_passing_is_not_looked_for(naming: int, name: bytes) -> None:
    assert read_also(frozenset({name, b"x-app"})) == 0
    head = scanned("X-App: web")
    assert same_naming(head, head, 0) == -1 and same_naming(head, head, naming) == 1
    assert b"X-App: web" in head.message(None, None, b"", b"", frozenset())
    assert read_also(NAMING) == naming


@pytest.mark.parametrize("data", [*COMMON, *(data for data, _ in (*TAKEN.values(), *REFUSED.values()))])
def test_both_read_each_request_alike(data: bytes) -> None:
    compare(data, Random(1), requests=True)


@pytest.mark.parametrize("data", [*TOLD, *(data for data, _ in ANSWERS.values())])
def test_both_read_each_answer_alike(data: bytes) -> None:
    compare(data, Random(1), requests=False)


@pytest.mark.parametrize("limit", [7, 8])
def test_the_limits_are_the_same_to_the_byte(limit: int) -> None:
    head = request("GET / HTTP/1.1", *(f"X-{n}: y" for n in range(limit - 1)))
    for header_bytes in range(len(head) - 2, len(head) + 2):
        for headers in (limit - 1, limit, limit + 1):
            compare(head, Random(2), requests=True, header_bytes=header_bytes, headers=headers)


@pytest.mark.parametrize("size", [1, 7, 15, 16, 17, 31, 32, 40])
def test_each_octet_in_each_place_is_read_alike(size: int) -> None:
    """Several octets are looked at together, and the last of a packet one by one."""
    for place in {0, 1, 7, 8, size // 2, size - 2, size - 1} & set(range(size)):
        for octet in (*range(0x30), *range(0x39, 0x62), *range(0x79, 0x82), 0xA0, 0xFF):
            odd = b"a" * place + bytes([octet]) + b"b" * (size - 1 - place)
            for head in (
                b"GET /%b HTTP/1.1\r\nHost: h\r\n\r\n" % odd,
                b"GET / HTTP/1.1\r\nHost: h\r\n%b: b\r\n\r\n" % odd,
                b"GET / HTTP/1.1\r\nHost: h\r\nA:%b\r\n\r\n" % odd,
            ):
                compare(head, Random(0), requests=True)


def test_a_name_that_matters_is_no_other() -> None:
    """A bit makes them lower case, and may make other octets letters."""
    for name in (b"Host", b"Connection", b"Content-Length", b"Transfer-Encoding", b"TE", b"Date", b"Retry-After"):
        for place in range(len(name)):
            for octet in {name[place] ^ 0x20, name[place] ^ 0x40, name[place] & 0x5F, name[place] | 0x20}:
                other = name[:place] + bytes([octet]) + name[place + 1 :]
                compare(b"GET / HTTP/1.1\r\nHost: h\r\n%b: 0\r\n\r\n" % other, Random(0), requests=True)
                compare(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n%b: 0\r\n\r\n" % other, Random(0), requests=False)


def test_what_apps_commonly_send_is_read_by_compiled_code() -> None:
    assert all(scan_request(data, None, 65536, 256) is not None for data in COMMON)
    assert all(scan_answer(data, None, 65536, 256) is not None for data in TOLD)


def test_a_head_that_is_not_bytes_is_an_exception() -> None:
    for wrong in (None, "GET / HTTP/1.1", bytearray(b"GET / HTTP/1.1\r\n\r\n")):
        with pytest.raises(TypeError):
            scan_request(wrong, None, 65536, 256)  # type: ignore[arg-type]


if __name__ == "__main__":  # make fuzz
    import sys
    import time

    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        number += search(seed + number, 2000)
    print(f"{number} heads taken by compiled code are what Python reads of them (seed {seed})")
