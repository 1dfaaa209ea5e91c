"""Settings on their way to another process, piece by piece."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from configs import settings

from proxy.config.gradual import Taking, let_go
from proxy.config.load import load
from proxy.config.packed import Unpacking, pack, records_of
from proxy.config.provenance import Folded, fold
from proxy.config.settings import Settings
from proxy.retry.policy import Policy

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


def unpacked(found: Settings) -> Settings:
    unpacking = Unpacking()
    for chunk in pack(found):
        for _, record in records_of(chunk):
            unpacking.take(record)
    assert isinstance(unpacking.taken, Settings)
    return unpacking.taken


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
    came = unpacked(found)
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
    assert len(list(pack(found))) > 1
    router = unpacked(found).router
    policies = [policy for upstream in router.upstreams for policy in upstream.policies]
    assert len({id(policy) for policy in policies}) == 600
    assert {id(policy.classify) for policy in policies} == {id(router.fallback.policy.classify)}
    assert len({id(policy.timeouts) for policy in policies}) == 2
    assert len({id(route.match) for upstream in router.upstreams for route in upstream.routes}) == 1
    assert router.by_name["u7"] is router.upstreams[7] is router.by_authority("u7.test", 80)
    assert {id(policy.target) for policy in router.upstreams[7].policies} == {id(router.upstreams[7].target)}


def test_a_users_strategy_is_made_anew_once_in_a_record_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "own_packed.py").write_text(OWN)
    text = """
        strategies: {mine: {kind: "own_packed:Own", attempts: 4}}
        upstreams: {a: {url: http://a, strategy: mine}, b: {url: http://b, strategy: mine}}
    """
    found = settings(tmp_path, text)
    import own_packed

    came = unpacked(found)
    one, other = (upstream.policy.strategy for upstream in came.router.upstreams)
    assert own_packed.made == [found.router.upstreams[0].policy.strategy.custom, one.custom]
    assert one.custom is other.custom
    assert one.remake is not None
    assert [users for chunk in pack(found) for users, _ in records_of(chunk)].count(True) == 1


async def test_settings_are_taken_while_others_have_the_loop(tmp_path: Path) -> None:
    lines = "".join(f"  u{n}: {{url: 'http://u{n}.test'}}\n" for n in range(500))
    taking, turns, over = Taking(), 0, False

    async def others() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    for chunk in pack(settings(tmp_path, "upstreams:\n" + lines)):
        await taking.take(chunk)
    over = True
    await beside
    assert turns > 3
    assert len(taking.taken.router.upstreams) == 500


async def test_parts_are_let_go_until_none_is_left() -> None:
    parts: list[object] = [object() for _ in range(100)]
    await let_go(parts)
    assert parts == []


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
