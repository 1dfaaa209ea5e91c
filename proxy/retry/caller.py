"""A call as a governor knows it (its caller), and the names of the lanes that it may be in. A lane's name is its
endpoint's label and its group of callers: all, those with one credential (by its hash), or those of one route or path.
"""

from __future__ import annotations

from proxy.retry.cooldown import ALL_CALLERS, credential_of
from proxy.retry.facts import Fields, Request
from proxy.retry.route_names import ROUTE, names_of

#: The hashes of the credentials that came last, so that the calls that wait with one credential share one object.
_CREDENTIALS: dict[bytes, bytes] = {}
_MOST_NAMES = 256
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


def is_paths(name: Name) -> bool:
    """Whether the lane with this name is for callers that share a path."""
    return name[1].startswith(ROUTE) and b" /" in name[1]


class Caller:
    """A call, as far as the governor has to know it. `names`: those of its route; `endpoint`: the label of the endpoint
    that it goes to next, "" if the upstream has only one. `cools`, `limits`, `outages`: whether cooldowns, limits and
    outages may hold it; `ahead`: whether it waits for what is left of the limits that answers report. `whole`: a delay
    that an answer to it names holds the calls to all endpoints. `retries`: it has made an attempt; `ousted`: the full
    queue ("limit", or "room" for the waiting room) in which a call of a better priority took its place; `was_probe`:
    its attempt was the probe of an outage. `held_before`: the seconds for which the governors of earlier upstreams held
    it, before it fell back.
    """

    __slots__ = (
        "_credential", "ahead", "cools", "endpoint", "fields", "held_before", "limits", "names", "ousted", "outages",
        "request", "retries", "was_probe", "whole",
    )  # fmt: skip

    def __init__(self, request: Request, fields: Fields, route: str) -> None:
        self.request = request
        self.fields = fields
        self.names = names_of(route, request)
        self.endpoint = ""
        self._credential = b""
        self.ahead = self.cools = self.limits = self.outages = self.retries = False
        self.was_probe = self.whole = False
        self.ousted = ""
        self.held_before = 0.0

    @property
    def is_as_new(self) -> bool:
        """Whether a new Caller of this call would be the same, apart from `ahead`: the call has no endpoint yet, was
        not ousted, and was no probe.
        """
        return not (self.endpoint or self.ousted or self.was_probe)

    def credential(self) -> bytes:
        """The hash of this call's credential, which is the name of the group of callers that have that credential."""
        if not self._credential:
            made = credential_of(self.fields)
            if len(_CREDENTIALS) >= _MOST_NAMES:
                _CREDENTIALS.clear()
            self._credential = _CREDENTIALS.setdefault(made, made)
        return self._credential

    def move(self, fields: Fields) -> None:
        """Note that the call carries another credential, which these fields identify."""
        self.fields, self._credential = fields, b""
