"""A call as a governor knows it (its caller), and the names of the lanes that it may be in. A lane's name is its
endpoint's label and its group of callers: all, those with one credential (by its hash), or those of one route or path.
"""

from __future__ import annotations

from sys import intern

from proxy.retry.cooldown import ALL_CALLERS, credential_of
from proxy.retry.facts import Fields, Request
from proxy.retry.usual_times import timed_route

#: The beginning of the name of a route's callers.
ROUTE = b"route "
#: The names of routes' callers that were made last, by route and method or path, and the most that are kept.
_NAMES: dict[tuple[str, str], bytes] = {}
_MOST_NAMES = 256
#: The hashes of the credentials that came last, so that the calls that wait with one credential share one object.
_CREDENTIALS: dict[bytes, bytes] = {}
#: A lane's name: the endpoint's label ("" if the upstream has one endpoint, or is meant as a whole), and its callers:
#: ALL_CALLERS, the hash of a credential, or a route.
Name = tuple[str, bytes]


def is_fleets(name: Name) -> bool:
    """Whether the lane with this name shares its cooldown with the other machines of a fleet: a lane of one route or
    path does not.
    """
    return not name[1].startswith(ROUTE)


def is_credentials(name: Name) -> bool:
    """Whether the lane with this name is for callers that share a credential."""
    return name[1] != ALL_CALLERS and not name[1].startswith(ROUTE)


def _name_of_route(route: str, what: str) -> bytes:
    """The name of the group of callers of this route that ask for `what`: a method, or a path. Names are kept for the
    next call, up to a bound.
    """
    key = (route, what)
    name = _NAMES.get(key)
    if name is None:
        if len(_NAMES) >= _MOST_NAMES:
            _NAMES.clear()
        name = _NAMES[key] = ROUTE + f"{route} {what}".encode("utf-8", "surrogateescape")
    return name


def is_paths(name: Name) -> bool:
    """Whether the lane with this name is for callers that share a path."""
    return name[1].startswith(ROUTE) and b" /" in name[1]


class Caller:
    """A call, as far as the governor has to know it. `endpoint`: the label of the endpoint that it goes to next, "" if
    the upstream has only one. `cools`, `limits`, `outages`: whether cooldowns, limits and outages may hold it; `ahead`:
    whether it waits for what is left of the limits that answers report. `retries`: it has made an attempt; `ousted`:
    the full queue ("limit", or "room" for the waiting room) in which a call of a better priority took its place;
    `was_probe`: its attempt was the probe of an outage.
    """

    __slots__ = (
        "_credential", "_lost_route", "_timed_route", "ahead", "cools", "endpoint", "fields", "limits", "ousted",
        "outages", "request", "retries", "route", "was_probe",
    )  # fmt: skip

    def __init__(self, request: Request, fields: Fields, route: str) -> None:
        self.request = request
        self.fields = fields
        self.route = route
        self.endpoint = ""
        self._timed_route = ""
        self._lost_route = b""
        self._credential = b""
        self.ahead = self.cools = self.limits = self.outages = self.retries = False
        self.was_probe = False
        self.ousted = ""

    @property
    def is_as_new(self) -> bool:
        """Whether no attempt of the call has left anything here that the governor has to know. What the call waits for
        ahead is not considered.
        """
        return not (self.endpoint or self.ousted or self.was_probe)

    def lost_route(self) -> bytes:
        """The name of this call's group if an outage concerns one route: the callers of the same route and method (for
        gRPC: of the same gRPC method).
        """
        if not self._lost_route:
            request = self.request
            method = request.method
            what = request.path if method == "POST" and request.is_grpc else method
            self._lost_route = _name_of_route(self.route, what)
        return self._lost_route

    def lost_path(self) -> bytes:
        """The name of this call's group if an outage concerns one path: the callers of the same route, method and path,
        of which only the first two segments count. It is that of `lost_route` for gRPC, and for a request without a
        path.
        """
        if self.has_path():
            return ROUTE + self.timed_route().encode("utf-8", "surrogateescape")
        return self.lost_route()

    def has_path(self) -> bool:
        """Whether an outage can concern the calls of this one's path alone (`lost_path`), rather than of its route and
        method (`lost_route`): the request has a path, and is no gRPC call.
        """
        request = self.request
        path = request.path
        return path.startswith("/") and not (request.method == "POST" and request.is_grpc)

    def timed_route(self) -> str:
        """The key of this call's route among the usual times of answers."""
        if not self._timed_route:
            self._timed_route = intern(timed_route(self.route, self.request))  # calls that wait share it
        return self._timed_route

    def credential(self) -> bytes:
        """The name of the group of callers with this call's credential: a hash of it."""
        if not self._credential:
            made = credential_of(self.fields)
            if len(_CREDENTIALS) >= _MOST_NAMES:
                _CREDENTIALS.clear()
            self._credential = _CREDENTIALS.setdefault(made, made)
        return self._credential

    def move(self, fields: Fields) -> None:
        """Note that the call carries another credential, which these fields identify."""
        self.fields, self._credential = fields, b""
