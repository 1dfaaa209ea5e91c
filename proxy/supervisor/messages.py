"""What a parent and its workers say to each other, over `proxy.supervisor.channel`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from proxy.config.settings import Address
from proxy.observe.aggregate import Report
from proxy.retry.policy import BucketSpec


@dataclass(frozen=True, slots=True)
class PassedSocket:
    """A listening socket, which comes with the message: `number` names it from then on."""

    number: int
    address: Address


# -- to a worker ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message. `settings` are packed (`proxy.config.pickling`), `row` is the worker's row in shared memory,
    `own` where admin and probe listen.
    """

    row: int
    generation: int
    settings: bytes = field(repr=False)
    via: str
    places: tuple[PassedSocket, ...]
    own: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """A new configuration is in force; its settings are packed."""

    generation: int
    settings: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Listen:
    """Accept on these too; their sockets come with the message."""

    places: tuple[PassedSocket, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """Accept no more on these. Where they are gone, nobody will: keep them until Shut."""

    numbers: tuple[int, ...]
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Shut:
    """The parent has closed these: accept what waits there still, then close them too."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Own:
    """Admin or probe listens there (or no more), and calls must not be sent to it."""

    address: Address
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Gather:
    """What have you counted? `since`: show the calls after this number; None: show none."""

    number: int
    since: int | None


@dataclass(frozen=True, slots=True)
class Do:
    """drain: answers close their connections; retire: drain, and end when nothing is under way; refuse: new calls are
    refused; end: cut what is left, and end.
    """

    what: str


# -- to the parent --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker serves."""


@dataclass(frozen=True, slots=True)
class Using:
    """The configuration is in force; or why it is not."""

    generation: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """Nothing is accepted there any more."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """The answer to Ask. `made` are the keys of shared state that the worker has come to use, as of `generation`."""

    number: int
    generation: int
    report: Report
    made: tuple[tuple[str, tuple[object, ...], BucketSpec | None], ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The last message."""

    cut: int
    counted: Counted


@dataclass(frozen=True, slots=True)
class Note:
    """Something for the log that the parent writes."""

    event: str
    lines: list[str]
    facts: dict[str, Any]
