"""`redrive explain`: which upstream, route, strategy and bucket a call gets, and what would happen next.

The router, the classifier, the pushback reader and the `Call` that serve traffic give the answer, on a virtual clock;
this package asks them and puts their answers into words (contract, section 2).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.config.load import find, load, taken
from proxy.config.problems import Problem
from proxy.config.settings import Settings
from proxy.hidden_values import shown, shown_data
from proxy.lab.explain import layout
from proxy.lab.explain.applying import applies, connect_rows, denied, notes
from proxy.lab.explain.ends import End, usual_fates
from proxy.lab.explain.question import Fate, Question, read_question, through_listener
from proxy.lab.routing import AppRequest, Chosen, RefusedCall, choose
from proxy.observe import masking
from proxy.retry.facts import Outcome

__all__ = ["explain"]

#: The place of a value that no file has set.
DEFAULT = "default"
#: The most ends that are named beside what helps against them.
_LABELS = 4


def explain(
    config: str | None,
    *asked: Any,
    as_json: bool = False,
    every_value: bool = True,
    environ: Mapping[str, str] | None = None,
    now: Callable[[str], list[str]] | None = None,
    **more: Any,
) -> int:
    """Run the verb `redrive explain`. `config`: the option `-c`, None if it is not given; `asked` and `more`: the
    arguments of `read_question`; `as_json`: print JSON, not text; `every_value`: the text also lists values that are
    defaults; `environ`: the environment variables, None for those of this process; `now` returns, for an upstream's
    name, lines that say what holds calls in a redrive that runs. Exit status: 0 if the question was answered, 2 for bad
    input or a refused configuration.
    """
    environ = os.environ if environ is None else environ
    try:
        question = read_question(*asked, **more)
    except ValueError as error:
        print(f"redrive: {error}", file=sys.stderr)
        return 2
    result = load(find(config, environ), environ)
    if result.settings is not None or config is None:  # errors begin with the file's name
        print(taken(config, environ), file=sys.stderr)
    if result.settings is None:
        for problem in result.errors:
            print(problem, file=sys.stderr)
        return 2
    wall = time.time()  # noqa: TID251 - this drives a call: HTTP dates are read against the wall
    answer = explanation(result.settings, result.problems, question, wall)
    if now is not None and answer.upstream:
        answer.now = now(answer.upstream)
    hidden = result.settings.hidden
    if as_json:
        print(json.dumps(shown_data(answer.as_data(), hidden), indent=2))
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in answer.as_lines(every_value=every_value, width=width):
        for piece in layout.fit(shown(line, hidden), width):
            print(piece)
    return 0


@dataclass(slots=True)
class Explanation:
    """The explanation of one request, as text or as data (docs/reference/commands/explain.md has its shape). `refused`
    is status, outcome and reason if no policy takes the request; `applies` are rows of a name and a text; `values` are
    key, value and place of the policy's settings; `usual`: the question names no answer or fault, and several usual
    ones are explained. `upstream`: the name of the upstream that takes the request, "" for none; `now`: what holds its
    calls in a redrive that runs, None if none was asked.
    """

    request: str
    refused: tuple[int, Outcome, str] | None = None
    applies: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    ends: Sequence[End] = ()
    usual: bool = False
    values: Sequence[tuple[str, str, str]] = ()
    warnings: Sequence[str] = ()
    upstream: str = ""
    now: Sequence[str] | None = None

    def as_data(self) -> dict[str, Any]:
        """The explanation for JSON; times in seconds."""
        return {
            "request": self.request,
            "refused": self.refused and dict(zip(("status", "outcome", "why"), self.refused, strict=True)),
            "applies": dict(self.applies),
            "notes": self.notes,
            "ends": [end.as_data() for end in self.ends],
            "values": [dict(zip(("key", "value", "from"), row, strict=True)) for row in self.values],
            "warnings": self.warnings,
            "now": self.now,
        }

    def as_lines(self, *, every_value: bool = True, width: int | None = None) -> Iterator[str]:
        """The lines for people; the printer breaks those that are too long for a terminal. `every_value`: list values
        that are defaults too; `width`: the terminal's columns, None for any number.
        """
        yield self.request
        yield ""
        if self.applies and self.applies[0][0] == "refused":
            yield f"  refused: {self.applies[0][1]}"
        elif self.applies:
            yield from layout.columns(self.applies)
        yield from (f"  note: {note}" for note in self.notes)
        if self.now is not None:
            yield from ("", "What holds a call now:", "", *(f"  {said}" for said in self.now))
        if self.applies and (self.refused or self.ends):
            yield ""
        if self.refused:
            status, outcome, why = self.refused
            yield f"  refused: {status}, outcome {outcome} ({why})"
        elif self.usual:
            yield from ("If every attempt ends with …", "")
            yield from layout.ends_table([end.as_row() for end in self.ends], width)
            yield from self._remedies()
        for end in () if self.usual else self.ends:
            yield from end.as_lines()
        values = [row for row in self.values if every_value or row[2] != DEFAULT]
        if values:
            yield from ("", "Where each value comes from:", "")
            yield from layout.origins(values)
        if len(values) < len(self.values):
            rest = len(self.values) - len(values)
            yield from ("", f"{'All' if not values else 'The other'} {rest} values are the defaults: --all lists them.")
        if self.warnings:
            yield from ("", "Worth knowing:", "")
            yield from (f"  {warning}" for warning in self.warnings)

    def _remedies(self) -> Iterator[str]:
        """The lines that say what a user can change so that a call ends better, with the answers and faults for which
        that helps.
        """
        found: dict[str, list[str]] = {}
        for end in self.ends:
            if end.remedy:
                found.setdefault(end.remedy, []).append(end.label)
        if found:
            yield from ("", "What helps:", "")
        for remedy, labels in found.items():
            named = [*labels[:_LABELS], *([f"and {len(labels) - _LABELS} more"] if len(labels) > _LABELS else [])]
            yield f"  {', '.join(named)}: {remedy}"


def explanation(settings: Settings, problems: Sequence[Problem], question: Question, wall: float) -> Explanation:
    """Explain what redrive would do with the request that a question describes, and why. `problems`: those of the
    configuration, some of which concern the answer; `wall`: seconds since the epoch.
    """
    ask = question.ask
    explained = Explanation(f"{ask.method} {masking.target(ask.url)}")
    if ask.method == "CONNECT":
        explained.applies = connect_rows(settings, ask.url)
        return explained
    ask = through_listener(settings, ask)
    fates = None if question.fate is None else [question.fate]
    found = explain_chosen(settings, problems, ask, choose(settings, ask), fates, wall)
    found.request = explained.request
    return found


def explain_chosen(
    settings: Settings,
    problems: Sequence[Problem],
    ask: AppRequest,
    chosen: Chosen | RefusedCall,
    fates: Sequence[Fate] | None,
    wall: float,
) -> Explanation:
    """The explanation of the request `ask`. `problems`: the warnings about the configuration; `chosen`: the policy that
    takes the request, or the request's refusal; `fates`: the answers and faults in which its sendings may end, each
    explained separately; None stands for the usual ones. `wall`: seconds since the epoch.
    """
    explained = Explanation(f"{ask.method} {masking.target(ask.url)}")
    if isinstance(chosen, RefusedCall):
        explained.refused = chosen.status, chosen.outcome, chosen.why
        return explained
    policy = chosen.policy
    explained.applies = applies(settings, chosen, ask)
    explained.notes = notes(settings, chosen, ask)
    if why := denied(settings, chosen):
        explained.refused = 403, Outcome.DENIED, why
    else:
        explained.usual = fates is None
        explained.ends = [
            End(settings, chosen, fate, wall) for fate in (usual_fates(chosen) if fates is None else fates)
        ]
    explained.values = layout.masked(settings.provenance.of(policy.upstream, policy.route))
    explained.upstream = policy.upstream
    explained.warnings = [str(problem) for problem in problems if _concerns(problem, policy.upstream)]
    return explained


def _concerns(problem: Problem, upstream: str) -> bool:
    """Whether a warning is about this upstream, or about something that all upstreams share. Notes are left out: their
    figures are in the explanation.
    """
    if problem.severity != "warning":
        return False
    head, _, rest = problem.path.partition(".")
    return head != "upstreams" or rest == upstream or rest.startswith((f"{upstream}.", f"{upstream}["))
