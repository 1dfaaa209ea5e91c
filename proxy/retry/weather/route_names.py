"""The names under which a governor (the object that decides which calls may be sent) keeps what it learns of one
route's calls: their usual times, and their outages.
"""

from __future__ import annotations

from proxy.retry.facts import Request

#: The beginning of the name of a route's callers.
ROUTE = b"route "
#: The names that were made last, and the most that are kept.
_NAMES: dict[str, RouteNames] = {}
_MOST = 256


class RouteNames:
    """The names under which the governor keeps what it learns of a group of calls: those of one route and method whose
    paths begin alike.

    `route`: the route's label. `timed`: the key of the calls' usual time (`timed_route`). `lost`: the name of the group
    of callers that an outage of the route and method holds (for gRPC: of the gRPC method). `key`: the key of this
    object in the table of all RouteNames. `has_path`: an outage can concern one path alone, since the requests have
    paths and are no gRPC calls.
    """

    __slots__ = ("has_path", "key", "lost", "route", "timed")

    def __init__(self, route: str, key: str, timed: str, lost: bytes, has_path: bool) -> None:
        self.route = route
        self.key = key
        self.timed = timed
        self.lost = lost
        self.has_path = has_path

    def lost_path(self) -> bytes:
        """The name of the group of callers that an outage of one path holds: the calls of the same route and method
        whose paths have the same first two segments. If no outage can concern a path alone, it is the name of the group
        for the whole route and method (`lost`).
        """
        return group_of(self.timed) if self.has_path else self.lost


def names_of(route: str, request: Request) -> RouteNames:
    """The names under which the governor keeps what it learns of calls like this request. `route`: the label of the
    request's route. All requests of the same route and method whose paths begin alike get the same object. When _MOST
    objects are kept and another is needed, all are forgotten.
    """
    names: RouteNames | None = request.names
    if names is not None and names.route is route and _NAMES.get(names.key) is names:
        return names
    timed, method = timed_route(route, request), request.method
    is_grpc = method == "POST" and request.is_grpc
    key = f"{timed} gRPC" if is_grpc else timed
    names = _NAMES.get(key)
    if names is None:
        if len(_NAMES) >= _MOST:
            _NAMES.clear()
        lost = group_of(f"{route} {request.path if is_grpc else method}")
        names = _NAMES[key] = RouteNames(route, key, timed, lost, request.path.startswith("/") and not is_grpc)
    request.names = names
    return names


def group_of(what: str) -> bytes:
    """The name of the group of callers with the label `what`, which is a route with a method, or also with the
    beginning of a path.
    """
    return ROUTE + what.encode("utf-8", "surrogateescape")


def timed_route(route: str, request: Request) -> str:
    """The key under which the times of answers are kept: route, method and the path's first two segments; for a gRPC
    call the whole path, which names the gRPC method.
    """
    path, method = request.path, request.method
    end = path.find("?")
    if method != "POST" or not request.is_grpc:  # gRPC over HTTP/2, "Requests": Method -> ":method POST"
        second = path.find("/", 1)
        third = -1 if second < 0 else path.find("/", second + 1)
        if third >= 0 and (end < 0 or third < end):
            end = third
    return f"{route} {method} {path if end < 0 else path[:end]}"
