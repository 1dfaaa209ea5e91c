"""Which fields an attempt carries: the request as it came, changed by the function that the data path uses.

Law: nothing is decided here. `Via` (whose name is drawn when a proxy starts) and the framing of the body, which follow
from no policy, are left out.
"""

from __future__ import annotations

from proxy.forward.headers import attempt_fields
from proxy.retry.call import Call
from proxy.retry.facts import MappingFields
from proxy.wire.field_names import REQUEST_CUT
from proxy.wire.http1.slow_path import NEVER_NOMINATED

#: What no attempt carries as it came, whatever the policy says.
_CUT = frozenset(name.decode() for name in REQUEST_CUT | {b"transfer-encoding"})
_NEVER_NOMINATED = frozenset(name.decode() for name in NEVER_NOMINATED)


def fields_of_attempt(call: Call, attempt: int, now: float, key: str) -> dict[str, str]:
    """Names in lower case; the values of a field that repeats are joined. `key`: what is injected where a key is."""
    request = call.request
    changes = attempt_fields(request, call.policy, attempt, elapsed=now - call.started, key=key)
    pairs = request.fields.pairs() if isinstance(request.fields, MappingFields) else []
    named = {name.strip().lower() for field, value in pairs if field == "connection" for name in value.split(",")}
    named -= _NEVER_NOMINATED
    fields: dict[str, str] = {"host": request.authority}
    for name, value in [*_kept(pairs, changes.drop | named | _CUT | {"host"}), *changes.add]:
        lower = name.lower()
        fields[lower] = f"{fields[lower]}, {value}" if lower in fields else value
    return fields


def _kept(pairs: list[tuple[str, str]], out: set[str] | frozenset[str]) -> list[tuple[str, str]]:
    """The request's own fields that go on. `te: trailers` does: gRPC asks for it."""
    return [pair for pair in pairs if pair[0] not in out or (pair[0] == "te" and pair[1].lower() == "trailers")]
