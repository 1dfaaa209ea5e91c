"""Recorded calls (`/requests`) for the lab: the request, the policy that takes it, and what its upstream did.

A recorded call has its method, host and path (query values masked), and for each attempt the status or fault, the
class, and what the upstream said about waiting. The record has no other header fields and no bodies: whatever depends
on those can't be played, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from proxy.config.settings import Settings
from proxy.lab.explain.question import Fate, fate_of_fault, fate_of_status, through_listener
from proxy.lab.routing import AppRequest, Chosen, RefusedCall, choose
from proxy.retry.answers.pushback import MILLISECONDS
from proxy.retry.facts import GRPC_STATUS_NAMES, FaultKind

#: A call, and one of its attempts, as `/requests` has them.
Kept = Mapping[str, Any]

_GRPC = (("content-type", "application/grpc"),)
_IN_MILLISECONDS = frozenset({*MILLISECONDS, "x-amz-retry-after", "grpc-retry-pushback-ms", "x-grpc-retry-pushback-ms"})
_SHOULD_RETRY = frozenset({"x-should-retry", "stripe-should-retry"})


@dataclass(slots=True)
class KeptCall:
    """A recorded call, under a configuration that may differ from that of its time. `chosen` is the policy that takes
    the call under this configuration; `notes` say how it differs from the policy that took the call then.
    """

    kept: Kept
    ask: AppRequest
    chosen: Chosen | RefusedCall
    notes: list[str]

    @property
    def began(self) -> float:
        """The time at which the call came, in seconds since the epoch."""
        return datetime.fromisoformat(self.kept["time"]).timestamp()

    @property
    def sent(self) -> list[Kept]:
        """The call's attempts, in the order in which they were sent."""
        return sorted(self.kept["history"], key=lambda attempt: attempt["start"])


def kept_call(settings: Settings, kept: Kept) -> KeptCall:
    """Make a `KeptCall` of the recorded call `kept`: its request, and the policy that takes it under these settings.
    Raises ValueError if the request was never read.
    """
    if not kept["method"]:
        raise ValueError("the request could not be read, so there is nothing to play")
    notes: list[str] = []
    tried = [(ask, choose(settings, ask)) for ask in _asks(settings, kept)]
    known = (each for each in tried if isinstance(each[1], Chosen) and each[1].policy.upstream == kept["upstream"])
    ask, chosen = next(known, tried[0])
    if isinstance(chosen, Chosen):
        if kept["upstream"] and chosen.policy.upstream != kept["upstream"]:
            notes.append(f"the call went to {kept['upstream']}; the configuration in force sends it elsewhere")
        elif chosen.policy.route != kept["route"]:
            chosen = _on_its_route(settings, chosen, kept, notes)
    return KeptCall(kept, ask, chosen, notes)


def _on_its_route(settings: Settings, chosen: Chosen, kept: Kept, notes: list[str]) -> Chosen:
    """Return `chosen` with the policy of the route that the recorded call took. The call may have taken that route
    because of header fields, which are not recorded, so the router can't find it again; `notes` gets a sentence about
    that.
    """
    upstream = settings.router.by_name.get(kept["upstream"])
    routes = () if upstream is None else upstream.routes
    policies = {route.policy.route: route.policy for route in routes}
    if upstream is not None:
        policies[""] = upstream.policy
    policy = policies.get(kept["route"])
    if policy is None:
        notes.append(f"the call took the route {kept['route']}, which is not in the configuration any more")
        return chosen
    if kept["route"]:
        notes.append(f"the call took the route {kept['route']}: by what its path does not show, so it is taken again")
    return replace(chosen, policy=policy)


def _asks(settings: Settings, kept: Kept) -> Iterator[AppRequest]:
    """Yield the requests by which an app may have made this recorded call: by prefix or service, by Host, as a proxy's
    client.
    """
    method, host, path = kept["method"], kept["host"], kept["path"]
    if method == "CONNECT":
        yield AppRequest(method, host)
        return
    grpc = "grpc_status" in kept or any("grpc_status" in attempt for attempt in kept["history"])
    fields = _GRPC if grpc else ()
    http2 = kept.get("protocol") == "http/2"
    upstream = settings.router.by_name.get(kept["upstream"])
    if upstream is not None and path.startswith("/"):
        if grpc or (upstream.prefix and path.startswith(upstream.prefix)):
            yield AppRequest(method, path, fields, http2=http2)
        yield AppRequest(method, path, (("Host", host), *fields), http2=http2)
    rest = "" if path == "*" else path
    for scheme in ("http", "https"):
        yield through_listener(settings, AppRequest(method, f"{scheme}://{host}{rest}", fields, http2=http2))


def result_of(attempt: Kept) -> Fate | None:
    """The upstream's answer or fault of an attempt; None if the attempt's end was not seen."""
    took = attempt.get("duration")
    if "fault" in attempt:
        code = f":{attempt['rst_code']}" if "rst_code" in attempt else ""
        try:
            fate = fate_of_fault(f"{attempt['fault']}{code}")
        except ValueError:  # a number that has no name, or a refused stream's
            fate = fate_of_fault(attempt["fault"])
    elif attempt.get("grpc_status"):
        number = attempt["grpc_status"]
        if number >= len(GRPC_STATUS_NAMES):
            return None
        fate = fate_of_status(GRPC_STATUS_NAMES[number], tuple(_pushback_fields(attempt)))
    elif 200 <= attempt.get("status", 0) <= 999:
        fate = fate_of_status(str(attempt["status"]), tuple(_pushback_fields(attempt)))
    else:
        return None
    return fate._replace(step=replace(fate.step, after=took))


def gave_up(attempt: Kept) -> bool:
    """Whether the attempt ended because its call no longer waited for it, so that the upstream's answer is unknown."""
    return attempt.get("fault") == FaultKind.ATTEMPT_TIMEOUT or attempt.get("decision") == "cancelled"


def _pushback_fields(attempt: Kept) -> Iterator[tuple[str, str]]:
    """The header fields by which the upstream may have asked a recorded attempt to wait or to stop: the record has only
    the field's name and the delay, so these are made from both.
    """
    name, delay = attempt.get("pushback", "").lower(), attempt.get("pushback_delay")
    if not name:
        return
    if name in _SHOULD_RETRY:
        yield name, "false" if attempt.get("decision") == "pushback_stop" else "true"
        name = ""
    elif delay is None and name in _IN_MILLISECONDS:  # gRPC: do not retry
        yield name, "-1"
    if delay is None:
        return
    if name in _IN_MILLISECONDS:
        yield name, f"{delay * 1000:.0f}"
    elif name in ("", "retry-after") and delay == int(delay):
        yield "retry-after", f"{delay:.0f}"
    else:  # a moment, a provider's own field, or a body: as many seconds from then
        yield "retry-after-ms", f"{delay * 1000:.0f}"
