"""Facts that one sidecar finds out and the whole fleet has to know: that an upstream refuses a credential, for example,
or that an endpoint refuses connections.

A process reports a fact when it begins and when it is over, not for each call. Redis keeps the fact while it lasts, for
processes that start later, and publishes it to those that run. When Redis was out and is back, each process reports its
own facts again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from proxy.retry.upstreams.credentials import Roster
from proxy.retry.upstreams.endpoints import EndpointGroup
from proxy.stores.redis.bucket import Command, Link, space

#: Takes a fact that another process found out: its item, and for how many seconds it lasts (0: it is over).
Take = Callable[[str, float], None]

#: The most facts that are remembered for upstreams that no call of this process has used.
_MOST = 1000


class FleetNews:
    """The facts that a fleet shares, as one process reports and receives them. `key`: the Redis hash of the facts in
    force; `channel`: the channel on which facts that begin or end are published. Each fact has a topic and an upstream,
    which say which processes have to know it, and an item, which says what the fact is about (an endpoint, for
    example).
    """

    def __init__(self, store: Link, prefix: str, clock: Callable[[], float]) -> None:
        self.key, self.channel = f"{space(prefix)}{{news}}", f"{space(prefix)}news"
        self._store = store
        self._clock = clock
        self._takers: dict[str, Take] = {}  # by topic and upstream
        self._ends: OrderedDict[str, float] = OrderedDict()  # by field: when facts of others end
        self._own: dict[str, float] = {}  # by field: when facts that this process published end
        store.returned.append(self._tell_again)

    def join(self, topic: str, upstream: str, take: Take) -> Callable[[str, float], None]:
        """Call `take` with each fact of this topic (such as `weather`) and upstream that other processes report: with
        those in force now, and with later ones as they come. Returns a function that reports such a fact to the fleet;
        its arguments are the fact's item, and the seconds for which the fact lasts (0: it has ended).
        """
        place = f"{topic} {_place_of(upstream)}"
        self._takers[place] = take
        for field, end in self._ends.items():
            if field.startswith(f"{place} "):
                self._give(take, field, end - self._clock())

        def publish(item: str, seconds: float) -> None:
            field = f"{place} {item.encode('utf-8', 'surrogateescape').hex()}"
            self._own.pop(field, None)
            if seconds > 0:
                self._own[field] = self._clock() + seconds
            self._send(field, seconds)

        return publish

    def share_no_more(self, upstream: str) -> None:
        """Call no function any more with facts of this upstream."""
        place = f" {_place_of(upstream)}"
        for each in [each for each in self._takers if each.endswith(place)]:
            del self._takers[each]

    def share_roster(self, upstream: str, roster: Roster) -> None:
        """Share with the fleet which of an upstream's credentials are put aside: a credential that one process puts
        aside is put aside in all processes.
        """

        def put_aside(digest: str, seconds: float) -> None:
            roster.put_aside_for(digest, self._clock() + seconds)

        roster.report = self.join("aside", upstream, put_aside)

    def share_endpoints(self, upstream: str, group: EndpointGroup) -> None:
        """Share which endpoints of an upstream refuse connections."""

        def refused(label: str, seconds: float) -> None:
            group.refused_elsewhere(label, seconds, self._clock())

        group.share(self.join("refused", upstream, refused))

    def known(self, topic: str, upstream: str) -> list[str]:
        """The items of the facts in force of this topic and upstream that other processes have reported."""
        place, now = f"{topic} {_place_of(upstream)} ", self._clock()
        fields = [field for field, end in self._ends.items() if field.startswith(place) and end > now]
        return [_item_of(field) for field in fields]

    def hear(self, message: bytes) -> None:
        """Take in a message of the channel: a fact's field in the hash, and the seconds for which the fact lasts."""
        *field, seconds = message.decode().split()[:4]  # a later release may add words
        self._hear(" ".join(field), float(seconds))

    def hear_all(self, known: dict[bytes, bytes], server: float) -> None:
        """Take in the facts that Redis keeps. `known`: by the fields of the hash (topic, upstream and item), the end of
        each on the clock of Redis, in seconds as text; `server`: what that clock says now.
        """
        for field, end in known.items():
            self._hear(field.decode(), float(end) - server)

    def _hear(self, field: str, seconds: float) -> None:
        ends = self._ends
        ends.pop(field, None)
        if seconds > 0:
            ends[field] = self._clock() + seconds
            if len(ends) > _MOST:
                ends.popitem(last=False)
        take = self._takers.get(field.rpartition(" ")[0])
        if take is not None:
            self._give(take, field, max(0.0, seconds))

    @staticmethod
    def _give(take: Take, field: str, seconds: float) -> None:
        take(_item_of(field), seconds)

    def _tell_again(self) -> None:
        now = self._clock()
        self._own = {field: end for field, end in self._own.items() if end > now}
        for field, end in self._own.items():
            self._send(field, end - now)

    def _send(self, field: str, seconds: float) -> None:
        self._store.send(Command("news", self.key, (field, self.channel, repr(float(seconds)))))


def _item_of(field: str) -> str:
    """The fact's item (an endpoint's label, say), from the field of the hash under which the fact is kept."""
    return bytes.fromhex(field.rpartition(" ")[2]).decode("utf-8", "surrogateescape")


def _place_of(upstream: str) -> str:
    """The name by which the fleet knows an upstream: a digest of the upstream's own name."""
    return hashlib.blake2b(upstream.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
