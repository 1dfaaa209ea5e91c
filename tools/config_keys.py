"""docs/reference/keys.md: every key of the configuration, out of the table that reads it (proxy/config/schema.py).

python tools/config_keys.py            print the page
python tools/config_keys.py --write    write it; a test keeps it current
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proxy.config.pack_schema import PACK
from proxy.config.schema import FILE
from proxy.config.schema_language import Either, Form, ListOf, MapOf, Section

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "keys.md"
HEAD = """\
# Every key

Made by `tools/config_keys.py` from the table that reads a file, and kept current by a test.
[Configuration](configuration.md) says how values are written and how layers are merged;
[reference.yaml](../../config/examples/reference.yaml) is a file with every key and its default. If no default is given,
the inherited value applies, or the kind's own ([strategies](strategies.md), [buckets](buckets.md)).
"""


def sections(form: Form) -> Iterator[Section]:
    """The sections that a form leads to, its own first."""
    if isinstance(form, Section):
        yield form
    elif isinstance(form, ListOf):
        yield from sections(form.item)
    elif isinstance(form, MapOf):
        yield from sections(form.value)
    elif isinstance(form, Either):
        for each in (form.word, form.list, form.mapping):
            if each is not None:
                yield from sections(each)


def every(root: Section) -> list[Section]:
    """All sections, each once, in the order in which a reader meets them."""
    found: dict[str, Section] = {}

    def walk(section: Section) -> None:
        if section.name in found:
            return
        found[section.name] = section
        for key in section.keys.values():
            for below in sections(key.form):
                walk(below)

    walk(root)
    return list(found.values())


def values(schema: Any) -> list[str]:
    """The words that a value may be, where they can be counted."""
    if not isinstance(schema, dict):
        return []
    if "enum" in schema:
        return [f"`{each}`" for each in schema["enum"] if isinstance(each, str)]
    return [word for each in schema.get("anyOf", ()) for word in values(each)]


def description(name: str, section: Section) -> str:
    """A key's meaning in a cell: its help, where more is said, and its words."""
    key = section.keys[name]
    parts = [key.doc.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")] if key.doc else []
    below = list(dict.fromkeys(each.name for each in sections(key.form)))
    parts += [f"[{each}](#{anchor(each)})" for each in below]
    words = list(dict.fromkeys(values(key.form.schema({}))))
    if words and not below:
        parts.append(" \\| ".join(words))
    if key.required:
        parts.append("required")
    return "; ".join(parts)


def anchor(name: str) -> str:
    """The place of a section on the page."""
    return name.lower().replace(" ", "-")


def default(value: Any) -> str:
    """As a user would spell it."""
    if value is None:
        return ""
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"


def page() -> str:
    """The whole page."""
    text = HEAD
    for section in (*every(FILE), *every(PACK)):
        if f"\n## {section.name}\n" in text:
            continue
        doc = section.doc.replace("*", "\\*")
        text += f"\n## {section.name}\n\n{doc}\n\n| key | default | |\n| --- | --- | --- |\n"
        text += "".join(
            f"| `{name}` | {default(key.default)} | {description(name, section)} |\n"
            for name, key in section.keys.items()
        )
    return text


def main() -> None:
    """The command line."""
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
