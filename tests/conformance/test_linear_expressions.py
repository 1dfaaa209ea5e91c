"""Every regular expression of the program, and what it costs to match: never more than in proportion to the text.

The expressions are found in the source, so that none is left out; those that are made at run time are listed here with
what they are made of. The work is counted in steps (`support.expressions`), never by a clock.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from fnmatch import translate
from pathlib import Path
from typing import Any

import pytest
from support.expressions import Matcher, growth

import proxy
from proxy import hidden_values
from proxy.config.policy_schema import IDEMPOTENCY_KEY, TIMEOUTS
from proxy.retry.answers import http_date, rules
from proxy.retry.policies import globs
from proxy.wire import field_names as names

ROOT = Path(proxy.__file__).parent

#: How an expression is run where it may begin anywhere in a text.
SEARCHES = frozenset({"search", "sub", "subn", "findall", "finditer", "split"})
FUNCTIONS = SEARCHES | {"compile", "match", "fullmatch"}
#: What a file says that has one of them: most have none, and need not be parsed.
USED = re.compile(rf"\bre\s*\.\s*(?:{'|'.join(sorted(FUNCTIONS))})\b")

#: Expressions that are made at run time, by the function that makes them: some, and whether they are searched for.
MADE: dict[str, tuple[list[re.Pattern[Any]], bool]] = {
    "proxy.config.schema_language._meant_by": (
        [re.compile(form) for form, _ in (*TIMEOUTS.short, *IDEMPOTENCY_KEY.short, ("https?://.*", "url"))],
        False,
    ),
    "proxy.retry.policies.globs.host_glob": ([globs.host_glob("*a*a*.*-*")], False),
    "proxy.hidden_values.secrets_of": (
        [hidden_values.secrets_of(["aa", "aab", "a0a"], whole_words=words) for words in (False, True)],
        True,
    ),
    "proxy.retry.policies.globs.path_glob": ([globs.path_glob("/**/a/*a*b/**/b"), globs.path_glob("**a*b**c*")], False),
    "proxy.retry.answers.rules._glob": ([re.compile(translate("*a*b?*[ab]*c"))], False),
    "proxy.retry.answers.rules._element": ([rules._element("Code")], True),
    "proxy.retry.answers.http_date": (list(http_date._FORMS), False),
    "proxy.retry.answers.rules.__init__": ([re.compile("|".join(map(translate, ("*a*b", "a*a*c", "*"))))], False),
    "proxy.retry.answers.stream_ends.__init__": ([re.compile(rb'"finish_reason"\s*:\s*(?!null\b|\s)')], True),
    "proxy.retry.policies.routing._prefixes": ([re.compile(rb"(?:/[^/?]*){3}")], False),
    "proxy.wire.field_names._specials": ([names.find_request.__self__, names.find_answer.__self__], True),
}


def expressions() -> Iterator[tuple[str, re.Pattern[Any] | None, bool]]:
    """Each use of `re` in the program: where it is, the expression (None where it is made at run time), and whether it
    may begin anywhere in a text.
    """
    for file in sorted(ROOT.rglob("*.py")):
        source = file.read_text()
        if not USED.search(source):
            continue
        parents = {child: node for node in ast.walk(ast.parse(source)) for child in ast.iter_child_nodes(node)}
        module = ".".join(file.relative_to(ROOT.parent).with_suffix("").parts)
        calls = [node for node in parents if isinstance(node, ast.Call) and is_of_re(node)]
        if calls:
            scope = vars(importlib.import_module(module))
            yield from (located(module, parents, call, scope) for call in calls)


def is_of_re(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    return function.value.id == "re" and function.attr in FUNCTIONS


def located(
    module: str, parents: dict[ast.AST, ast.AST], call: ast.Call, scope: dict[str, Any]
) -> tuple[str, Any, bool]:
    assert isinstance(call.func, ast.Attribute)
    name = call.func.attr
    around = [*outwards(call, parents)]
    if name == "compile":  # run as an attribute of the call says, or of the name that it is bound to
        targets = (target for node in around if isinstance(node, ast.Assign) for target in node.targets)
        bound = {target.id for target in targets if isinstance(target, ast.Name)}
        used = [node for node in parents if isinstance(node, ast.Attribute)]
        runs = {each.attr for each in used if each.value is call}
        runs |= {each.attr for each in used if isinstance(each.value, ast.Name) and each.value.id in bound}
    else:
        runs = {name}
    flags = call.args[1:2] if name == "compile" else call.args[2:3] if name not in ("sub", "subn") else []
    try:
        values = [eval(compile(ast.Expression(each), module, "eval"), scope) for each in (call.args[0], *flags)]
    except NameError:  # of what a function was given
        functions = [each for each in around if isinstance(each, ast.FunctionDef)]
        return ".".join([module, *(each.name for each in functions[:1])]), None, False
    return f"{module}:{call.lineno}", re.compile(*values), bool(runs & SEARCHES)


def outwards(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    """What a node is in, the innermost first."""
    while node in parents:
        node = parents[node]
        yield node


ALL = list(expressions())
WRITTEN = [(where, pattern, search) for where, pattern, search in ALL if pattern is not None]
GIVEN = [(where, pattern, search) for where, (patterns, search) in MADE.items() for pattern in patterns]


def test_every_expression_that_is_made_at_run_time_is_listed() -> None:
    assert {where for where, pattern, _ in ALL if pattern is None} == set(MADE)


@pytest.mark.parametrize(("where", "pattern", "search"), [*WRITTEN, *GIVEN])
def test_an_expression_costs_in_proportion_to_the_text(where: str, pattern: re.Pattern[Any], search: bool) -> None:
    worst, text = growth(pattern, search=search)
    assert worst < 2.6, f"{where}: a text like {text!r} costs {worst:.2f} times as much where it is twice as long"
    is_matched_as_re_does(where, pattern)


def is_matched_as_re_does(where: str, pattern: re.Pattern[Any]) -> None:
    """The matcher that counts finds what `re` finds."""
    matcher = Matcher(pattern)
    for prefix in matcher.prefixes():
        for more in ((), matcher.alphabet[:1], matcher.alphabet[:3], matcher.alphabet):
            text = (*prefix, *more)
            given = bytes(text) if isinstance(pattern.pattern, bytes) else "".join(map(chr, text))
            first = pattern.match(given)  # type: ignore[arg-type]
            assert matcher.run(text, search=False) == ([] if first is None else [(0, first.end())]), (where, given)


@pytest.mark.parametrize(
    ("expression", "search"),
    [
        (r"/.*/a/.*/b", False),  # what globs were once made into
        (r".*-.*-.*\.prod\.test\Z", False),
        (r"(a+)+b", False),
        (r"(?:[0-9]+s)+", True),
        (r'"(?:[^"\\]|\\.)*"', True),
        (r"[^/\s]*@", True),
    ],
)
def test_one_that_costs_more_is_found(expression: str, search: bool) -> None:
    assert growth(re.compile(expression), search=search)[0] > 3
