"""What the environment puts into a configuration: ${NAME} in string values, and the AWS SDKs' two variables.

Replaced after parsing, so that no value can bring structure with it; a message shows the ${NAME}, never what it
stood for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from proxy.config.problems import Mark, Path, Problems, did_you_mean
from proxy.config.yaml_tree import Map, Seq, Text

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
AWS_MODES = ("legacy", "standard", "adaptive")


def replace(tree: Any, environ: Mapping[str, str], problems: Problems) -> Any:
    """The tree with every ${NAME} and ${NAME:-default} replaced, in place. `$${` is a `${` that stays."""
    return _Replacing(environ, problems).value(tree, tree.mark if isinstance(tree, Map | Seq) else Mark("", 1, 1), ())


class _Replacing:
    def __init__(self, environ: Mapping[str, str], problems: Problems) -> None:
        self._environ = environ
        self._problems = problems
        self._seen: set[int] = set()

    def value(self, tree: Any, mark: Mark, path: Path) -> Any:
        if isinstance(tree, Text):
            return self._text(tree, mark, path) if "${" in tree else tree
        if isinstance(tree, Map | Seq):
            if id(tree) in self._seen:  # an alias: done already
                return tree
            self._seen.add(id(tree))
        if isinstance(tree, Map):
            for key, item in list(tree.items()):
                value = self.value(item, tree.values_at[key], (*path, key))
                if value is None and item is not None:
                    del tree[key]  # told: nobody is to ask for it again
                else:
                    tree[key] = value
        elif isinstance(tree, Seq):
            kept = Seq(tree.mark)
            for number, (item, at) in enumerate(zip(tree, tree.marks, strict=True)):
                value = self.value(item, at, (*path, number))
                if value is not None or item is None:
                    kept.put(value, at)
            tree[:], tree.marks = kept, kept.marks
        return tree

    def _text(self, text: Text, mark: Mark, path: Path) -> Text | None:
        """The text replaced; nothing at all where that cannot be done, so that it is told once."""
        fine = True

        def found(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            nonlocal fine
            name = _NAME.fullmatch(match[1])
            if name is None or not match[2]:
                message = f"{match[0]!r} is no reference; write ${{NAME}} or ${{NAME:-default}} ($${{ for a plain ${{)"
                self._problems.add(mark, path, message)
                fine = False
                return ""
            value = self._environ.get(name[1], "")
            if value or (name[1] in self._environ and name[2] is None):
                return value
            if name[2] is not None:
                return name[2]
            hint = did_you_mean(name[1], self._environ)
            self._problems.add(mark, path, f"the environment has no {name[1]}, and there is no default{hint}")
            fine = False
            return ""

        replaced = _REFERENCE.sub(found, text)
        return Text.make(replaced, plain=text.plain, raw=text.raw) if fine else None


def aws_layers(environ: Mapping[str, str], problems: Problems) -> list[Map]:
    """What AWS_RETRY_MODE and AWS_MAX_ATTEMPTS say of a policy: a strategy's name, and what is laid over it."""
    layers: list[Map] = []
    mode, attempts = environ.get("AWS_RETRY_MODE", "").strip(), environ.get("AWS_MAX_ATTEMPTS", "").strip()
    if mode.lower() in AWS_MODES:
        layers.append(Map.of({"strategy": mode.lower()}, Mark("AWS_RETRY_MODE")))
    elif mode:
        message = f"{mode!r} must be one of {', '.join(AWS_MODES)}{did_you_mean(mode, AWS_MODES)}"
        problems.add(Mark("environment"), "AWS_RETRY_MODE", message)
    if re.fullmatch(r"[1-9][0-9]{0,8}", attempts):
        layers.append(Map.of({"strategy": {"max_attempts": int(attempts)}}, Mark("AWS_MAX_ATTEMPTS")))
    elif attempts:
        problems.add(Mark("environment"), "AWS_MAX_ATTEMPTS", f"{attempts!r} must be a whole number of 1 or more")
    return layers
