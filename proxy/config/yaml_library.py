"""PyYAML as far as reading a configuration needs it: libyaml's parser with its events and errors.

The package's own code imports its reader and writer in Python too, which are not used if it has libyaml.
"""

from __future__ import annotations

import sys
from typing import Any

from proxy.late_modules import late, late_package

#: The modules of PyYAML of which libyaml's parser and writer need nothing but the classes of errors.
_SELDOM = ("constructor", "emitter", "parser", "reader", "representer", "scanner", "serializer")


def parser(text: str) -> Any:
    """A parser of a text: libyaml's, which is ten times faster, if PyYAML has it."""
    import yaml

    try:
        from yaml._yaml import CParser
    except ImportError:
        return yaml.BaseLoader(text)
    return CParser(text)


def import_yaml() -> None:
    """Import PyYAML, unless that has been done: libyaml's parser with nothing else if there is one, else all of it."""
    if "yaml" in sys.modules:
        return
    try:
        with late(*(f"yaml.{name}" for name in _SELDOM)):
            late_package("yaml")
            import yaml._yaml
            import yaml.error
            import yaml.events

        package = sys.modules["yaml"]
        for module in (yaml.error, yaml.events):
            vars(package).update({name: value for name, value in vars(module).items() if not name.startswith("_")})
    except Exception:  # there is no libyaml, or a release of PyYAML is made in another way
        for name in [name for name in sys.modules if name.partition(".")[0] == "yaml"]:
            del sys.modules[name]
