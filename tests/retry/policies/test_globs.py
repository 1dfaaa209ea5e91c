"""Globs of paths and hosts: what they match, held against a matcher that tries everything, and what that costs."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.expressions import growth

from proxy.retry.policies.globs import host_glob, matches_path, path_glob

PIECES = st.lists(st.sampled_from(["a", "b", ".", "/", "/", "*", "**"]), max_size=9).map("".join)
PATHS = st.text("aab./", max_size=12)


def naive(glob: str, text: str, *, segments: bool) -> bool:
    """Whether the glob matches, by trying every length of every run."""

    @cache
    def matches(at: int, here: int) -> bool:
        if segments and glob.startswith("**", at):
            return any(matches(at + 2, there) for there in range(here, len(text) + 1))
        if glob.startswith("*", at):
            ends = range(here, len(text) + 1)
            return any(matches(at + 1, there) for there in ends if not (segments and "/" in text[here:there]))
        if at == len(glob):
            return here == len(text)
        return text.startswith(glob[at], here) and matches(at + 1, here + 1)

    return matches(0, 0)


@given(PIECES, PATHS)
def test_a_path_glob_matches_as_if_everything_were_tried(glob: str, path: str) -> None:
    assert (path_glob(glob).fullmatch(path) is not None) is naive(glob, path, segments=True)
    assert matches_path(glob, path) is naive(glob, path, segments=True)


@given(PIECES, st.data())
def test_a_path_glob_matches_what_was_made_of_it(glob: str, data: st.DataObject) -> None:
    across, within = st.text("ab./", max_size=4), st.text("ab.", max_size=3)
    parts = [[data.draw(within).join(["", piece]) for piece in part.split("*")] for part in glob.split("**")]
    starless = ["".join(pieces)[0 if index else len(pieces[0]) :] for index, pieces in enumerate(parts)]
    path = data.draw(across).join(starless) if len(parts) > 1 else starless[0]
    assert (path_glob(glob).fullmatch(path) is not None) is naive(glob, path, segments=True)
    assert matches_path(glob, path) is naive(glob, path, segments=True)


@given(st.text("ab.*", max_size=8), st.text("ab./\n", max_size=12))
def test_a_host_glob_matches_as_if_everything_were_tried(glob: str, host: str) -> None:
    assert (host_glob(glob).fullmatch(host) is not None) is naive(glob, host, segments=False)


@pytest.mark.parametrize(
    "glob", ["/**/a/**/b", "**a*b**c", "*a*a*a", "/*/a/*/**", "/a/**/b*c/d/**/e", "/**/a/b/a/b/**/*a", "**/*/**/*/**"]
)
def test_a_path_glob_costs_in_proportion_to_the_path(glob: str) -> None:
    assert growth(path_glob(glob), search=False)[0] < 2.5


@pytest.mark.parametrize("glob", ["*-*-*.prod.test", "*a*a*a*a", "a*b*", "*.*.*"])
def test_a_host_glob_costs_in_proportion_to_the_host(glob: str) -> None:
    assert growth(host_glob(glob), search=False)[0] < 2.5
