"""The names of a call's callers: which calls share the evidence of a lane."""

from __future__ import annotations

import pytest

from proxy.retry.facts import MappingFields, Request
from proxy.retry.weather.caller import ROUTE, Caller, is_credentials, is_paths

GRPC = MappingFields([("content-type", "application/grpc")])
NO_FIELDS = MappingFields([])


def caller(method: str, path: str, fields: MappingFields = NO_FIELDS) -> Caller:
    request = Request(method, "api.test", path, fields)
    return Caller(request, fields, "route")


def test_calls_of_a_route_and_method_are_lost_together() -> None:
    assert caller("POST", "/a").names.lost == caller("POST", "/b").names.lost
    assert caller("POST", "/a").names.lost != caller("GET", "/a").names.lost


def test_calls_of_a_grpc_method_are_lost_together() -> None:
    assert caller("POST", "/s/A", GRPC).names.lost != caller("POST", "/s/B", GRPC).names.lost
    assert caller("POST", "/s/A", GRPC).names.lost == caller("POST", "/s/A", GRPC).names.lost
    assert caller("GET", "/s/A", GRPC).names.lost == caller("GET", "/s/B", GRPC).names.lost  # gRPC is POST alone


@pytest.mark.parametrize(
    ("method", "path", "fields", "has_path"),
    [("GET", "/a", NO_FIELDS, True), ("POST", "/a", GRPC, False), ("OPTIONS", "*", NO_FIELDS, False)],
)
def test_a_path_is_told_apart_where_there_is_one(method: str, path: str, fields: MappingFields, has_path: bool) -> None:
    one = caller(method, path, fields)
    assert one.names.has_path is has_path
    assert (one.names.lost_path() != one.names.lost) is has_path


def test_the_kinds_of_names_are_told_apart() -> None:
    one = caller("GET", "/a", MappingFields([("authorization", "Bearer x")]))
    names = {"route": one.names.lost, "path": one.names.lost_path(), "credential": one.credential()}
    assert names["route"].startswith(ROUTE)
    assert [kind for kind, name in names.items() if is_credentials(("", name))] == ["credential"]
    assert [kind for kind, name in names.items() if is_paths(("", name))] == ["path"]
