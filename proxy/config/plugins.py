"""A user's own strategy, named as "module:Class" (contract, section 7): imported and made while a file is checked.

Whatever a user's module does while it is imported or called becomes one clear line, and never happens during a call.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.config.problems import Mark, did_you_mean
from proxy.config.units import guess
from proxy.config.yaml_tree import Map


def imported(kind: str, tree: Map, at: Mark) -> Any:
    """A user's own strategy, made; modules beside the file are found too. Raises ValueError with one line why not."""
    module_name, _, class_name = kind.partition(":")
    folder = str(Path(at.file).resolve().parent) if at.line else ""
    if folder and folder not in sys.path:
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        raise ValueError(f"cannot import {module_name}: {_told(error)}") from None
    made = getattr(module, class_name, None)
    if not callable(made):
        hint = did_you_mean(class_name, [name for name in vars(module) if not name.startswith("_")])
        raise ValueError(f"{module_name} has no class {class_name}{hint}")
    arguments = {key: guess(value) for key, value in tree.items() if key != "kind"}
    try:
        strategy = made(**arguments)
    except BaseException as error:
        raise ValueError(f"{kind} cannot be made: {_without(arguments, _told(error))}") from None
    wanted = ("acquire_initial_retry_token", "refresh_retry_token_for_retry", "record_success", "max_attempts")
    lacking = [name for name in wanted if not hasattr(strategy, name)]
    if lacking:
        raise ValueError(f"{kind} is no RetryStrategy: it has no {', '.join(lacking)}")
    if awaited := [name for name in wanted if inspect.iscoroutinefunction(getattr(strategy, name))]:
        plain = "its methods are plain functions, not async"
        raise ValueError(f"{kind} is no RetryStrategy: {plain}: {', '.join(awaited)}")
    return strategy


def _without(arguments: Any, text: str) -> str:
    """A text without what it repeats of the arguments, which may be secrets of any name."""
    if isinstance(arguments, Mapping):
        arguments = list(arguments.values())
    if isinstance(arguments, (list, tuple)):
        for each in arguments:
            text = _without(each, text)
        return text
    return text.replace(arguments, "…") if isinstance(arguments, str) and len(arguments) > 2 else text


def _told(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        raise error
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
