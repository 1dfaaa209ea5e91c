"""Packages that take long to import, for the tests that use them alone: every process of a run collects every test.

openai = Late("openai")  # imported where `openai.OpenAI` is first asked for
"""

from __future__ import annotations

import importlib
from typing import Any


class Late:
    """`name` is the module that stands behind this one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks every name of a module for its own
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
