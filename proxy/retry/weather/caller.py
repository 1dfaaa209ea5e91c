"""A call as a governor knows it (its "caller"), and the names of the lanes that the call may be in.

A governor decides which calls to an upstream may be sent now; a lane is its queue for one group of callers. A lane's
name is its endpoint's label and its group: all callers, those with one credential (by its hash), or those of one route
or path.
"""

from __future__ import annotations

from proxy.retry.facts import Fields, Request
from proxy.retry.weather.cooldown import ALL_CALLERS, credential_of
from proxy.retry.weather.route_names import ROUTE, names_of

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
    """A call, as far as the governor has to know it.

    `names`: the names of the call's route. `endpoint`: the label of the endpoint that the call goes to next, "" if the
    upstream has only one. `cools`, `limits`, `outages`: whether cooldowns, limits and outages may hold the call.
    `ahead`: whether the call waits for what is left of the limits that answers report. `whole`: whether a delay that an
    answer to the call names holds the calls to all endpoints. `retries`: whether the call has made an attempt.
    `ousted`: the full queue in which a call of higher priority took this call's place: "limit", or "room" for the
    waiting room; "" for none. `was_probe`: whether the call's attempt was the probe of an outage. `held_before`: the
    seconds for which the governors of earlier upstreams held the call, before it fell back to this one.
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
        """Whether a new Caller of this call would be the same, apart from `ahead`: the call has no endpoint yet, has
        lost no place in a queue, and was no probe.
        """
        return not (self.endpoint or self.ousted or self.was_probe)

    def credential(self) -> bytes:
        """The hash of this call's credential. The group of callers with that credential has it as its name."""
        if not self._credential:
            made = credential_of(self.fields)
            if len(_CREDENTIALS) >= _MOST_NAMES:
                _CREDENTIALS.clear()
            self._credential = _CREDENTIALS.setdefault(made, made)
        return self._credential

    def move(self, fields: Fields) -> None:
        """Note that the call now carries another credential, which these fields have."""
        self.fields, self._credential = fields, b""
