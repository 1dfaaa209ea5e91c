"""The loader of a configuration file: it returns settings, or a list of everything that is wrong with the file.

A user's mistake never raises an exception, and no configuration is half loaded: there are settings only if there is no
error. The steps are: read the text, parse it to a tree with marks, replace ${NAME} and ${file:PATH}, check it against
the table of keys (schema.py), include other files, compile (compile.py), give advice.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy import __version__
from proxy.config.advice import advise
from proxy.config.compile import compile_tree
from proxy.config.problems import Mark, Problem, Problems, Stamp
from proxy.config.provenance import release_parts
from proxy.config.references import replace
from proxy.config.schema import EXTENSION, FILE, INCLUDED, VERSION
from proxy.config.schema_language import Section
from proxy.config.settings import Settings
from proxy.config.units import written
from proxy.config.yaml_tree import Map, Seq, Text, adopt, mistaken, parse, read_text

#: The files that are tried, in this order, if no file is named (contract, section 2).
DEFAULT_FILES = ("redrive.yaml", "config/redrive.yaml", "/etc/redrive/redrive.yaml")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of loading. `settings` is None if any problem is an error; warnings and notes do not refuse settings.
    `files`: the files that were read, or could not be read; `patterns`: the globs of included files; both absolute. A
    watcher watches both. `blank`: those of the configuration files that have no text at all; `stamps`: the stamps that
    regular files had before they were read.
    """

    settings: Settings | None
    problems: tuple[Problem, ...]
    files: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    blank: tuple[str, ...] = ()
    stamps: Mapping[str, Stamp] = field(default_factory=dict)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that are errors, for which the configuration is refused."""
        return tuple(problem for problem in self.problems if problem.severity == "error")


def load(
    path: str | None, environ: Mapping[str, str], edit: Edit | None = None, *, under: Map | None = None
) -> LoadResult:
    """Read, check and compile the file at `path`; None stands for the built-in defaults: which file a command uses was
    decided before, by `find`. `environ`: the environment variables, for ${NAME}. `edit` changes the tree of each file
    that is read, before its ${NAME} are replaced; `under` is a layer of policy under the file's own defaults.
    """
    problems = Problems()
    if path is None:
        tree = Map(Mark("the defaults", 1, 1))
        if edit is not None:
            edit(tree)
        read = _checked(tree, "the defaults", FILE, environ, problems) if tree else (Map(), {})
        return _finished(read, None, environ, problems, under=under)
    return _finished(_read(path, FILE, environ, problems, edit), path, environ, problems, edit, under)


def trees(path: str) -> list[Map]:
    """The trees of a file and of those that it includes, as they were written; files that can't be read are left
    out.
    """
    problems, found = Problems(), []
    main = _parsed(path, problems)
    if main is not None:
        found = [main, *(tree for file in _included(main, problems) if (tree := _parsed(file, problems)) is not None)]
    return found


def _parsed(file: str, problems: Problems) -> Map | None:
    text = read_text(file, problems)
    tree = None if text is None else parse(text, file, problems)
    return tree if isinstance(tree, Map) else None


def load_tree(tree: Any, file: str, environ: Mapping[str, str], *, under: Map | None = None) -> LoadResult:
    """Load a configuration that is part of another file, or Python data: `tree`, as mappings, lists and scalars.
    Relative paths start at the folder of `file`. `environ`: the environment variables, for ${NAME}. `under` is a layer
    of policy that applies where the configuration sets nothing, above the built-in defaults.
    """
    problems = Problems()
    read = _checked(adopt(tree, Mark(file, 1, 1)), file, FILE, environ, problems)
    return _finished(read, file, environ, problems, under=under)


def find(path: str | None, environ: Mapping[str, str]) -> str | None:
    """The file that a command uses: `path` (of the option `-c`) if it is given, else $REDRIVE_CONFIG in `environ`, else
    the first of DEFAULT_FILES that exists; None, for the built-in defaults, if there is none of these.
    """
    named = path or environ.get("REDRIVE_CONFIG")
    return named or next((file for file in DEFAULT_FILES if Path(file).exists()), None)


def taken(path: str | None, environ: Mapping[str, str]) -> str:
    """A line for people that says which configuration file a command uses: the one that `find` returns for the same
    arguments.
    """
    file = find(path, environ)
    if file is None:
        return f"redrive: configuration: the defaults (there is no {', no '.join(DEFAULT_FILES)})"
    named = "" if path or not environ.get("REDRIVE_CONFIG") else " (from $REDRIVE_CONFIG)"
    return f"redrive: configuration: {file}{named}"


#: A function that changes a file's tree in place.
Edit = Callable[[Map], None]
#: A file's tree, and the typed values of its keys.
_Read = tuple[Map, dict[str, Any]]


def _finished(
    read: _Read | None,
    file: str | None,
    environ: Mapping[str, str],
    problems: Problems,
    edit: Edit | None = None,
    under: Map | None = None,
) -> LoadResult:
    files = [] if file is None else [file]
    if read is None:
        return LoadResult(None, tuple(problems.sorted()), (*files, *problems.referred))
    tree, found = read
    for included in _included(tree, problems):
        files.append(included)
        other = _read(included, INCLUDED, environ, problems, edit)
        if other is not None:
            _take_over(tree, found, *other, problems)
    compiled = compile_tree(tree, found, file, files, environ, problems, under)
    if compiled is not None:
        advise(*compiled, tree, problems)
    release_parts(tree.sub("upstreams"))  # the settings contain merged copies
    settings = None if compiled is None or problems.fatal else compiled[0]
    patterns = (str((Path(mark.file).parent / pattern).absolute()) for pattern, mark in _patterns(tree))
    return LoadResult(
        settings,
        tuple(problems.sorted()),
        tuple(files),
        tuple(patterns),
        blank=tuple(problems.blank),
        stamps=problems.stamps,
    )


def _patterns(tree: Map) -> list[tuple[str, Mark]]:
    """The globs of `include`, each with its place."""
    patterns = tree.get("include")
    return list(zip(patterns, patterns.marks, strict=True)) if isinstance(patterns, Seq) else []


def _read(
    file: str, form: Section, environ: Mapping[str, str], problems: Problems, edit: Edit | None = None
) -> _Read | None:
    """Read a file, replace its ${NAME} references by values from `environ`, and check it by `form`. What is wrong is
    added to `problems`; None if the file cannot be read at all. `edit`, if given, changes the parsed file before its
    references are replaced.
    """
    problems.keep_stamp(file)
    text = read_text(file, problems)
    if text is None:
        return None
    if not text.strip():
        problems.blank.append(file)
    before = problems.fatal
    tree = parse(text, file, problems)
    if tree is None:
        if problems.fatal and not before:
            return None
        problems.warn(Mark(file, 1, 1), "", "is empty, or contains only comments")
    if isinstance(tree, Map):
        if other := mistaken(tree, "configuration"):
            problems.add(tree.mark, "", other)
            return None
        if edit is not None:
            edit(tree)
    return _checked(tree, file, form, environ, problems)


def _checked(tree: Any, file: str, form: Section, environ: Mapping[str, str], problems: Problems) -> _Read | None:
    if tree is None:
        tree = Map(Mark(file, 1, 1))
    if not isinstance(tree, Map):
        mark = tree.mark if isinstance(tree, Seq) else Mark(file, 1, 1)
        problems.add(mark, "", f"a configuration is a mapping of keys, not {written(tree)}")
        return None
    for name in [name for name in tree if name.startswith(EXTENSION)]:
        del tree[name]
    replace(tree, environ, problems)
    if form is FILE and not _is_readable(tree, problems):
        return None
    return tree, form.read(tree, tree.mark, (), problems.add)


def _is_readable(tree: Map, problems: Problems) -> bool:
    """Whether the file has the format of this version. For a file of a later format, no other error is reported,
    because the meaning of its keys is not known.
    """
    version = tree.get("version")
    if not isinstance(version, Text) or not re.fullmatch("[1-9][0-9]*", version) or version == VERSION:
        return True
    message = f"is the format of a later redrive, and this is redrive {__version__}, which reads version {VERSION}"
    problems.add(
        tree.values_at["version"], "version", f"{version.raw} {message}: upgrade it, or write version {VERSION}"
    )
    return False


def _included(tree: Map, problems: Problems) -> Iterator[str]:
    """The files that `include` names, in order, each once; not the file that includes them, if a glob finds it."""
    seen: set[str] = set()
    for number, (pattern, mark) in enumerate(_patterns(tree)):
        base = Path(mark.file).parent
        found = sorted(glob.glob(str(base / pattern), recursive=True))  # noqa: PTH207 - Path.glob takes no absolute ones
        if not found and glob.has_magic(pattern):
            problems.warn(mark, ("include", number), f"no file matches {pattern}")
        elif not found:
            problems.add(mark, ("include", number), f"there is no file {base / pattern}")
        itself = os.path.realpath(mark.file)
        for file in found:
            place = os.path.realpath(file)
            if place == itself and not glob.has_magic(pattern):
                problems.add(mark, ("include", number), "is the file that includes it: remove it")
            elif place not in (itself, *seen):
                seen.add(place)
                yield file


def _take_over(tree: Map, found: dict[str, Any], other: Map, other_found: dict[str, Any], problems: Problems) -> None:
    """Add the definitions of an included file (`other`) to those of the main one; report a name that both define, with
    both places. `found` and `other_found` are the typed values of both files.
    """
    for section, definitions in other.items():
        if not isinstance(tree.get(section), Map):
            tree.put(section, Map(other.mark), other.keys_at[section], other.values_at[section])
        ours: Map = tree[section]
        for name in definitions.keys_at.keys() - definitions.keys():  # refused, which was reported
            ours.keys_at.setdefault(name, definitions.keys_at[name])
        for name in definitions:
            if name in ours:
                first = ours.keys_at[name]
                message = f"is already defined, in {first.file}:{first.line}"
                problems.add(definitions.keys_at[name], (section, name), message)
            else:
                ours.take(name, definitions)
                found.setdefault(section, {})[name] = other_found[section][name]
