"""The latest sizes of prompts and outputs, in tokens, by which requests and answers that do not name a size are
estimated.

Contract, section 16: without a maximum in the request, the estimate is the 90th percentile of the outputs of the same
model in the last ten minutes, of which there must be twenty. A hundred models are kept apart, and all others together.

A prompt is estimated by the bytes of its request, including the names of JSON members, so the estimate is too high.
Answers that report usage show by how much. A prompt whose answer reports nothing (a stream without usage) is taken to
be as much smaller than its estimate.

Law: the memory is bounded, by MODELS models of MOST_SIZES sizes each. The percentile is the nearest rank (Hyndman and
Fan's definition 1), so it is the size of a real output.
"""

from __future__ import annotations

import math
from collections import deque

#: Contract, section 16.
WINDOW, FEWEST, MODELS, PERCENT = 600.0, 20, 100, 90
#: The most sizes of one model that are kept: beyond them the newest stand for the window.
MOST_SIZES = 1000
#: The number of prompts after which an earlier one counts for less.
PROMPTS = 50

#: The name under which the models beyond MODELS are kept together.
_REST = ""


class TokenSizes:
    """The sizes, in tokens, of the latest outputs of each model of one upstream, and the share of their estimates that
    the upstream's prompts really cost. `prompts`: how many prompts this share is based on.
    """

    __slots__ = ("_models", "_share", "prompts")

    def __init__(self) -> None:
        self.prompts = 0
        self._share = 1.0  # of the estimates of prompts that prompts really cost, lately
        self._models: dict[str, deque[tuple[float, float]]] = {}  # by model: (when, tokens), oldest first

    def add(self, model: str, tokens: float, now: float) -> None:
        """Note that an output of this model had `tokens` tokens."""
        sizes = self._models.get(model)
        if sizes is None:
            if len(self._models) >= MODELS:
                self._forget_idle(now)
            if len(self._models) >= MODELS:
                model = _REST
            sizes = self._models.setdefault(model, deque(maxlen=MOST_SIZES))
        sizes.append((now, tokens))

    def add_prompt(self, estimated: float, tokens: float) -> None:
        """Note that a prompt that was estimated at `estimated` tokens had `tokens` tokens."""
        if estimated > 0:
            self.prompts += 1
            self._share += (tokens / estimated - self._share) / min(self.prompts, PROMPTS)

    @property
    def prompt_share(self) -> float:
        """The real cost of prompts, as a share of their estimates, at most 1; 1 if too few prompts are known."""
        return 1.0 if self.prompts < FEWEST else min(1.0, self._share)

    def expected(self, model: str, now: float) -> float | None:
        """The 90th percentile of the tokens of this model's latest outputs; None if too few are known."""
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
