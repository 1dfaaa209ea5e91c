"""`redrive explain`: which upstream, route, strategy and bucket a call gets, and what would happen next.

It is the router, the classifier, the pushback reader and the very `Call` that serve traffic which answer, on a
virtual clock; this package asks them and puts their answers into words (contract, section 2).
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from typing import Any

from proxy.config.load import find, load, taken
from proxy.config.problems import Problem
from proxy.config.settings import Settings
from proxy.lab.explain import layout, report
from proxy.lab.explain.choosing import connect_rows, connects, denied, how_chosen, notes
from proxy.lab.explain.question import Question, read_question, through_listener
from proxy.lab.routing import RefusedCall, choose
from proxy.retry.facts import Outcome

__all__ = ["explain", "lines", "read_question"]

_FINE, _BAD_INPUT = 0, 2


def explain(
    config: str | None,
    method: str,
    url: str,
    fields: Sequence[str] = (),
    *,
    status: str | None = None,
    fail: str | None = None,
    body: str = "",
    of_request: Sequence[str] = (),
    of_answer: Sequence[str] = (),
    http2: bool = False,
    json: bool = False,
    environ: Mapping[str, str] | None = None,
) -> int:
    """The verb. Exit status: 0 answered, 2 bad input or a configuration that is refused."""
    environ = os.environ if environ is None else environ
    try:
        question = read_question(
            *(method, url, fields),
            status=status,
            fail=fail,
            body=body,
            of_request=of_request,
            of_answer=of_answer,
            http2=http2,
        )
    except ValueError as error:
        print(f"redrive: {error}", file=sys.stderr)
        return _BAD_INPUT
    result = load(find(config, environ), environ)
    if result.settings is not None or config is None:  # errors begin with the file's name
        print(taken(config, environ), file=sys.stderr)
    if result.settings is None:
        for problem in result.errors:
            print(problem, file=sys.stderr)
        return _BAD_INPUT
    wall = time.time()  # noqa: TID251 - this drives a call: HTTP dates are read against the wall
    if json:
        print(dumps(explanation(result.settings, result.problems, question, wall), indent=2))
        return _FINE
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines(result.settings, result.problems, question, wall):
        for piece in layout.fit(line, width):
            print(piece)
    return _FINE


def lines(settings: Settings, problems: Sequence[Problem], question: Question, wall: float) -> Iterator[str]:
    """The explanation. `wall`: seconds since the epoch."""
    yield report.question_line(question)
    yield ""
    if question.connects:
        yield from connects(settings, question.ask.url)
        return
    ask = through_listener(settings, question.ask)
    chosen = choose(settings, ask)
    if isinstance(chosen, RefusedCall):
        yield f"  refused: {chosen.status}, outcome {chosen.outcome} ({chosen.why})"
        return
    yield from report.what_applies(settings, chosen, how_chosen(settings, chosen, ask), ask.spoken)
    for note in notes(settings, chosen, ask):
        yield f"  note: {note}"
    yield ""
    if why := denied(settings, chosen):
        yield f"  refused: 403, outcome {Outcome.DENIED} ({why})"
    elif question.fate is None:
        yield from report.by_what_comes_back(settings, chosen, wall)
    else:
        yield from report.every_attempt(settings, chosen, question.fate, wall)
    policy = chosen.policy
    if found := settings.provenance.of(policy.upstream, policy.route):
        yield ""
        yield from layout.origins(found)
    if worth := [problem for problem in problems if _concerns(problem, policy.upstream)]:
        yield ""
        yield from layout.advice(worth)


def explanation(settings: Settings, problems: Sequence[Problem], question: Question, wall: float) -> dict[str, Any]:
    """The same as data, made of the very rows of the text; times in seconds (docs/reference/explain.md has its shape).

    `wall`: seconds since the epoch.
    """
    told: dict[str, Any] = {"request": report.question_line(question), "refused": None, "applies": {}, "notes": []}
    told |= {"ends": [], "values": [], "warnings": []}
    if question.connects:
        told["applies"] = dict(connect_rows(settings, question.ask.url))
        return told
    ask = through_listener(settings, question.ask)
    chosen = choose(settings, ask)
    if isinstance(chosen, RefusedCall):
        told["refused"] = {"status": chosen.status, "outcome": chosen.outcome.value, "why": chosen.why}
        return told
    told["applies"] = dict(report.applies(settings, chosen, how_chosen(settings, chosen, ask), ask.spoken))
    told["notes"] = list(notes(settings, chosen, ask))
    if why := denied(settings, chosen):
        told["refused"] = {"status": 403, "outcome": Outcome.DENIED.value, "why": why}
    else:
        told["ends"] = report.ends_as_data(settings, chosen, question.fate, wall)
    policy = chosen.policy
    found = settings.provenance.of(policy.upstream, policy.route)
    told["values"] = [{"key": key, "value": value, "from": place} for key, value, place in layout.masked(found)]
    told["warnings"] = [str(problem) for problem in problems if _concerns(problem, policy.upstream)]
    return told


def _concerns(problem: Problem, upstream: str) -> bool:
    """Whether a warning is about this upstream, or about what all of them share. The figures of notes stand above."""
    if problem.severity != "warning":
        return False
    head, _, rest = problem.path.partition(".")
    return head != "upstreams" or rest == upstream or rest.startswith((f"{upstream}.", f"{upstream}["))
