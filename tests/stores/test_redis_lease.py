"""Tokens out on lease, without Redis: what is reported, and what becomes of what happens meanwhile."""

from __future__ import annotations

import pytest

pytest.importorskip("redis")

from proxy.stores.redis.lease import Burn, Lease


def leased(tokens: float, *, at: float = 0.0) -> Lease:
    lease = Lease(8.0)
    lease.send(0.0, at)
    lease.confirmed(tokens)
    return lease


def test_what_is_spent_is_reported_and_what_is_left_is_kept() -> None:
    lease = leased(20)
    lease.spend(5)
    assert lease.send(20, 1.0) == (5, 0, 15)
    lease.spend(5)  # while the report is on its way
    lease.confirmed(25)  # 15 kept and 10 more
    assert (lease.left, lease.spent, lease.spent_reported) == (20, 10, 5)


def test_what_comes_back_before_it_was_told_goes_into_the_lease() -> None:
    lease = leased(20)
    lease.spend(10)
    assert lease.put_back(4) == 0
    assert lease.put_back(10) == 4
    assert (lease.left, lease.spent) == (20, 0)


def test_what_comes_back_while_its_spending_is_told_is_earned() -> None:
    lease = leased(20)
    lease.spend(10)
    lease.send(20, 1.0)
    assert lease.put_back(4) == 0
    lease.confirmed(10)
    assert (lease.left, lease.spent, lease.changed) == (10, 10, 4)


def test_what_is_given_back_is_not_spent_meanwhile() -> None:
    lease = leased(20)
    assert lease.send(5, 1.0) == (0, 0, 5)
    assert not lease.has(6, 1.0)


def test_a_lease_that_was_lost_leaves_nothing() -> None:
    lease = leased(20)
    lease.send(20, 1.0)
    lease.spend(5)
    lease.confirmed(0)  # it had gone back
    assert (lease.left, lease.spent) == (0, 5)


def test_a_lease_is_trusted_for_its_time() -> None:
    lease = leased(20, at=1.0)
    assert lease.has(20, 9.0)
    assert not lease.has(1, 9.1)
    assert lease.send(20, 9.1) == (0, 0, 0)


def test_spending_is_forgotten() -> None:
    burn = Burn(0.25)
    assert burn.now(1.0) == 0
    burn.add(10, 1.0)
    assert burn.now(1.0) == 10
    assert burn.now(1.25) == pytest.approx(10 / 2.718281828)
    assert burn.now(10.0) == 0


def test_a_price_above_the_capacity_is_owed() -> None:
    lease = leased(20)
    lease.spend(50)
    assert not lease.has(1, 1.0)
    assert lease.send(0, 1.0) == (50, 0, 0)
    lease.confirmed(3)
    assert lease.left == 3
