"""What is asked of the admin port and what it says to it, without a byte of HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from proxy.retry.facts import Fields

TEXT = "text/plain; charset=utf-8"
JSON = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: `path` and `query` decoded, of a name that comes twice the first value; `host` as it was sent."""

    method: str
    path: str
    query: Mapping[str, str]
    host: str
    fields: Fields

    def field(self, name: str) -> str:
        """A field's value, the first where it comes twice, and "" where it does not; `name` in lower case."""
        values = self.fields.get_all(name)
        return values[0] if values else ""


@dataclass(slots=True)
class Reply:
    """An answer. `parts`, in the place of a body: what is sent as it comes, until the reader goes; b"" where nothing
    is due, so that a reader who has gone is noticed.
    """

    status: int = 200
    body: bytes = b""
    kind: str = TEXT
    fields: Mapping[str, str] = field(default_factory=dict)
    parts: AsyncGenerator[bytes, None] | None = None


Page = Callable[[Asked], Awaitable[Reply]]


def text(said: str, status: int = 200, **fields: str) -> Reply:
    """A line of plain text; fields are named with _ for -."""
    return Reply(status, f"{said}\n".encode(), fields={name.replace("_", "-"): value for name, value in fields.items()})
