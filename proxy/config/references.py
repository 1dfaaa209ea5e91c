"""The references in values: ${NAME} and ${NAME:-default} stand for the environment's value, ${file:PATH} for a file's
content.

References are replaced after parsing, so that a value can't add keys or lists, and once: what came from outside is not
looked into again. No message shows what came from outside, but the reference (`Text.raw`); what came from a file is
taken out of every message of the load, too (`Problems.hide`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.config.problems import Mark, Problems, did_you_mean
from proxy.config.problems import Path as KeyPath
from proxy.config.value_files import read_value_file
from proxy.config.yaml_tree import Map, Seq, Text
from proxy.hidden_values import spellings

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_FILE = "file:"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


#: The keys of an upstream whose values logs, metrics, `explain` and the admin port show. A file's content in them is
#: hidden there (`proxy.hidden_values`).
_SHOWN_OF_UPSTREAMS = frozenset({"url", "hosts", "prefix", "services", "scope"})
#: The beginnings of other paths of such values.
_SHOWN = (("defaults", "scope"), ("apps", "by"))
#: The warning for a content that is too short to be hidden there.
_TOO_SHORT = "{reference} is too short to be hidden: pages and logs show this value as it is"
#: The message for a credential with a wrong reference, which is not repeated because it may be a secret.
_UNREPEATED = (
    "contains a ${ that does not begin a reference; write ${NAME}, ${NAME:-default} or "
    "${file:PATH} ($${ for a plain ${)"
)


def replace(tree: Map, environ: Mapping[str, str], problems: Problems) -> None:
    """Replace every ${NAME} and ${NAME:-default} (by the value in `environ`, the environment variables) and every
    ${file:PATH} of a tree, in place. `$${` stands for a plain `${`.
    """
    seen: set[int] = set()

    def value(tree: Any, mark: Mark, path: KeyPath) -> Any:
        """Return the value `tree` with its references replaced. If a reference can't be replaced, report that and
        return None, so that no check of the value reports it again.
        """
        if isinstance(tree, Text) and "${" in tree:
            replaced, wrong = _replaced(tree, environ, mark, path, problems)
            if wrong and "credentials" in path and "values" in path:
                wrong = [_UNREPEATED if "is not a reference" in each else each for each in wrong]
            for message in wrong:
                problems.add(mark, path, message)
            return None if wrong else replaced
        if not isinstance(tree, Map | Seq) or id(tree) in seen:  # an alias of a value that was replaced already
            return tree
        seen.add(id(tree))
        if isinstance(tree, Map):
            for key, item in list(tree.items()):
                tree[key] = value(item, tree.values_at[key], (*path, key))
                if tree[key] is None and item is not None:
                    del tree[key]  # an error, which was reported
        else:
            kept = Seq(tree.mark)
            for number, (item, at) in enumerate(zip(tree, tree.marks, strict=True)):
                found = value(item, at, (*path, number))
                if found is not None or item is None:
                    kept.put(found, at)
            if tree and not kept:  # all items were reported: the list must not be reported as empty too
                return None
            tree[:], tree.marks = kept, kept.marks
        return tree

    value(tree, tree.mark, ())


def _is_shown(path: KeyPath) -> bool:
    """Whether the value at `path` is shown where redrive says what it does: addresses, paths of requests, and names of
    request fields that calls are told apart by.
    """
    if "routes" in path[1:3] and "match" in path and "path" in path:
        return True
    if path[0] == "upstreams":
        return len(path) < 3 or path[2] in _SHOWN_OF_UPSTREAMS
    return path[0] in ("listen", "probe") or path in (("admin",), ("admin", "listen")) or path[:2] in _SHOWN


def _replaced(
    text: Text, environ: Mapping[str, str], mark: Mark, path: KeyPath, problems: Problems
) -> tuple[Text, list[str]]:
    """The text with each reference replaced by its value, or by nothing if it has none, and a message for each that has
    none. `environ`: the environment variables; `mark` and `path`: where the text stands; `problems`: is given the
    files that references name, and what they contain if it has to be hidden.
    """
    wrong: list[str] = []

    def found(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        if match[1].startswith(_FILE) and match[2]:
            try:
                content = _content(match[1].removeprefix(_FILE), match[0], mark, problems)
            except ValueError as why:
                wrong.append(str(why))
                return ""
            if _is_shown(path):
                _hide(content, match, mark, path, problems)
            return content
        name = _NAME.fullmatch(match[1])
        if name is None or not match[2]:
            wrong.append(
                f"{match[0]!r} is not a reference; write ${{NAME}}, ${{NAME:-default}} or ${{file:PATH}} "
                "($${ for a plain ${)"
            )
            return ""
        value = environ.get(name[1], "")
        if value or (name[1] in environ and name[2] is None):
            return value
        if name[2] is None:
            hint = did_you_mean(name[1], environ)
            wrong.append(f"the environment has no {name[1]}, and there is no default{hint}")
        return name[2] or ""

    return Text.make(_REFERENCE.sub(found, text), plain=text.plain, raw=text.raw), wrong


def _hide(content: str, reference: re.Match[str], mark: Mark, path: KeyPath, problems: Problems) -> None:
    """Have a file's content hidden wherever the value is shown. `reference`: the reference's match in the value;
    `mark` and `path`: where the value stands.
    """
    before = _REFERENCE.sub("", reference.string[: reference.start()])
    found = [*spellings(content, has_place="/" not in before.rpartition("://")[2])]
    for each in found:
        problems.hide(each, reference[0], mark)
        problems.hide_where_shown(each, reference[0])
    if not found:
        problems.warn(mark, path, _TOO_SHORT.format(reference=reference[0]))


def _content(name: str, reference: str, mark: Mark, problems: Problems) -> str:
    """The content of the file `name`, without one line break (LF or CRLF) at its end. `reference`, the text that names
    the file, replaces the content in all messages. The path is relative to the file that has `mark`. Raises ValueError,
    whose text does not repeat the content, if there is no such file, or its content can't be used.
    """
    if not name:
        raise ValueError(f"{reference} names no file: write ${{file:/run/secrets/NAME}}")
    file = str((Path(mark.file).parent if mark.line else Path()) / name)
    problems.refer(str(Path(file).absolute()))
    try:
        text = read_value_file(file).decode()
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not UTF-8") from None
    text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    if not text:
        raise ValueError(f"{file} is empty: write the value into it, and nothing else")
    if _CONTROL.search(text):
        raise ValueError(f"{file} has a line break or another control character inside: one value, and nothing else")
    problems.hide(text, reference, mark)
    return text
