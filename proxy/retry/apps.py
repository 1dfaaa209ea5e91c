"""The apps that one sidecar serves, by name (contract, section 17).

A name does not prove which app sends a request, so the ways of naming that can't be forged come first. Each app has a
weight and a priority, which decide in what order its calls wait. All names that the configuration does not know count
as one app, `others`; so a key that an app sends in place of a name is never shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from proxy.retry.value_bases import NamedAppBase

#: The ranks of the priorities: calls of a lower rank go first.
RANKS: Mapping[str, int] = {"high": 0, "normal": 1, "low": 2}
#: The name of all apps that the configuration does not know.
OTHERS = "others"
#: The request field by which an app may lower the priority of a call; it is never forwarded.
PRIORITY_FIELD = "x-retry-priority"
#: The shares of a bucket's apps: each app's name and weight; the last one is that of all other apps together.
Shares = tuple[tuple[str, int], ...]
#: The most apps that have a part of a bucket of their own; the others of `known` share the part of all other apps.
MOST_PARTS = 64


@dataclass(frozen=True, slots=True)
class NamedApp(NamedAppBase):
    """An app, as queues of waiting calls know it. `name`: its name. `weight`: its share among the apps of the same
    rank. `rank`: the number of its priority; calls of the lowest rank go first. `who`: of the apps that `others` stands
    for, the hash of the name that one of them gave, for they take turns; else "".
    """

    name: str = OTHERS
    weight: int = 1
    rank: int = RANKS["normal"]
    who: str = ""

    def lowered(self) -> NamedApp:
        """The same app with the lowest priority, for a call that the app itself marks as one of low priority."""
        return self if self.rank == RANKS["low"] else replace(self, rank=RANKS["low"])


@dataclass(frozen=True, slots=True)
class Apps:
    """The configuration of apps. `by`: what names an app, in the order in which it is tried: listener, unix_user,
    proxy_user, or the lower-case name of a request field. `required`: requests without a name are refused. `known`: the
    configured apps by name. `others`: the app that stands for all other names. `fields`: the request fields in `by`.
    """

    by: tuple[str, ...] = ("listener", "unix_user", "proxy_user")
    required: bool = False
    known: Mapping[str, NamedApp] = field(default_factory=dict)
    others: NamedApp = NamedApp()
    fields: frozenset[str] = frozenset()

    def named(self, name: str) -> NamedApp:
        """The app of this name; the app that stands for all others if the configuration does not know the name."""
        known = self.known.get(name)
        if known is not None:
            return known
        return replace(self.others, who=_hash(name)) if name else self.others

    @property
    def shares(self) -> Shares:
        """The apps that have parts of buckets, with their weights. The last item stands for all apps that have no part
        of their own.
        """
        named = list(self.known.values())[: MOST_PARTS - 1]
        return (*((app.name, app.weight) for app in named), (OTHERS, self.others.weight))

    @property
    def never_forwarded(self) -> frozenset[str]:
        """The lower-case names of request fields that are meant for redrive alone, and so are not forwarded to
        upstreams.
        """
        return self.fields | {PRIORITY_FIELD}


def _hash(name: str) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
