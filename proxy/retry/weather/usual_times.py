"""The usual time that answers of each route take while all is well: the tenth percentile, by a moving estimate.

Contract, section 14: "the usual time is known for each route, method and the path's first two segments (gRPC: the
method); 256 of them a scope, the rest together". A quick answer of a slow route and a slow answer of a quick route must
not be compared with each other. In this module, "route" means the key of such a group.

(choice) If no answer of a route was measured while all was well, the route is expected to take as long as the first
answers of other routes did: of routes with the same method if there are enough of them (`KNOWN`), otherwise of all
routes. Several are needed, since one quick route says nothing about another. So it is known how long answers take even
if the first segments of paths contain ids, so that every call has a new route.
"""

from __future__ import annotations

from proxy.retry.weather.answer_times import MUCH_SLOWER

_NEVER = float("inf")

#: The most routes of one scope whose times are kept apart, and the most routes and methods whose first answers are.
_MOST, _MOST_FIRST = 256, 32
#: The share of answers that are quicker than the usual time.
_SHARE = 0.1
#: How far one answer moves the estimate at most, as a part of it: at first, and later. So the estimate forgets.
_STEP_FIRST, _STEP = 0.3, 0.05
#: Answers of a route whose time is always measured; after these one in sixteen is enough. First answers of other routes
#: by which a new route is judged.
KNOWN = 20

#: The key of all routes beyond the most.
_REST = ""


class RouteTime:
    """The usual time of one route. `estimate`: that time in seconds. `answers`: how many answers it is based on.
    `last`: the time at which the last of them came.
    """

    __slots__ = ("answers", "estimate", "last")

    def __init__(self, seconds: float, now: float) -> None:
        self.estimate = seconds
        self.answers = 1
        self.last = now

    def learn(self, seconds: float, now: float) -> None:
        """Adjust the estimate by one more answer, which took `seconds` seconds."""
        estimate = self.estimate
        step = max(_STEP, _STEP_FIRST / self.answers) * estimate
        if seconds < estimate:
            self.estimate = max(seconds, estimate - (1.0 - _SHARE) * step)
        else:
            self.estimate = min(seconds, estimate + _SHARE * step)
        self.answers += 1
        self.last = now


class UsualTimes:
    """The usual times of one scope's routes, in seconds. `count`: how many answers were measured."""

    __slots__ = ("_first", "_of", "count")

    def __init__(self) -> None:
        self.count = 0
        self._of: dict[str, RouteTime] = {}
        self._first: dict[str, RouteTime] = {}  # of the first answers of routes, by route and method, and of all

    def answered(self, route: str, seconds: float, now: float, timed: bool) -> bool:
        """Note that an answer of this route came while all was well. `seconds`: how long it took. `timed`: this time is
        to be measured. The time counts for the estimate if it is to be measured, or if no answer of the route has been
        measured yet. Returns whether it counts.
        """
        known = self._of.get(route)
        if known is None:
            self.learn(route, seconds, now)
        elif timed:
            self.count += 1
            known.learn(seconds, now)
        else:
            known.last = now
            return False
        return True

    def learn(self, route: str, seconds: float, now: float) -> None:
        """Adjust the estimate for this route by the time of one answer, in seconds, which came while all was well."""
        self.count += 1
        known = self._of.get(route)
        if known is None and len(self._of) >= _MOST:
            route = _REST
            known = self._of.get(route)
        if known is None:
            self._of[route] = RouteTime(seconds, now)
            self._learn_first(route, seconds, now)
        else:
            known.learn(seconds, now)

    def _learn_first(self, route: str, seconds: float, now: float) -> None:
        """Adjust the estimate for new routes by the time, in seconds, of the first answer of this route that was
        measured.
        """
        first = self._first
        for key in (_REST, _method_of(route)):
            known = first.get(key)
            if known is not None:
                known.learn(seconds, now)
            elif len(first) < _MOST_FIRST:
                first[key] = RouteTime(seconds, now)

    def of_alone(self, route: str) -> float:
        """The usual time of this route in seconds; 0 before KNOWN of its own answers came, whatever is known of other
        routes.
        """
        known = self._of.get(route)
        return 0.0 if known is None or known.answers < KNOWN else known.estimate

    def of(self, route: str) -> float:
        """The usual time of this route in seconds; if that is not known, the estimate from other routes; 0 if that is
        not known either.
        """
        known = self._of.get(route)
        if known is None:
            known = self._of.get(_REST)
        if known is None:
            known = self._first.get(_method_of(route))
            if known is None or known.answers < KNOWN:
                known = self._first.get(_REST)
            if known is not None and known.answers < KNOWN:
                known = None
        return 0.0 if known is None else known.estimate

    def is_sooner(self, route: str, seconds: float) -> bool:
        """Whether an answer that took `seconds` seconds came sooner than usual answers of this route; also True if the
        usual time is not known.
        """
        usual = self.of(route)
        return not usual or seconds < usual

    def expect(self, route: str, mean: float) -> float:
        """The time, in seconds, in which an attempt of this route is probably answered: `mean`, the mean time of the
        latest answers of all routes; if that is 0, the usual time of this route's own answers, since a guess from other
        routes is no reason to refuse a call. Other routes may take longer, so `mean` counts up to the multiple of the
        usual time above which answers are much slower than usual.
        """
        if mean <= 0.0:
            known = self._of.get(route)
            return 0.0 if known is None else known.estimate
        usual = self.of(route)
        return min(mean, MUCH_SLOWER * usual) if usual > 0.0 else mean

    def last(self, route: str) -> float:
        """The time at which the last answer of this route was noted (seconds on the callers' clock); minus infinity if
        none was.
        """
        known = self._of.get(route)
        return -_NEVER if known is None else known.last

    def last_of_any(self, route: str) -> float:
        """The time at which the last answer with this route's name and method was noted, whatever its path (seconds on
        the callers' clock); minus infinity if none was.
        """
        every = _method_of(route)
        return max([-_NEVER] + [known.last for key, known in self._of.items() if key == _REST or key.startswith(every)])


def _method_of(route: str) -> str:
    """The beginning of a route's key (`proxy.retry.weather.route_names.timed_route`), up to the path: the route's name
    and the method.
    """
    return route[: route.rfind(" ") + 1]
