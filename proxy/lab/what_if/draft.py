"""The policy of one upstream as a user edits it: the part of the file that may be tried, and the check of the file with
the draft in its place.

A draft comes from a web page, so it must not get more out of the process than the file does by itself. Only the keys of
TRIED may be in it: addresses, credentials, headers and files stay as the file has them, and are not shown. A ${NAME} is
allowed only where the file has the very same one, a masked value only where the file has a secret, code and dialect
packs of the user's own only where the file names them. So a draft can read nothing, import nothing and reach nothing.
Its size is bounded before it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from proxy.config.classification import built_in_names
from proxy.config.load import LoadResult, load, trees
from proxy.config.problems import Mark, Path, Problem, Problems, dotted
from proxy.config.yaml_tree import Map, Seq, Text, parse
from proxy.observe import masking

#: The name of a draft in lines that report a mistake in it: `edit:3:5: …`.
NAME = "edit"
#: Characters and values of a draft at most: a policy has some dozens of values.
LONGEST, MOST_VALUES = 64 * 1024, 2000
#: The keys that may be tried. The others name places, files, secrets or header values.
TRIED = (
    "strategy", "bucket", "rate", "timeouts", "concurrency", "classify", "dialects", "attempt_headers",
    "idempotency_key", "pushback", "mode", "fallback", "scope", "circuit_breaker", "routes",
)  # fmt: skip
#: The same keys for a route, and what it matches.
_OF_ROUTE = (*(key for key in TRIED if key not in ("scope", "circuit_breaker", "routes")), "match")
#: Keys whose value may name code of the user's own, as `module:Class`.
_MAY_BE_CODE = frozenset({"strategy", "bucket", "rate"})


@dataclass(frozen=True, slots=True)
class Written:
    """An upstream's part of the configuration file. `locked` are its keys that a draft can't change."""

    upstream: str
    tree: Map
    mark: Mark

    @property
    def locked(self) -> list[str]:
        """The keys of the upstream that a draft can't change."""
        return [key for key in self.tree if key not in TRIED]

    def as_yaml(self) -> str:
        """The keys that a draft may change, as YAML, secrets masked."""
        return _dumped(_shown(self.tree, TRIED))


def find_written(file: str, upstream: str) -> Written | None:
    """The upstream's part of the configuration file, or of a file that it includes; None if none has the upstream."""
    for tree in trees(file):
        upstreams = tree.get("upstreams")
        if isinstance(upstreams, Map) and upstream in upstreams:
            part = upstreams[upstream]
            mark = upstreams.keys_at[upstream]
            return Written(upstream, part if isinstance(part, Map) else Map(mark), mark)
    return None


def _shown(tree: Map, keys: tuple[str, ...]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for key, value in tree.items():
        if key == "routes" and key in keys and isinstance(value, Seq):
            shown[key] = [_shown(each, _OF_ROUTE) if isinstance(each, Map) else each for each in value]
        elif key in keys:
            shown[key] = masking.config(value, key)
    return shown


def _dumped(data: dict[str, Any]) -> str:
    """Plain data (mappings, lists and scalars) as YAML that keeps each scalar as text: when it is read again, the key
    decides how its value is read.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.yaml_implicit_resolvers = {}
    Dumper.add_multi_representer(str, lambda dumper, text: dumper.represent_str(str(text)))
    Dumper.add_multi_representer(dict, lambda dumper, found: dumper.represent_dict(dict(found).items()))
    Dumper.add_multi_representer(list, lambda dumper, found: dumper.represent_list(list(found)))
    Dumper.add_representer(type(None), lambda dumper, _: dumper.represent_scalar("tag:yaml.org,2002:null", "null"))
    return yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110) if data else ""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking a draft. If there are no errors, `result` has settings, with only the upstream itself and
    those that its calls may go on to.
    """

    errors: list[str]
    warnings: list[str]
    result: LoadResult | None = None


def check(file: str, environ: Mapping[str, str], written: Written, text: str) -> Checked:
    """Check a draft (`text`, YAML) of the part `written` as `redrive check` would check the file with it. Nothing is
    written. `environ`: the environment variables, for ${NAME}.
    """
    problems = Problems()
    if len(text) > LONGEST:
        return Checked([f"{NAME}:1:1: longer than {LONGEST // 1024} KiB"], [])
    parsed = parse(text, NAME, problems)
    tree: Any = Map(Mark(NAME, 1, 1)) if parsed is None else parsed
    if not isinstance(tree, Map):
        problems.add(Mark(NAME, 1, 1), "", "a policy is a mapping of keys")
    elif sum(1 for _ in islice(_values(tree), MOST_VALUES + 1)) > MOST_VALUES:
        problems.add(tree.mark, "", f"more than {MOST_VALUES} values")
    merged = None if problems.fatal else _Merger(problems).merge(tree, written.tree, TRIED, ())
    if merged is None or problems.fatal:
        return Checked([str(each) for each in problems.sorted()], [])
    kept = _reachable(file, written.upstream, merged)

    def edit(whole: Map) -> None:
        upstreams = whole.get("upstreams")
        if not isinstance(upstreams, Map):
            return
        for name in [name for name in upstreams if name not in kept]:
            del upstreams[name]
        if written.upstream in upstreams:
            upstreams.put(written.upstream, merged, upstreams.keys_at[written.upstream], written.mark)

    result = load(file, environ, edit)
    inside = f"upstreams.{written.upstream}"
    return Checked(
        [_line(each, inside) for each in result.errors],
        [
            _line(each, inside)
            for each in result.problems
            if each.severity == "warning" and (each.file == NAME or each.path.startswith(f"{inside}."))
        ],
        result,
    )


def _line(problem: Problem, inside: str) -> str:
    """A problem as a line of text. If its place is in the draft, its path begins within the draft, without `inside`,
    the path of the upstream in the file.
    """
    line = str(problem)
    return line.replace(f"{inside}.", "", 1) if problem.file == NAME else line


def _values(tree: Any) -> Iterator[Any]:
    """Every value of a parsed YAML tree, mappings and lists included; a value that aliases refer to comes once for each
    place.
    """
    yield tree
    if isinstance(tree, Map):
        for value in tree.values():
            yield from _values(value)
    elif isinstance(tree, Seq):
        for value in tree:
            yield from _values(value)


def _reachable(file: str, upstream: str, merged: Map) -> set[str]:
    """The upstreams that calls of this upstream may go to: itself, and those that its fallbacks, or the file's
    defaults, lead to, directly or not.
    """
    parts: dict[str, Any] = {}
    shared: list[Any] = []
    for tree in trees(file):
        shared.append(tree.get("defaults"))
        found = tree.get("upstreams")
        if isinstance(found, Map):
            parts.update(found)
    parts[upstream] = merged
    kept: set[str] = set()
    todo = {upstream, *_named(shared, parts)}
    while todo:
        name = todo.pop()
        kept.add(name)
        todo |= _named(_fallbacks(parts[name]), parts) - kept
    return kept


def _fallbacks(tree: Any) -> list[Any]:
    """The fallbacks of an upstream and its routes, as written in `tree`, the upstream's part of the file."""
    if not isinstance(tree, Map):
        return []
    routes = tree.get("routes")
    of_routes = [each.get("fallback") for each in routes if isinstance(each, Map)] if isinstance(routes, Seq) else []
    return [tree.get("fallback"), *of_routes]


def _named(trees: list[Any], names: Mapping[str, Any]) -> set[str]:
    """The members of `names` that occur as a value anywhere in these parsed YAML trees."""
    return {value for tree in trees for value in _values(tree) if isinstance(value, str) and value in names}


def _inside(tree: Any, step: str | int) -> Any:
    """The value that a mapping has at the key `step`, or a list at that index; None if `tree` has none there."""
    if isinstance(tree, dict):
        return tree.get(step)
    return tree[step] if isinstance(tree, list) and isinstance(step, int) and step < len(tree) else None


class _Merger:
    """A merger that lays a draft over the file's values, and refuses what a draft may not contain."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def merge(self, draft: Map, under: Map, keys: tuple[str, ...], path: Path) -> Map:
        """Return a mapping with the draft's values for the keys that may be tried (`keys`), and the file's values
        (`under`) for all others. A draft's other keys are reported as problems.
        """
        merged = Map(draft.mark)
        for key in under:
            if key not in keys:
                merged.take(key, under)
        for key, value in draft.items():
            at = draft.keys_at[key]
            if key not in keys:
                if key in merged:
                    why = "cannot be tried here; it stays as the file has it"
                else:
                    why = f"cannot be tried here; what can is {', '.join(keys)}"
                self._problems.add(at, dotted((*path, key)), why)
            elif key == "routes" and isinstance(value, Seq):
                merged.put(key, self._routes(value, under.get(key), (*path, key)), at, draft.values_at[key])
            elif key == "dialects":
                merged.put(key, self._dialects(value, under.get(key), (*path, key)), at, draft.values_at[key])
            else:
                was = under.get(key)
                made = self._value(value, was, masking.config(was, key), draft.values_at[key], (*path, key))
                if key in _MAY_BE_CODE and made != under.get(key):
                    self._refuse_code(made, draft.values_at[key], (*path, key))
                merged.put(key, made, at, draft.values_at[key])
        return merged

    def _routes(self, draft: Seq, under: Any, path: Path) -> Seq:
        """The routes of the upstream with the draft's changes: each route of the draft, laid over the file's route with
        the same `match`, if there is one. `under`: the file's routes.
        """
        routes, written = Seq(draft.mark), [each for each in under or () if isinstance(each, Map)]
        for number, (route, mark) in enumerate(zip(draft, draft.marks, strict=True)):
            where = (*path, number)
            if isinstance(route, Map):
                match = route.get("match")
                same = next((each for each in written if _shown(each, ("match",)).get("match") == match), Map())
                routes.put(self.merge(route, same, _OF_ROUTE, where), mark)
            else:
                routes.put(self._value(route, None, None, mark, where), mark)
        return routes

    def _dialects(self, draft: Any, under: Any, path: Path) -> Any:
        """The dialect packs that the draft names. A pack of the user's own is a file, and may be named only if the file
        names it too (`under`: the packs that the file names).
        """
        if not isinstance(draft, Seq):
            return self._value(draft, under, under, Mark(NAME, 1, 1), path)
        dialects = Seq(draft.mark)
        for number, (name, mark) in enumerate(zip(draft, draft.marks, strict=True)):
            if isinstance(under, Seq) and name in under:
                place = under.index(name)
                dialects.put(under[place], under.marks[place])
            elif isinstance(name, Text) and name not in built_in_names() and name.endswith((".yaml", ".yml")):
                self._problems.add(
                    mark, dotted((*path, number)), "a pack that the file does not name cannot be tried here"
                )
            else:
                dialects.put(self._value(name, None, None, mark, (*path, number)), mark)
        return dialects

    def _value(self, draft: Any, under: Any, shown: Any, mark: Mark, path: Path) -> Any:
        """A value of the draft, with the file's secrets put in the place of their masks. `under` is the file's value,
        `shown` the same, masked.
        """
        if isinstance(draft, Map):
            made = Map(draft.mark)
            for key, value in draft.items():
                at, inner = draft.values_at[key], (_inside(under, key), _inside(shown, key))
                made.put(key, self._value(value, *inner, at, (*path, key)), draft.keys_at[key], at)
            return made
        if isinstance(draft, Seq):
            items = Seq(draft.mark)
            for number, (value, at) in enumerate(zip(draft, draft.marks, strict=True)):
                inner = _inside(under, number), _inside(shown, number)
                items.put(self._value(value, *inner, at, (*path, number)), at)
            return items
        if not isinstance(draft, str) or draft == under:
            return draft
        if masking.MASK in draft:
            if draft == shown:
                return under
            why = f"{masking.MASK} stands for a secret of the file, and the file has none here"
            self._problems.add(mark, dotted(path), why)
        elif "${" in draft:
            self._problems.add(mark, dotted(path), "a ${…} is allowed here only if the file has the same one")
        return draft

    def _refuse_code(self, value: Any, mark: Mark, path: Path) -> None:
        named = value.get("kind") if isinstance(value, Map) else value
        if isinstance(named, str) and ":" in named:
            why = "code of your own cannot be tried here; the file can define a strategy with it, to be named here"
            self._problems.add(mark, dotted(path), why)
