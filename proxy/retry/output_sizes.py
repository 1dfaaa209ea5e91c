"""How many output tokens the answers of an upstream's models had lately, for the estimate of those that come.

Contract, section 16: without a maximum in the request, the estimate is the 90th percentile of the outputs of the same
model in the last ten minutes, of which there must be twenty; a hundred models are kept apart, the rest together.

Law: the memory is bounded, by MODELS models of MOST_SIZES sizes each. The percentile is the nearest rank (Hyndman and
Fan's definition 1), so it is an output that there was.
"""

from __future__ import annotations

import math
from collections import deque

#: Contract, section 16.
WINDOW, FEWEST, MODELS, PERCENT = 600.0, 20, 100, 90
#: The most sizes of one model that are kept: beyond them the newest stand for the window.
MOST_SIZES = 1000

#: The name under which the models beyond MODELS are kept together.
_REST = ""


class OutputSizes:
    """The sizes (tokens) of the outputs of one upstream's models."""

    __slots__ = ("_models",)

    def __init__(self) -> None:
        self._models: dict[str, deque[tuple[float, float]]] = {}  # by model: (when, tokens), oldest first

    def add(self, model: str, tokens: float, now: float) -> None:
        """Note that an output of this model had so many tokens."""
        sizes = self._models.get(model)
        if sizes is None:
            if len(self._models) >= MODELS:
                self._forget_idle(now)
            if len(self._models) >= MODELS:
                model = _REST
            sizes = self._models.setdefault(model, deque(maxlen=MOST_SIZES))
        sizes.append((now, tokens))

    def expected(self, model: str, now: float) -> float | None:
        """The 90th percentile of the outputs of this model; None if too few are known."""
        sizes = self._models.get(model)
        if sizes is None:
            sizes = self._models.get(_REST)
        if sizes is None:
            return None
        while sizes and sizes[0][0] < now - WINDOW:
            sizes.popleft()
        if len(sizes) < FEWEST:
            return None
        return sorted(tokens for _, tokens in sizes)[math.ceil(PERCENT * len(sizes) / 100) - 1]

    def _forget_idle(self, now: float) -> None:
        for model, sizes in list(self._models.items()):
            if not sizes or sizes[-1][0] < now - WINDOW:
                del self._models[model]
