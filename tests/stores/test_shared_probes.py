"""The probe of an outage over the workers of one machine, by the process whose attempt it is."""

from __future__ import annotations

import os
import subprocess
import sys

from proxy.stores.shared_memory.lane_probe import ELSEWHERE, SharedProbe, number_of


def seen_by_another(of: float, number: float) -> tuple[SharedProbe, object | None]:
    """How another worker reads the numbers of a probe: its view, and the probe under way."""
    other = SharedProbe()
    return other, other.restore(of, number, None)


def test_a_probe_of_a_living_worker_is_not_lost() -> None:
    mine = SharedProbe()
    of, number = mine.state(object())
    other, probe = seen_by_another(of, number)
    assert probe is ELSEWHERE
    assert not other.is_lost(probe)


def test_a_probe_is_lost_if_its_worker_s_id_is_now_another_process_s() -> None:
    mine = SharedProbe()
    of, number = mine.state(object())
    earlier = of - (1 << 22)  # a process with this one's id that started a tick earlier
    other, probe = seen_by_another(earlier, number)
    assert probe is ELSEWHERE
    assert other.is_lost(probe)


def test_a_new_worker_with_the_id_of_a_dead_one_does_not_take_its_probe_for_its_own() -> None:
    mine = SharedProbe()
    of, number = mine.state(own := object())
    assert mine.restore(of - (1 << 22), number, own) is ELSEWHERE


def test_a_process_s_number_is_exact_as_a_float_and_0_if_there_is_no_such_process() -> None:
    number = number_of(os.getpid())
    assert number % (1 << 22) == os.getpid()
    assert int(float(number)) == number
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert number_of(ended.pid) == 0
