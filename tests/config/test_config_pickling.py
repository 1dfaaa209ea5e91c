"""Settings on their way to another process, and made while calls go on."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from configs import settings

from proxy.config.load import load
from proxy.config.provenance import Folded, fold, release_parts
from proxy.config.settings import pack, unpack
from proxy.config.watch import load_beside_calls
from proxy.retry.policies.policy import Policy

MANY = "".join(f"  u{n}: {{url: 'http://u{n}.test', timeouts: {{total: {n + 1}s}}}}\n" for n in range(500))
EXAMPLES = Path(__file__).parents[2] / "config" / "examples"

OWN = """
from proxy.retry import StandardRetryStrategy
made = []
class Own(StandardRetryStrategy):
    def __init__(self, attempts):
        if attempts == 13 and made:
            raise ValueError("unlucky")
        super().__init__(max_attempts=attempts)
        made.append(self)
"""


def parts(whole: Any) -> dict[str, Any]:
    return {field.name: getattr(whole, field.name) for field in fields(whole)}


def same_policy(one: Policy, other: Policy) -> None:
    assert {**parts(one), "strategy": None} == {**parts(other), "strategy": None}
    ours, theirs = parts(one.strategy), parts(other.strategy)
    assert (ours.pop("custom") is None) == (theirs.pop("custom") is None)
    ours.pop("remake"), theirs.pop("remake")
    assert ours == theirs


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_an_example_arrives_as_it_was(file: Path) -> None:
    found = load(str(file), {}).settings
    assert found is not None
    came = unpack(pack(found))
    apart = {"router": None, "provenance": None}
    assert {**parts(came), **apart} == {**parts(found), **apart}
    assert came.provenance.of_top() == found.provenance.of_top()
    for one, other in zip(
        (*found.router.upstreams, found.router.fallback), (*came.router.upstreams, came.router.fallback), strict=True
    ):
        assert (one.name, one.label, one.target, one.connect) == (other.name, other.label, other.target, other.connect)
        assert (one.prefix, one.hosts) == (other.prefix, other.hosts)
        assert [route.match for route in one.routes] == [route.match for route in other.routes]
        for ours, theirs in zip(one.policies, other.policies, strict=True):
            same_policy(ours, theirs)
    for upstream in found.router.upstreams:
        for host in upstream.hosts:
            ours_too = found.router.by_authority(str(host).replace("*", "x"), 443)
            theirs_too = came.router.by_authority(str(host).replace("*", "x"), 443)
            assert (ours_too and ours_too.name) == (theirs_too and theirs_too.name)


def test_what_was_one_thing_is_one_and_what_is_equal_becomes_one(tmp_path: Path) -> None:
    text = "upstreams:\n" + "".join(
        f"  u{n}:\n    url: http://u{n}.test\n    routes: [{{match: {{path: /x}}, timeouts: {{total: 7s}}}}]\n"
        for n in range(300)
    )
    found = settings(tmp_path, text)
    router = unpack(pack(found)).router
    policies = [policy for upstream in router.upstreams for policy in upstream.policies]
    assert len({id(policy) for policy in policies}) == 600
    assert {id(policy.classify) for policy in policies} == {id(router.fallback.policy.classify)}
    assert len({id(policy.timeouts) for policy in policies}) == 2
    assert router.by_name["u7"] is router.upstreams[7] is router.by_authority("u7.test", 80)
    assert {id(policy.target) for policy in router.upstreams[7].policies} == {id(router.upstreams[7].target)}


def test_a_users_strategy_is_made_anew_once(tmp_path: Path) -> None:
    (tmp_path / "own_packed.py").write_text(OWN)
    text = """
        strategies: {mine: {kind: "own_packed:Own", attempts: 4}}
        upstreams: {a: {url: http://a, strategy: mine}, b: {url: http://b, strategy: mine}}
    """
    found = settings(tmp_path, text)
    import own_packed

    came = unpack(pack(found))
    one, other = (upstream.policy.strategy for upstream in came.router.upstreams)
    assert own_packed.made == [found.router.upstreams[0].policy.strategy.custom, one.custom]
    assert one.custom is other.custom
    assert one.remake is not None


async def test_a_file_is_loaded_while_others_have_the_loop(tmp_path: Path) -> None:
    (tmp_path / "redrive.yaml").write_text("upstreams:\n" + MANY)
    turns, over = 0, False

    async def others() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    result = await asyncio.to_thread(load_beside_calls, str(tmp_path / "redrive.yaml"), {})
    over = True
    await beside
    assert turns > 3
    assert result.settings is not None
    assert len(result.settings.router.upstreams) == 500


def test_it_comes_to_the_same_beside_calls(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("upstreams: {more: {url: http://more.test}}\n")
    file = tmp_path / "redrive.yaml"
    file.write_text(
        f"include: [more.yaml]\nupstreams:\n{MANY}  twice: {{url: 'http://u7.test'}}\n"
        "defaults: {headers: {request: {set: {X-Key: '${KEY}'}}}}\n"
    )
    environ = {"KEY": "secret"}
    one, other = load(str(file), environ), load_beside_calls(str(file), environ)
    assert one.problems
    assert (one.problems, one.files, one.patterns) == (other.problems, other.files, other.patterns)
    assert one.settings is not None
    assert other.settings is not None
    assert isinstance(other.settings.provenance.policies, Folded)
    assert other.settings.provenance.of("u41") == one.settings.provenance.of("u41")
    assert other.settings.provenance.effective() == one.settings.provenance.effective()
    for made in (one, other):
        assert made.settings.router.by_name["more"].policy.request_headers.set == (("X-Key", "secret"),)  # type: ignore[union-attr]


def test_what_is_wrong_is_told_alike(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(f"upstreams:\n{MANY}  bad: {{url: 'http://bad.test', strategy: unheard_of}}\ndrain: 7\n")
    one = load(str(file), {})
    assert len(one.errors) == 2
    assert load_beside_calls(str(file), {}) == one


@pytest.mark.parametrize("parts", [list(range(100)), dict.fromkeys(range(100))])
def test_parts_are_let_go_until_none_is_left(parts: list[object] | dict[object, object]) -> None:
    release_parts(parts)
    assert not parts


def test_folded_trees_say_what_the_trees_do() -> None:
    found = load(str(EXAMPLES / "reference.yaml"), {"OPENAI_API_KEY": "x"}).settings
    assert found is not None
    trees = found.provenance.policies
    folded = Folded(fold(trees))
    assert list(folded) == list(trees)
    assert len(folded) == len(trees)
    for key, tree in folded.items():
        assert tree == trees[key]
        assert (tree.mark, tree.values_at, tree.keys_at) == (trees[key].mark, trees[key].values_at, trees[key].keys_at)
    assert folded.get(("nobody", "")) is None
    assert folded.get((next(iter(trees))[0], "no such route")) is None
