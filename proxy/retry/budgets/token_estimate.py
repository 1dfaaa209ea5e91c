"""The price of an attempt in a language model's tokens, estimated before it is sent (contract, section 16, "Tokens").

The prompt's tokens are the bytes of the request's body, divided by a number of bytes for each token; an image, a sound
or a file counts as MEDIUM_TOKENS, whatever its bytes. The output's tokens are the maximum that the request names, times
the number of outputs that it asks for. Without a maximum they are the number that nine of ten outputs of that model did
not exceed lately; if that is not known, a default.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from proxy.retry.answers.json_paths import values_at, whole_number
from proxy.retry.budgets.token_sizes import TokenSizes
from proxy.retry.policies.bucket_specs import JsonPath, TokenRules

#: Contract, section 16: the tokens of a medium, and the most outputs of one request.
MEDIUM_TOKENS, MOST_CHOICES = 1000, 128

#: How a string that is a medium begins (RFC 2397).
_DATA = "data:"


#: The units that a limit or a rate counts, by their places in a price. "requested" is all tokens: what the request asks
#: for.
UNIT_INDEX = {"attempts": 0, "tokens": 1, "requested": 1, "prompt": 2, "output": 3}
#: An attempt's price: itself, and a language model's tokens: all, those of the prompt, those of the output.
Price = tuple[float, float, float, float]
#: The price of an attempt whose tokens are not known.
ONE: Price = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The tokens that an attempt is expected to cost. `prompt`, `output`: the tokens of each. `model`: the model that
    the request names, "" for none.
    """

    prompt: float
    output: float
    model: str = ""

    @property
    def price(self) -> float:
        """The tokens of the whole attempt: of its prompt and of its output."""
        return self.prompt + self.output


def price_of(estimate: Estimate | None) -> Price:
    """The price of an attempt in each unit that a limit may count: one attempt, then the tokens of `estimate` (in all,
    of the prompt, of the output), which are zeros if it is None.
    """
    return ONE if estimate is None else (1.0, estimate.price, estimate.prompt, estimate.output)


def estimate(
    rules: TokenRules, body: Iterable[bytes] | None, size: int, sizes: TokenSizes | None, now: float
) -> Estimate:
    """The estimate for a request. `body`: the request's body, None if it is not kept. `size`: how many bytes of it have
    come. `sizes`: how long the outputs of the upstream's models were lately, None if that is not known.
    """
    whole = None if body is None else b"".join(body)
    document = None if whole is None else _parsed(whole)
    model = ""
    media_bytes = media = 0
    most: int | None = None
    if document is not None:
        model = next((each for each in _found(rules, document, "model") if isinstance(each, str)), "")
        media, media_bytes = _media(document, frozenset().union(*(fields.media for fields in rules.fields)))
        named = [number for each in _found(rules, document, "maximum") if (number := whole_number(each)) is not None]
        if named:
            choices = [number for each in _found(rules, document, "choices") if (number := whole_number(each))]
            most = int(min(max(named), rules.burst)) * min(max(choices, default=1), MOST_CHOICES)
    prompt = max(0, (size if whole is None else len(whole)) - media_bytes) / rules.bytes + media * MEDIUM_TOKENS
    if most is not None:
        return Estimate(prompt, most, model)
    expected = None if sizes is None else sizes.expected(model, now)
    return Estimate(prompt, rules.output if expected is None else expected, model)


def _parsed(body: bytes) -> Any:
    """The body as JSON; None if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _found(rules: TokenRules, document: Any, what: str) -> Iterable[Any]:
    """The values in a JSON document at every path that the dialect packs give for `what`, a field of `UsageFields`
    ("model", say).
    """
    for fields in rules.fields:
        paths: tuple[JsonPath, ...] = getattr(fields, what)
        for path in paths:
            yield from values_at(document, path)


def _media(document: Any, names: frozenset[str]) -> tuple[int, int]:
    """Return the number of strings in the document that are media (images, sounds, files), and the sum of their bytes.
    A string is a medium if it begins with `data:`, or if it is a member whose name is in `names`; a name `a.b` there
    means the member `b` of an object that is itself the member `a`.
    """
    count = size = 0
    waiting: list[tuple[str, str, Any]] = [("", "", document)]
    while waiting:
        outer, name, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend((name, inner, each) for inner, each in value.items())
        elif isinstance(value, list):
            waiting.extend((outer, name, each) for each in value)
        elif isinstance(value, str) and (f"{outer}.{name}" in names or name in names or value.startswith(_DATA)):
            count += 1
            size += len(value.encode("utf-8", "surrogatepass"))
    return count, size
