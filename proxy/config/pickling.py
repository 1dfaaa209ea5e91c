"""Settings as one pickle, on their way from the parent to its workers: both ends are this program.

Pickling and unpickling go through Python code for every dataclass, so that a thread that does it leaves the interpreter
to calls in between. The trees of `Provenance` stay behind; a user's own strategy is made anew over there.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from proxy.config.garbage import uncollected
from proxy.config.provenance import Provenance
from proxy.config.settings import Settings


def pack(settings: Settings) -> bytes:
    """Settings as bytes for `unpack`, without provenance but for the top level's."""
    router = settings.router
    policies = (policy for upstream in (*router.upstreams, router.fallback) for policy in upstream.policies)
    remakes = {id(each.custom): each.remake for each in (policy.strategy for policy in policies) if each.remake}
    out = io.BytesIO()
    _Pickler(out, remakes).dump(replace(settings, provenance=Provenance(settings.provenance.top)))
    return out.getvalue()


def unpack(packed: bytes) -> Settings:
    """The settings again, laid out for calls. Raises whatever a user's own strategy does as it is made."""
    with uncollected():
        settings: Settings = pickle.loads(packed)  # noqa: S301  our parent's
        settings.router.lay_out()
    return settings


class _Pickler(pickle.Pickler):
    """`remakes` make users' strategies anew, by the identity of the one here."""

    def __init__(self, out: io.BytesIO, remakes: dict[int, Callable[[], Any]]) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._remakes = remakes

    def reducer_override(self, part: Any) -> Any:
        remake = self._remakes.get(id(part))
        return NotImplemented if remake is None else (remake, ())
