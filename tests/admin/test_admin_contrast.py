"""The dashboard's colours: whatever stands in one can be read on what it stands on, in both themes (WCAG 2, AA)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STYLE = (Path(__file__).parents[2] / "proxy/admin/static/style.css").read_text()

#: What text stands on, by its colour; every colour of text may stand on the first four.
ANYWHERE = ("panel", "ground", "raised", "chosen")
GROUNDS = {
    "text": ("good-ground", "wait-ground", "bad-ground", "none-ground", "info-ground"),
    "quiet": ("none-ground",),
    "accent": ("info-ground",),
    "good": ("good-ground",),
    "wait": ("wait-ground",),
    "bad": ("bad-ground",),
}


def variables(selector: str) -> dict[str, str]:
    """The colours that a rule sets."""
    (block,) = re.findall(rf"(?m)^ *{re.escape(selector)} \{{(.*?)\}}", STYLE, re.DOTALL)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


LIGHT = variables(":root")
DARK = LIGHT | variables(':root[data-theme="dark"]')


def shade(colour: str) -> float:
    """Relative luminance."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((shade(one), shade(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_what_it_stands_on(theme: dict[str, str]) -> None:
    pairs = [(text, ground) for text, more in GROUNDS.items() for ground in (*ANYWHERE, *more)]
    pairs.append(("panel", "accent"))  # the main button of a panel
    low = {pair: round(ratio, 2) for pair in pairs if (ratio := contrast(*(theme[name] for name in pair))) < 4.5}
    assert low == {}


def test_every_colour_of_text_is_looked_at() -> None:
    used = set(re.findall(r"(?<![\w-])color: var\(--([\w-]+)\)", STYLE))
    assert used <= {*GROUNDS, "panel"}
    assert variables(':root:not([data-theme="light"])') == variables(':root[data-theme="dark"]')
