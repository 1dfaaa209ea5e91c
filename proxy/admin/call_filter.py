"""The filter of `/requests`: the calls of an upstream, a route, an outcome, a status or an app."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.retry.facts import Outcome

#: The parameters that choose calls.
NAMES = ("upstream", "route", "outcome", "status", "app")


class FilterError(Exception):
    """Parameters that can't be understood; the text is one sentence for the user."""


@dataclass(frozen=True, slots=True)
class CallFilter:
    """A filter of calls, with a value for each parameter of the request; a parameter that is None takes all calls.
    `status` is one status, or `5xx` for those from 500 to 599. `app` is an app's name, or the product that a call's
    User-Agent names first, with its version or without.
    """

    upstream: str | None = None
    route: str | None = None
    outcome: str | None = None
    status: str | None = None
    app: str | None = None

    def takes(self, call: Mapping[str, Any]) -> bool:
        """Whether the filter takes a call, given as `/requests` shows it."""
        exact = all(
            wanted is None or call.get(name) == wanted
            for name, wanted in (("upstream", self.upstream), ("route", self.route), ("outcome", self.outcome))
        )
        return exact and self._has_status(call) and self._is_by(call)

    def _has_status(self, call: Mapping[str, Any]) -> bool:
        status = str(call.get("status", ""))
        return (
            self.status is None or status == self.status or (self.status[1:] == "xx" and status[:1] == self.status[0])
        )

    def _is_by(self, call: Mapping[str, Any]) -> bool:
        agent = str(call.get("agent", ""))
        return self.app is None or self.app in (call.get("app"), agent, agent.partition("/")[0])


def unknown_parameter(query: Iterable[str], known: tuple[str, ...]) -> str:
    """A sentence about the first of the parameters in `query` that a page does not have; "" if it has them all.
    `known`: the names of those that it has.
    """
    unknown = next((name for name in query if name not in known), None)
    if unknown is None:
        return ""
    return f"There is no parameter {unknown}: {'use ' + ', '.join(known) if known else 'this page has none'}."


def call_filter(query: Mapping[str, str], others: tuple[str, ...]) -> CallFilter | None:
    """Read the parameters of a request, `query`, by name; None if none of them chooses calls. `others`: the names of
    further parameters that the request may have. Raises FilterError.
    """
    if said := unknown_parameter(query, (*others, *NAMES)):
        raise FilterError(said)
    asked = {name: query[name] for name in NAMES if name in query}
    outcomes = [outcome.value for outcome in Outcome]
    if asked.get("outcome", outcomes[0]) not in outcomes:
        raise FilterError(f"There is no outcome {asked['outcome']}: use one of {', '.join(outcomes)}.")
    if not re.fullmatch(r"[0-9]{3}|[1-5]xx|0", asked.get("status", "200")):
        raise FilterError(f"status must be a status such as 503, or 5xx, not {asked['status']}.")
    return CallFilter(**asked) if asked else None
