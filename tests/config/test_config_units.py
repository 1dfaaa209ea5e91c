"""What a scalar's text reads as, and what is refused with which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proxy.config import addresses, units
from proxy.config.settings import Address
from proxy.config.yaml_tree import Text
from proxy.retry.facts import FaultKind
from proxy.retry.policies.routing import Endpoint, HostPattern

RIGHT: list[tuple[Callable[[Any], Any], str, Any]] = [
    (units.duration, "250ms", 0.25),
    (units.duration, "2s", 2.0),
    (units.duration, "1m", 60.0),
    (units.duration, "1h", 3600.0),
    (units.duration, "1.5s", 1.5),
    (units.duration, "0s", 0.0),
    (units.duration, "0", 0.0),
    (units.duration, "100000h", 360_000_000.0),
    (units.duration_or_off, "off", None),
    (units.duration_or_off, "false", None),
    (units.size, "64KiB", 65536),
    (units.size, "1MiB", 1 << 20),
    (units.size, "2GiB", 2 << 30),
    (units.size, "512B", 512),
    (units.size, "0", 0),
    (units.rate, "100/s", 100.0),
    (units.refill, "30/m", 0.5),
    (units.refill, "0/s", 0.0),
    (units.refill, "0", 0.0),
    (units.rate, "30/m", 0.5),
    (units.rate, "3600/h", 1.0),
    (units.percent, "20", 20.0),
    (units.percent, "20%", 20.0),
    (units.share, "10%", 0.1),
    (units.share, "10", 0.1),
    (units.number, "1e3", 1000.0),
    (units.number, "0.5466", 0.5466),
    (units.whole(1), "7", 7),
    (units.flag, "yes", True),
    (units.flag, "off", False),
    (units.one_of("wait", "off"), "false", "off"),
    (addresses.address, "127.0.0.1:8080", Address("127.0.0.1", 8080)),
    (addresses.address, "[::1]:80", Address("::1", 80)),
    (addresses.address, "localhost:0", Address("localhost", 0)),
    (addresses.address, "unix:/run/x.sock", Address(unix="/run/x.sock")),
    (addresses.endpoint, "https://API.example.com", Endpoint("https", "api.example.com", 443)),
    (addresses.endpoint, "http://x.test:81/base/", Endpoint("http", "x.test", 81, "/base")),
    (addresses.endpoint, "http://[::1]:81", Endpoint("http", "::1", 81)),
    (addresses.endpoint, "https://bücher.example", Endpoint("https", "xn--bcher-kva.example", 443)),
    (addresses.endpoint, "unix:/run/app.sock", Endpoint("http", "localhost", 80, "", unix="/run/app.sock")),
    (addresses.host_pattern, "API.example.com", HostPattern("api.example.com")),
    (addresses.host_pattern, "*.example.com:8443", HostPattern("*.example.com", 8443)),
    (addresses.host_pattern, "[::1]:80", HostPattern("[::1]", 80)),
    (addresses.parent_proxy, "none", None),
    (addresses.parent_proxy, "http://proxy:3128", "http://proxy:3128"),
    (addresses.parent_proxy, "http://u:p@proxy", "http://u:p@proxy:80"),
    (addresses.workers, "auto", None),
    (addresses.workers, "4", 4),
    (units.failure, "503", frozenset({503})),
    (units.failure, "520-522", frozenset({520, 521, 522})),
    (units.failure, "5xx", frozenset(range(500, 600))),
    (units.failure, "UNAVAILABLE", frozenset({"UNAVAILABLE"})),
    (units.failure, "reset", frozenset({FaultKind.RESET})),
    (addresses.prefix, "/a/b/", "/a/b"),
    (addresses.prefix, "/", "/"),
]


@pytest.mark.parametrize(("reader", "text", "value"), RIGHT)
def test_reads(reader: Callable[[Any], Any], text: str, value: Any) -> None:
    assert reader(Text.make(text)) == value


WRONG: list[tuple[Callable[[Any], Any], str, str]] = [
    (units.duration, "３s", "is not a duration"),
    (units.size, "٣KiB", "is not a size"),
    (units.size, "9" * 400 + "KiB", "is too large"),
    (units.rate, "٣/s", "is not a rate"),
    (units.rate, "9" * 400 + "/s", "is too large"),
    (units.number, "٣", "is not a number"),
    (units.delay_or_percentile, "p９５", "is not a duration"),
    (addresses.workers, "1٣", "must be a whole number"),
    (addresses.address, "127.0.0.1:²", "is not an address"),
    (addresses.host_pattern, "a.test:²", "has no valid port"),
    (addresses.endpoint, "http://a.test:" + "9" * 5000, "has no valid port"),
    (units.duration, "15", "has no unit; write it as 250ms, 2s, 1m or 1h (did you mean 15s?)"),
    (units.duration, "5sec", "has the unit 'sec'; durations take ms, s, m or h (did you mean 5s?)"),
    (units.duration, "2d", "(did you mean 48h?)"),
    (units.duration, "10us", "has the unit 'us'"),
    (units.duration, "12:30", "is not a duration"),
    (units.duration, "5 seconds", "is not a duration; write it as 250ms, 2s, 1m or 1h (did you mean 5s?)"),
    (units.size, "1 MiB", "is not a size; write it as 512B, 64KiB, 1MiB or 1GiB (did you mean 1MiB?)"),
    (units.size, "64 mb", "is not a size; write it as 512B, 64KiB, 1MiB or 1GiB (did you mean 64MiB?)"),
    (units.duration, "-1s", "is not a duration"),
    (units.duration, "1e3s", "is not a duration"),
    (units.duration, "9" * 30 + "h", "longer than 1,000 years"),
    (units.duration, "9" * 400 + "h", "longer than 1,000 years"),
    (units.positive_duration, "0s", "must be longer than 0"),
    (units.duration_or_off, "0s", "(did you mean off?)"),
    (units.size, "64", "has no unit; sizes take B, KiB, MiB or GiB (did you mean 64B?)"),
    (units.size, "64KB", "(did you mean 64KiB?)"),
    (units.size, "1TiB", "(did you mean 1024GiB?)"),
    (units.size, "0.5 tb", "(did you mean 512GiB?)"),
    (units.size, "1000TB", "(did you mean 1024000GiB?)"),
    (units.size, "1mb", "(did you mean 1MiB?)"),
    (units.refill, "10", "is not a rate; write it as 100/s, 30/m or 5/h (did you mean 10/s?)"),
    (units.refill, "-1/s", "is not a rate; write it as 100/s, 30/m or 5/h"),
    (units.rate, "100", "is not a rate; write it as 100/s, 30/m or 5/h (did you mean 100/s?)"),
    (units.rate, "0/s", "must be above 0"),
    (units.rate, "5/d", "is not a rate"),
    (units.share, "120%", "at most 100%"),
    (units.percent, "a lot", "is not a percentage"),
    (units.number, "010", "is not a number"),
    (units.number, ".inf", "is not a number"),
    (units.number, "1e999", "is too large"),
    (units.number, "-1", "must not be below 0"),
    (units.whole(1), "1.5", "is not a whole number"),
    (units.whole(1), "1,000", "is not a whole number (did you mean 1000?)"),
    (units.whole(1), "1_000", "is not a whole number (did you mean 1000?)"),
    (units.whole(1), "007", "is not a whole number (did you mean 7?)"),
    (units.whole(1), "9" * 19, "must be at most 2147483648"),
    (units.whole(1), "9" * 5000, "must be at most 2147483648"),
    (units.whole(1), "-" + "9" * 5000, "must be 1 or more"),
    (units.whole(1), "0", "must be 1 or more"),
    (addresses.address, "127.0.0.1:" + "9" * 19, "has a port above 65535"),
    (addresses.address, "127.0.0.1:" + "9" * 5000, "has a port above 65535"),
    (units.whole(1, 65535), "70000", "at most 65535"),
    (units.flag, "ture", "(did you mean true?)"),
    (units.one_of("enforce", "observe", "off"), "observ", "(did you mean observe?)"),
    (addresses.address, "8080", "(did you mean 127.0.0.1:8080?)"),
    (addresses.address, ":8080", "(did you mean 0.0.0.0:8080?)"),
    (addresses.address, "::1:8080", "(did you mean [::1]:8080?)"),
    (addresses.address, "http://127.0.0.1:8080", "is a url, not an address (did you mean 127.0.0.1:8080?)"),
    (addresses.address, "127.0.0.1:70000", "port above 65535"),
    (addresses.address, "unix:", "takes a path"),
    (addresses.endpoint, "unix:", "takes a path"),
    (addresses.endpoint, "unix:/" + "x" * 107, "takes a path of at most 107 bytes"),
    (addresses.endpoint, "api.example.com", "(did you mean https://api.example.com?)"),
    (addresses.endpoint, "htps://x", "(did you mean https?)"),
    (addresses.endpoint, "https//x", "(did you mean https://x?)"),
    (addresses.endpoint, "HTTP:/x:81", "(did you mean http://x:81?)"),
    (addresses.endpoint, "http://x:99999", "has no valid port; a port is a number from 1 to 65535"),
    (addresses.endpoint, "http://x/?a=b", "query"),
    (addresses.endpoint, "http://", "names no host"),
    (addresses.host_pattern, "https://api.example.com/x", "(did you mean api.example.com?)"),
    (addresses.host_pattern, "x:http", "no valid port"),
    (addresses.parent_proxy, "https://p:1", "is not a parent proxy"),
    (addresses.workers, "0", "1 to 127"),
    (addresses.workers, "128", "1 to 127"),
    (addresses.network, "10.0.0.0/99", "neither an address nor a network"),
    (units.failure, "600", "is neither an HTTP status"),
    (units.failure, "UNAVAILBLE", "(did you mean UNAVAILABLE?)"),
    (units.failure, "527-520", "(did you mean 520-527?)"),
    (units.failure, "OK", "is not a failure"),
    (addresses.header_name, "x y", "is not a header name"),
    (addresses.editable_header, "Content-Length", "written by the proxy itself"),
    (addresses.prefix, "github", "(did you mean /github?)"),
    (addresses.prefix, "/a/../b", "dot segments"),
    (addresses.name, "a/b", "letters, digits"),
]


@pytest.mark.parametrize(("reader", "text", "message"), WRONG)
def test_refuses(reader: Callable[[Any], Any], text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        reader(Text.make(text))
    assert message in str(caught.value)


def test_credentials_in_a_url_are_not_repeated() -> None:
    with pytest.raises(ValueError) as caught:
        addresses.endpoint(Text.make("ftp://user:secret@host"))
    assert "secret" not in str(caught.value)


def test_free_values_follow_yaml_1_2() -> None:
    plain = {"true": True, "off": "off", "12:30": "12:30", "1e3": 1000.0, "010": "010", "7": 7, "1.5": 1.5}
    for text, value in plain.items():
        assert units.guess(Text.make(text)) == value
        assert units.guess(Text.make(text, plain=False)) == text


@pytest.mark.parametrize("text", ["9223372036854775807", "-9223372036854775809", "18446744073709551616", "9" * 309])
def test_a_long_integer_keeps_all_of_its_digits(text: str) -> None:
    assert units.guess(Text.make(text)) == int(text)
    assert isinstance(units.guess(Text.make(text)), int)


def test_an_integer_beyond_all_numbers_is_read_as_a_float_is() -> None:
    assert units.guess(Text.make("9" * 5000)) == float("inf")
