"""`redrive simulate`: relations between figures, the same ones for the same seed, mistakes with their line."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.scenarios import scenario

from proxy.cli import main
from proxy.config.schema_language import Section
from proxy.lab.simulate import Figures, Scenario, run_scenario, simulation
from proxy.lab.simulate.columns import WITHOUT_HOLDING, columns
from proxy.lab.simulate.figures import figures
from proxy.lab.simulate.possible import Possible
from proxy.lab.simulate.report import print_table
from proxy.lab.simulate.scenario import OUTAGE, REDIS, REDIS_OUTAGE, SCENARIO, UPSTREAM, read_scenario
from proxy.lab.simulate.simulation import play
from proxy.retry.call.machine import Call
from proxy.retry.facts import Request

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "config/examples/scenarios").glob("*.yaml"))
PAGE = ROOT / "docs/reference/commands/simulate.md"
#: Examples whose weather is bad in the first ten seconds, or in which no call comes by then.
BAD_FROM_THE_START = {
    "no_queue_429", "no_queue_503", "one_call_a_minute", "refused_by_chance", "three_in_ten", "throttled_by_chance",
    "throttled_slow_answers", "too_much_all_the_time",
}  # fmt: skip
STRATEGIES = ROOT / "docs/reference/strategies.md"


@pytest.fixture(autouse=True)
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration is near."""
    monkeypatch.chdir(tmp_path)
    for name in ("REDRIVE_CONFIG", "AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS"):
        monkeypatch.delenv(name, raising=False)


def seconds(value: float) -> str:
    """A time as pages have it."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"


def compared(scenario: Scenario, config: str | None = None) -> list[Figures]:
    """The figures of the policy, of what a scenario compares it with, of none and of naive retries. The policy without
    holding calls takes the longest to play, and is left out.
    """
    found, _ = columns(config, scenario, {})
    return [figures(scenario, play(scenario, each)) for each in found if each.name != WITHOUT_HOLDING]


def figures_of(scenario: Scenario, *names: str) -> list[Figures]:
    """The figures of these columns alone, in this order."""
    found = {each.name: each for each in columns(None, scenario, {})[0]}
    return [figures(scenario, play(scenario, found[name])) for name in names]


def played(folder: Path, text: str) -> list[Figures]:
    return compared(scenario(folder, text))


def test_what_a_policy_holds_is_a_column_of_its_own(tmp_path: Path) -> None:
    found = scenario(tmp_path, "duration: 5s\npolicy: {concurrency: {max: 5}}\n")
    assert [each.name for each in run_scenario(None, found, {})] == [
        "policy: standard", WITHOUT_HOLDING, "none", "naive: 3 at once",
    ]  # fmt: skip


def names(text: str | None, found: Scenario) -> list[str]:
    """The names of the columns where this is the configuration, None for no file."""
    if text is not None:
        Path("redrive.yaml").write_text(text)
    return [each.name for each in run_scenario(None, found, {})]


@pytest.mark.parametrize("text", [None, "", "upstreams:\n", "defaults: {dialects: [http]}\n", "include: [more.yaml]\n"])
def test_without_an_upstream_the_policy_is_that_of_one_without_keys(tmp_path: Path, text: str | None) -> None:
    """The judge of the defaults is the command as anybody runs it: contract, section 9."""
    Path("more.yaml").write_text("buckets: {spare: {kind: budget}}\n")
    found = scenario(tmp_path, "duration: 60s\ncalls: 20/s\noutages: [{at: 20s, lasts: 8s, kinds: connect_failure}]\n")
    assert names(text, found) == ["defaults: standard", WITHOUT_HOLDING, "none", "naive: 3 at once"]
    ours, bare, none, _ = run_scenario(None, found, {})
    assert none.success_rate <= bare.success_rate < 0.95 < 0.99 < ours.success_rate


def test_without_an_upstream_the_policy_has_what_the_configuration_says_of_all(tmp_path: Path) -> None:
    found = scenario(tmp_path, "duration: 5s\nupstream: {endpoints: 2}\n")
    text = "strategies: {patient: {kind: legacy, max_attempts: 5}}\ndefaults: {strategy: patient, concurrency: off}\n"
    assert names(text, found) == ["defaults: patient", WITHOUT_HOLDING, "none", "naive: 5 at once"]
    assert len(columns(None, found, {})[0][0].policy.endpoints) == 2
    host = replace(found, url="http://a.example/")  # a host that no upstream names: its calls are not held
    assert names("defaults: {strategy: legacy}\n", host) == ["defaults: legacy", "none", "naive: 4 at once"]


def test_a_single_url_stands_for_the_endpoints_of_the_scenario(tmp_path: Path) -> None:
    """As if the url listed them: a throttled endpoint is passed over, and holds no calls to the other."""
    text = "duration: 40s\ncalls: 20/s\nupstream: {endpoints: 2}\n"
    text += "outages: [{at: 10s, lasts: 20s, kinds: 429, retry_after: 4s, endpoint: 1}]\n"
    found = scenario(tmp_path, text)
    Path("more.yaml").write_text("upstreams:\n  a: {url: 'http://[::1]:8081/x', dialects: [http]}\n")
    assert names("include: [more.yaml]\n", found)[0] == "a: standard"
    ours, _, none, _ = run_scenario(None, found, {})
    assert none.success_rate < 0.8 < 1.0 == ours.success_rate
    one = replace(found, url="http://[::1]:8081/")  # a request of its own, to one place
    assert not columns(None, one, {})[0][0].policy.endpoints


def test_a_path_may_have_the_number_of_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths: list[str] = []

    def noted(request: Request, *rest: Any) -> Call:
        paths.append(request.path)
        return Call(request, *rest)

    monkeypatch.setattr(simulation, "Call", noted)
    found = scenario(tmp_path, "duration: 2s\ncalls: 10/s\nroutes: [{path: '/{call}/a'}, {path: /b, share: 30%}]\n")
    play(found, columns(None, found, {})[0][0])
    numbered = [path for path in paths if path != "/b"]
    assert numbered == [f"/{number}/a" for number in range(1, len(numbered) + 1)] and len(numbered) > 5


OUTAGE_TEXT = """\
duration: 60s
sidecars: 2
calls: 50/s
outages: [{at: 20s, lasts: 20s}]
compare:
  budget: {outage: fail, concurrency: off, bucket: {kind: budget, percent: 10, min_per_second: 1}}
  generous: {outage: fail, concurrency: off, bucket: off}
"""


def test_retries_in_an_outage(tmp_path: Path) -> None:
    Path("redrive.yaml").write_text("defaults: {outage: fail, concurrency: off}\n")
    quota, budget, generous, none, naive = played(tmp_path, OUTAGE_TEXT)
    assert [each.name for each in (quota, budget, generous, none, naive)] == [
        "defaults: standard", "budget", "generous", "none", "naive: 3 at once",
    ]  # fmt: skip
    assert len({each.calls for each in (quota, budget, generous, none, naive)}) == 1, "the same calls for each"
    assert none.amplification == 1 and none.attempts == none.calls == none.requests
    assert naive.amplification == pytest.approx(3, abs=0.05)
    assert budget.amplification < quota.amplification <= generous.amplification + 0.5
    assert none.attempts_per_call < budget.attempts_per_call < quota.attempts_per_call < naive.attempts_per_call
    assert quota.outcomes["bucket_empty"] > 0 and "bucket_empty" not in generous.outcomes
    assert none.success_rate <= quota.success_rate <= generous.success_rate
    for each in (quota, budget, generous, none, naive):
        assert sum(each.outcomes.values()) == each.calls
        assert each.outcomes["success"] == each.succeeded
        assert each.recovery == 0.0
        assert each.latency["p50"] <= each.latency["p90"] <= each.latency["p99"]
        assert sum(second[0] for second in each.series) == each.calls
        assert sum(second[2] for second in each.series) == each.requests >= each.attempts


def test_the_same_seed_gives_the_same_figures(tmp_path: Path) -> None:
    once = scenario(tmp_path, OUTAGE_TEXT.replace("50/s", "10/s"))
    figures = run_scenario(None, once, {})
    assert run_scenario(None, once, {}) == figures
    assert run_scenario(None, replace(once, seed=2), {}) != figures


def test_naive_retries_keep_an_overload_alive_and_a_quota_does_not() -> None:
    found, _ = read_scenario(str(ROOT / "config/examples/scenarios/overload.yaml"))
    assert found is not None and found.capacity is not None
    (outage,) = found.outages
    assert outage.capacity is not None
    smaller = replace(
        found, duration=150.0, sidecars=6, calls=found.calls * 0.3, capacity=found.capacity * 0.3,
        outages=(replace(outage, capacity=outage.capacity * 0.3),),
    )  # fmt: skip
    ours, _, none, naive = compared(smaller)
    assert naive.recovery is None and naive.success_rate < 0.5
    assert ours.recovery is not None and ours.success_rate > 0.7
    assert none.recovery is not None


def test_so_many_attempts_at_a_time_keep_an_upstream_from_work_that_nobody_waits_for() -> None:
    found, problems = read_scenario(str(ROOT / "config/examples/scenarios/too_much_at_a_time.yaml"))
    assert found is not None, problems
    ours, limited, none, naive = compared(found)
    assert min(ours.success_rate, limited.success_rate) > none.success_rate + 0.15 > naive.success_rate
    assert abs(limited.success_rate - ours.success_rate) < 0.02  # a limit that is found is as good as one that fits
    assert limited.outcomes["overloaded"] == limited.calls - limited.succeeded
    assert limited.amplification < ours.amplification
    shares = f"({none.success_rate:.1%} of the calls succeed, with `concurrency` {limited.success_rate:.1%})"
    assert shares.replace("%", " %") in PAGE.read_text()


@pytest.mark.parametrize("name", ["slow_tail", "slow_minute"])
def test_hedging_at_a_percentile_beside_no_hedging(name: str) -> None:
    found, problems = read_scenario(str(ROOT / f"config/examples/scenarios/{name}.yaml"))
    assert found is not None, problems
    measured, fixed, none = figures_of(found, "hedged-p95", "hedged-100ms", "none")
    column = 1 if name == "slow_tail" else 3
    for printed, each in (("no hedging", none), ("`hedging_delay: p95", measured), ("`hedging_delay: 100ms`", fixed)):
        row = next(line for line in STRATEGIES.read_text().splitlines() if line.startswith(f"| {printed}"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        share = f"{100 * each.hedge_share:.{0 if each.hedge_share > 0.1 else 1}f} %" if each.hedges else "0"
        assert cells[column : column + 2] == [seconds(each.latency["p99"]), share]
        assert name == "slow_tail" or cells[5] == f"{each.amplification:.2f}"
    assert measured.hedges == measured.attempts - measured.calls  # nothing fails: what is sent again is a hedge
    assert measured.hedges <= 0.05 * measured.calls < none.calls
    assert none.hedges == 0 and none.attempts == none.calls
    if name == "slow_tail":
        assert measured.latency["p99"] < 0.1 * none.latency["p99"]
    else:
        assert measured.latency["p99"] < none.latency["p99"]
        assert fixed.hedge_share > 0.2 and fixed.amplification > 1.9 > 1.2 > measured.amplification


def test_a_circuit_breaker_spares_calls_the_wait_for_an_endpoint_that_hangs() -> None:
    found, problems = read_scenario(str(ROOT / "config/examples/scenarios/hanging_endpoint.yaml"))
    assert found is not None, problems
    bare = replace(found, policy=found.compare["without"], compare={"breaker": found.compare["breaker"]})
    first = columns(None, bare, {})[0][0].name
    without, broken = figures_of(bare, first, "breaker")
    assert without.latency["p90"] > 1.0
    assert broken.latency["p90"] < 0.1
    assert broken.attempts - broken.calls < 0.2 * (without.attempts - without.calls)
    assert broken.success_rate == without.success_rate == 1.0
    printed = f"{without.calls:,} calls, nine in ten come back within {seconds(without.latency['p90'])} without a "
    printed += f"breaker and within {seconds(broken.latency['p90'])} with one"
    assert printed in " ".join((ROOT / "docs/reference/endpoints.md").read_text().split())


def test_weights_and_priorities_are_played(tmp_path: Path) -> None:
    urls = '[{url: "http://a.test", priority: 1}, "http://b.test"]'
    text = "duration: 60s\nsidecars: 1\ncalls: 10/s\noutages: [{at: 0s, lasts: 60s, endpoint: 1}]\n"
    text += f"policy: {{url: {urls}}}\n"
    ours, none, _ = played(tmp_path, f"upstream: {{endpoints: 2}}\n{text}")
    assert ours.attempts == ours.calls and ours.success_rate == 1.0
    assert none.success_rate < 0.6
    _, problems = columns(None, scenario(tmp_path, text), {})
    assert "policy: has 2 endpoints with weights or priorities" in str(problems[0])


def test_streams_that_stall_are_made_again_where_their_first_byte_is_bounded(tmp_path: Path) -> None:
    text = (
        "duration: 1m\ncalls: 20/s\nsidecars: 1\noutages: [{at: 10s, lasts: 40s, share: 20%, kinds: stall}]\n"
        "policy: {timeouts: {first_byte: 2s}}\ncompare: {unbounded: {timeouts: {first_byte: off}}}\n"
    )
    bounded, unbounded, none, _ = played(tmp_path, text)
    assert bounded.success_rate > 0.98
    assert unbounded.success_rate < 0.9 and none.success_rate < 0.9
    assert "committed" in unbounded.outcomes
    assert "attempts_exhausted" in none.outcomes


def test_answers_that_break_are_asked_for_again_while_they_are_kept(tmp_path: Path) -> None:
    text = (
        "duration: 1m\ncalls: 20/s\nsidecars: 1\nupstream: {breaking: 20%}\npolicy: {bucket: off}\n"
        "compare: {unkept: {answers: off}}\n"
    )
    kept, unkept, none, _ = played(tmp_path, text)
    assert kept.success_rate > 0.98
    assert 0.7 < unkept.success_rate < 0.9 and 0.7 < none.success_rate < 0.9
    assert "committed" in unkept.outcomes


def test_what_is_measured_does_not_run_away(tmp_path: Path) -> None:
    """Were a hedge's own time measured in the place of the one that it was sent for, the percentile would fall minute
    by minute, and with no bound to speak of more and more calls would be hedged.
    """
    ours, *_ = played(
        tmp_path,
        "duration: 5m\nsidecars: 1\ncalls: 40/s\nupstream: {slow: 2%, slow_latency: 2s}\n"
        "policy: {strategy: {kind: hedging, max_attempts: 2, hedging_delay: p95, extra: 100%}}\n",
    )
    assert 0.04 < ours.hedge_share < 0.06


def test_a_bucket_for_the_whole_fleet_holds_more_than_one_for_each(tmp_path: Path) -> None:
    each, shared, *_ = played(
        tmp_path,
        "duration: 30s\nsidecars: 100\ncalls: 60/s\noutages: [{at: 5s, lasts: 20s}]\n"
        "compare: {fleet: {bucket: {kind: quota, capacity: 500, store: redis}}}\n",
    )
    assert each.outcomes.get("bucket_empty", 0) == 0 < shared.outcomes["bucket_empty"]
    assert shared.requests < each.requests


def test_pushback_holds_calls_and_naive_is_deaf_to_it(tmp_path: Path) -> None:
    ours, none, naive = played(
        tmp_path,
        "duration: 30s\nsidecars: 1\ncalls: 20/s\npolicy: {pushback: {cooldown: reject}}\n"
        "outages: [{at: 10s, lasts: 5s, kinds: 429, retry_after: 2s}]\n",
    )
    assert ours.outcomes["cooling"] > 0 and ours.requests < none.requests < naive.requests


def test_every_kind_of_failure_and_strategy(tmp_path: Path) -> None:
    text = (
        "duration: 20s\ncalls: 20/s\narrivals: steady\n"
        "outages: [{at: 5s, lasts: 5s, kinds: [connect_failure, refused_stream, reset, attempt_timeout, 500, 429]}]\n"
        "policy: {timeouts: {attempt: 200ms, total: 3s}}\ncompare:\n"
    )
    kinds = ("standard-2026", "legacy", "adaptive", "smithy", "grpc", "hedging", "none")
    text += "".join(f"  {kind}: {{strategy: {kind}, timeouts: {{attempt: 200ms, total: 3s}}}}\n" for kind in kinds)
    for each in played(tmp_path, text):
        assert each.calls == 399 or each.calls == 400
        assert sum(each.outcomes.values()) == each.calls
        assert 0.7 < each.success_rate < 1.0
        assert each.latency["p99"] <= 3.0 + 1e-6


def test_a_post_is_retried_as_its_policy_says(tmp_path: Path) -> None:
    text = "duration: 20s\ncalls: 20/s\nrequest: {method: POST}\noutages: [{at: 5s, lasts: 5s}]\n"
    ours, none, naive = played(tmp_path, text)
    assert ours.requests == none.requests < naive.requests
    assert ours.outcomes["not_retryable"] > 0


def test_the_configuration_decides(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "upstreams:\n"
        "  a: {url: 'http://a.example', strategy: {kind: standard, max_attempts: 5}}\n"
        "  b: {url: 'http://b.example', strategy: none}\n"
    )
    short = "duration: 5s\ncalls: 5/s\n"
    first = run_scenario(str(config), scenario(tmp_path, short), {})
    assert [each.name for each in first] == [
        "a: standard(max_attempts=5)", "without holding", "none", "naive: 5 at once",
    ]  # fmt: skip
    other = run_scenario(str(config), scenario(tmp_path, short + "request: {url: 'http://b.example/x'}\n"), {})
    assert other[0].name == "b: none"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("calls: 50\n", "scenario.yaml:1:8: calls: "),
        ("outages:\n  - {lasts: 1m}\n", "scenario.yaml:2:5: outages[0].at: is missing"),
        ("qq: 3\n", "scenario.yaml:1:1: qq: unknown key; docs/reference/commands/simulate.md lists all keys"),
        ("sidecar: 3\n", "scenario.yaml:1:1: sidecar: unknown key (did you mean sidecars?)"),
        (
            "outages:\n  - {at: 1s, lasts: 1s, failing: 60%}\n",
            "scenario.yaml:2:25: outages[0].failing: unknown key (did you mean share?)",
        ),
        ("outages: [{at: 1s, lasts: 1s, kinds: [200]}]\n", "scenario.yaml:1:39: outages[0].kinds[0]: "),
        ("compare: {x: {strategie: none}}\n", "scenario.yaml:1:15: compare.x.strategie: unknown key"),
        ("compare: {x: none}\n", "scenario.yaml:1:14: compare.x: must be a policy"),
        ("policy:\n  timeouts: {attempt: 5}\n", "scenario.yaml:2:23: policy.timeouts.attempt: "),
        ("policy: none\n", "scenario.yaml:1:9: policy: must be a mapping"),
        ("upstream: {overload: attempt_timeout}\n", "upstream.overload: must be a refusal"),
        ("calls: 100000/s\n", "scenario.yaml:1:8: calls: more than 5,000,000 calls"),
        ("request: {url: 'http://x.example:99999/'}\n", "request.url: redrive would refuse this"),
        ("- a\n", "scenario.yaml:1:1: a scenario is a mapping"),
        ("a: [\n", "scenario.yaml:"),
    ],
)
def test_mistakes_are_told_with_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, printed: str
) -> None:
    Path("scenario.yaml").write_text(text)
    assert main(["simulate", "--scenario", "scenario.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and printed in err and "Traceback" not in err
    assert all(line.startswith("scenario.yaml:") for line in err.splitlines()), err


def test_an_empty_file_is_told_and_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("scenario.yaml").write_text("# nothing yet\n")
    assert main(["simulate", "--scenario", "scenario.yaml", "--json"]) == 0
    assert "scenario.yaml:1:1: warning: the file is empty" in capsys.readouterr().err


def test_files_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--scenario", "nowhere.yaml"]) == 2
    Path("s.yaml").write_text("duration: 1s\n")
    assert main(["simulate", "-c", "nowhere.yaml", "--scenario", "s.yaml"]) == 2
    assert main(["simulate", "--scenario", "s.yaml", "--plot", "no/such/folder.svg"]) == 2
    figures, printed = capsys.readouterr()
    assert "no/such/folder.svg can't be written" in printed
    assert figures == ""  # nothing is played first, which may take minutes
    Path("folder").mkdir()
    assert main(["simulate", "--scenario", "s.yaml", "--plot", "folder"]) == 2
    assert "folder can't be written: is a directory" in capsys.readouterr().err
    assert main(["simulate", "--scenario", "s.yaml", "--plot", "/dev/full"]) == 2
    figures, printed = capsys.readouterr()
    assert "/dev/full can't be written: no space left on device" in printed
    assert "succeeded" in figures  # they are not lost with the picture
    assert main(["simulate", "--scenario", "s.yaml", "--plot", "p.png"]) == 0
    assert "p.png is an SVG" in capsys.readouterr().err


def test_json_table_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("redrive.yaml").write_text("defaults: {outage: fail, concurrency: off}\n")
    Path("s.yaml").write_text(OUTAGE_TEXT + "name: 'a <b> & c'\n")
    assert main(["simulate", "--scenario", "s.yaml", "--json", "--plot", "p.svg"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["sidecars"] == 2 and len(printed["columns"]) == 5
    listed = re.findall(r"^\| (`\w.*?) \|", PAGE.read_text().partition("## The figures")[2], re.MULTILINE)
    assert set(printed["columns"][0]) == {"name", *re.findall(r"`(\w+)`", " ".join(listed))}
    picture = ElementTree.parse("p.svg").getroot()
    assert picture.tag.endswith("svg") and len(picture.findall("{*}path[@fill='none']")) == 10
    assert main(["simulate", "--scenario", "s.yaml"]) == 0
    table = capsys.readouterr().out
    assert "amplification" not in table and "naive: 3 at once" in table
    assert "peak load over 5 s, multiple of calls" in table


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("times", [1, 3])
def test_the_table_has_whole_outcomes_and_figures_on_any_screen(tmp_path: Path, width: int, times: int) -> None:
    """Three times as many columns do not fit, so they stand in several tables."""
    found = scenario(tmp_path, OUTAGE_TEXT)
    written = io.StringIO()
    done = compared(found) * times
    print_table(found, done, Possible(100, 100, 0.0, 6.64, ()), Console(file=written, width=width, highlight=False))
    lines = written.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    calls = [figure for line in lines if line.split()[:1] == ["calls"] for figure in line.split()[1:]]
    assert calls == [f"{each.calls:,}" for each in done]
    for outcome in {outcome for each in done for outcome in each.outcomes} - {"success"}:
        assert any(line.split()[:1] == [outcome] for line in lines), (outcome, lines)
    assert any(line.split()[:1] == ["recovered"] for line in lines), lines


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_fine(example: Path) -> None:
    found, problems = read_scenario(str(example))
    assert found is not None and not problems
    assert example.stem in BAD_FROM_THE_START or all(outage.until < found.duration for outage in found.outages)
    done = compared(replace(found, duration=10.0, sidecars=3))
    assert example.stem in BAD_FROM_THE_START or all(each.success_rate > 0.9 for each in done)


def test_the_page_has_every_key_with_its_default() -> None:
    text = PAGE.read_text()
    for section, heading in (
        (SCENARIO, "## A scenario"),
        (UPSTREAM, "### The upstream"),
        (OUTAGE, "### Outages"),
        (REDIS, "### Redis"),
        (REDIS_OUTAGE, "#### Outages of Redis"),
    ):
        rows = re.search(r"(?:^\|.*\n)+", text.partition(f"{heading}\n")[2], re.MULTILINE)
        assert rows is not None
        cells = [[cell.strip(" `") for cell in row.split("|")[1:3]] for row in rows[0].splitlines()[2:]]
        wanted = [[name, "" if key.default is None else str(key.default)] for name, key in section.keys.items()]
        assert isinstance(section, Section) and cells == wanted


def test_the_scenario_of_the_page_is_fine(tmp_path: Path) -> None:
    for text in re.findall(r"^```scenario\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        scenario(tmp_path, text)


def test_calls_of_a_throttled_key_go_on_with_the_other() -> None:
    """Tokens a minute: two keys serve what one can't, and no more is asked of the upstream than there are calls."""
    scenario, problems = read_scenario(str(ROOT / "config/examples/scenarios/tokens_a_minute.yaml"))
    assert scenario is not None, problems
    two, one = (figures(scenario, play(scenario, column)) for column in columns(None, scenario, {})[0][:2])
    assert two.succeeded == two.calls
    assert one.succeeded < 0.7 * one.calls
    assert two.attempts < 1.05 * two.calls


REGION_AWAY = """\
duration: 60s
sidecars: 2
calls: 50/s
outages: [{at: 20s, lasts: 20s}]
policy: {outage: fail, concurrency: off, fallback: [west, elsewhere]}
others:
  west: {latency: 120ms, policy: {strategy: none}}
  elsewhere: {}
compare: {alone: {outage: fail, concurrency: off}}
"""


def test_another_upstream_takes_over_in_an_outage(tmp_path: Path) -> None:
    both, alone, none, naive = played(tmp_path, REGION_AWAY)
    assert both.success_rate == 1.0
    assert alone.success_rate < 0.7
    assert none.success_rate < 0.7  # which goes nowhere else
    assert naive.success_rate < 0.7
    assert both.requests == alone.requests  # of the first upstream, which it spares nothing and costs nothing
    assert both.attempts > alone.attempts


def test_an_upstream_of_which_nothing_is_said_takes_nothing_over(tmp_path: Path) -> None:
    config = "defaults: {outage: fail, concurrency: off}\n"
    config += "upstreams:\n  a: {url: http://a.test, fallback: [b]}\n  b: {url: http://b.test}\n"
    (tmp_path / "redrive.yaml").write_text(config)
    text = "duration: 20s\ncalls: 20/s\noutages: [{at: 5s, lasts: 10s}]\n"
    silent = run_scenario("redrive.yaml", scenario(tmp_path, text), {})[0]
    printed = run_scenario("redrive.yaml", scenario(tmp_path, f"{text}others: {{b: {{}}}}\n"), {})[0]
    assert silent.success_rate < 0.7 < printed.success_rate == 1.0
