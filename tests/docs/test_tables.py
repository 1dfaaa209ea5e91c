"""The tables of the reference say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from proxy.retry.facts import GAVE_UP, Outcome
from proxy.retry.policies.bucket_specs import QuotaSpec
from proxy.retry.policies.policy import Strategy
from proxy.retry.strategies.presets import BUILT_IN

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    text = (REFERENCE / page).read_text().partition(f"{heading}\n")[2]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert lines is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].splitlines()[2:]]


def seconds(value: float) -> str:
    return f"{value * 1000:g}ms" if value < 1 else f"{value:g}s"


def own_bucket(made: Strategy) -> str:
    spec = made.own_bucket
    if spec is None:
        return "none"
    assert isinstance(spec, QuotaSpec)
    text = f"quota {spec.capacity:g}, cost {spec.retry_cost:g}"
    text += f", throttling {spec.throttling_cost:g}" if spec.throttling_cost != spec.retry_cost else ""
    text += f", timeouts {spec.timeout_cost:g}" if spec.timeout_cost != spec.retry_cost else ""
    return text + (", flat refund" if spec.flat_refund else "")


def test_the_kinds() -> None:
    table = {cells[0].strip("`"): cells[1:] for cells in rows("strategies.md", "## The kinds")}
    assert list(table) == list(BUILT_IN)
    for kind, made in BUILT_IN.items():
        waits = ["", "", "", ""]
        if made.hedging_delay is None and made.max_attempts > 1:
            base = seconds(made.backoff.base)
            if made.backoff.throttling_base is not None:
                base += f", {seconds(made.backoff.throttling_base)} after throttling"
            waits = [base, seconds(made.backoff.max), f"{made.backoff.multiplier:g}", made.backoff.jitter]
        assert table[kind] == [str(made.max_attempts), *waits, own_bucket(made)]


def test_what_hedging_goes_on_from() -> None:
    text = (REFERENCE / "strategies.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("`UNAVAILABLE`"))
    assert set(re.findall(r"[\w.]+", line)) == {str(each) for each in BUILT_IN["hedging"].non_fatal}


def test_every_outcome_is_listed() -> None:
    listed = [cells[0].strip("`") for cells in rows("classification.md", "## The outcomes")]
    assert listed == [outcome.value for outcome in Outcome]


def test_the_outcomes_with_which_an_app_is_told_to_stop() -> None:
    text = (REFERENCE / "pushback.md").read_text().partition("So that the app does not retry on top")[2]
    named = re.findall(r"`(\w+)`", text.partition("With `not_retryable`")[0])
    with_concurrency = {Outcome.OVERLOADED}  # with that alone: `gave_up`
    assert {Outcome(name) for name in named if name in set(Outcome)} == GAVE_UP | with_concurrency


def test_the_codes_of_aws() -> None:
    text = (REFERENCE / "dialects.md").read_text()
    paragraph = text.partition("The codes of `aws`:")[2].partition("\n\n")[0]
    throttling, _, transient = paragraph.partition("*transient*")
    codes = yaml.safe_load((ROOT / "proxy/config/dialects/aws.yaml").read_text())["codes"]
    assert re.findall(r"[A-Z]\w+", throttling) == codes["throttling"]
    assert re.findall(r"[A-Z]\w+", transient) == codes["transient"]
