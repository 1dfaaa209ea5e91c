"""The order of the functions of the compiled library: what `tools/order.py` makes of two profiles."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import order  # noqa: E402

START = """# callgrind format
ob=(1) /usr/lib/libpython3.11.so.1.0
fn=(7) PyDict_New
2191 6
cob=(2) /somewhere/proxy/_core.cpython-311-x86_64-linux-gnu.so
cfn=(8) __pyx_pymod_exec_pool.constprop.0
calls=1 542
ob=(2)
fn=(8)
12 3
fn=(9) Py_DECREF
12 3
fn=(10) 0x0000000000001100
1 1
"""
CALLS = (
    START
    + """fn=(11) __pyx_f_5proxy_4pool_4Pool_lease'2
1 1
fn=(12) __pyx_pw_5proxy_4pool_4Pool_15rest
1 1
fn=(15) __pyx_pw_5proxy_4pool_4Pool_17dial.cold
1 1
ob=(1)
fn=(13) PyList_New
1 1
"""
)
WEATHER = (
    CALLS
    + """ob=(2)
fn=(14) __pyx_f_6outage_begin
1 1
"""
)


def test_what_ran_of_the_library_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, calls, weather, written = (tmp_path / each for each in ("start", "calls", "weather", "order.ld"))
    start.write_text(START)
    calls.write_text(CALLS)
    weather.write_text(WEATHER)
    monkeypatch.setattr(order, "ORDER", written)
    monkeypatch.setattr(sys, "argv", ["order.py", str(start), str(calls), str(weather)])
    order.main()
    text = written.read_text()
    of_calls, of_start = text.index(".text.calls :"), text.index(".text.start :")
    of_weather = text.index(".text.weather :")
    seldom = text.index(".text.seldom :")
    listed = text[of_calls:of_weather]
    assert "*(.text.__pyx_f_5proxy_4pool_4Pool_lease .text.__pyx_pw_5proxy_4pool_4Pool_*rest)" in listed
    assert "*(.text.unlikely.__pyx_pw_5proxy_4pool_4Pool_*dial)" in listed
    assert "*(.text.__pyx_f_6outage_begin)\n" in text[of_weather:of_start]
    assert text.count("Pool_lease") == 1
    names = text[of_start:seldom]
    assert ".text.Py_DECREF .text.__pyx_pymod_exec_pool.*" in names
    assert ".text.unlikely.Py_DECREF .text.unlikely.__pyx_pymod_exec_pool.*" in names
    assert "PyDict_New" not in text and "PyList_New" not in text and "0x" not in text


def test_what_an_earlier_order_lists_and_no_profile_ran_stands_beside_the_weather(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, calls, before, written = (tmp_path / each for each in ("start", "calls", "before.ld", "order.ld"))
    start.write_text(START)
    calls.write_text(CALLS)
    monkeypatch.setattr(order, "ORDER", before)
    monkeypatch.setattr(sys, "argv", ["order.py", str(start), str(calls), str(calls)])
    order.main()
    before.write_text(before.read_text().replace("Pool_lease", "Pool_lend").replace("exec_pool", "exec_gone"))
    monkeypatch.setattr(order, "ORDER", written)
    monkeypatch.setattr(sys, "argv", ["order.py", str(start), str(calls), str(start), str(before)])
    order.main()
    text = written.read_text()
    assert "Pool_lend" in text[text.index(".text.weather :") : text.index(".text.start :")]
    assert text.count("Pool_lend") == text.count("Pool_lease") == 1
    assert "exec_gone" not in text  # what only the start ran
    assert text.count("__pyx_tp_traverse_*") == 1


def test_the_order_in_force_was_written_by_the_tool() -> None:
    text = order.ORDER.read_text()
    before, after = order._TEXT.split("@calls@")
    assert ".text.weather :" in text
    assert text.startswith(before)
    assert text.endswith(after.split("@start@")[1])
