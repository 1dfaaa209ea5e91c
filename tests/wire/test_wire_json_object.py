"""Members of a JSON object, set in its bytes, against json's own parser."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.json_object import NoObjectError, set_members

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(
    st.sampled_from(["model", "a", "b\\", 'q"', "é", "\ud83d\ude00"]) | st.text(), VALUES, max_size=6
)
SPACES = st.text(" \t\r\n", max_size=3)


@st.composite
def written(draw: st.DrawFn, document: Any) -> str:
    """A value as some writer would write it: white space, escapes and case of escapes as it likes."""

    def put(value: Any) -> str:
        space = draw(SPACES)
        if isinstance(value, dict):
            pairs = (f"{space}{text(name)}{space}:{put(each)}{draw(SPACES)}" for name, each in value.items())
            return f"{space}{{{','.join(pairs)}{space}}}"
        if isinstance(value, list):
            return f"{space}[{','.join(put(each) + draw(SPACES) for each in value)}{space}]"
        return space + (text(value) if isinstance(value, str) else json.dumps(value))

    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=draw(st.booleans()) or not value.isprintable())

    return put(document) + draw(SPACES)


@given(st.data(), OBJECTS, st.dictionaries(st.sampled_from(["model", "a", "new", "é"]), VALUES, max_size=3))
def test_the_object_is_the_same_but_for_what_is_set(
    data: st.DataObject, document: dict[str, Any], members: dict[str, Any]
) -> None:
    body = data.draw(written(document)).encode("utf-8", "surrogatepass")
    try:
        found = set_members(body, {name: json.dumps(value).encode() for name, value in members.items()})
    except NoObjectError:
        with pytest.raises(UnicodeDecodeError):  # a lone surrogate that was not escaped
            body.decode()
        return
    before = json.loads(body)
    assert json.loads(found) == before | members
    kept = [name for name in before if name not in members]
    assert list(json.loads(found)) == [*before, *(name for name in members if name not in before)]
    for name in kept:  # what is not set stands there as it came
        alone = set_members(body, {other: b"0" for other in before if other != name})
        assert json.loads(alone)[name] == before[name]


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_what_is_no_object_is_refused_and_nothing_raises(body: bytes) -> None:
    try:
        set_members(body, {"model": b'"x"'})
    except NoObjectError:
        return
    assert isinstance(json.loads(body), dict)


MODEL = {"model": b'"big-2"'}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b'{"model": "a", "n": 1.50e+3}', b'{"model": "big-2", "n": 1.50e+3}'),
        (b'{"n":1}', b'{"n":1, "model": "big-2"}'),
        (b"{}", b'{"model": "big-2"}'),
        (b" \r\n{ }\n", b' \r\n{ "model": "big-2"}\n'),
        (b'{"n" : [ 1 ]\n}', b'{"n" : [ 1 ], "model": "big-2"\n}'),
        (b'{"model":{"model":"x"},"a":["model"]}', b'{"model":"big-2","a":["model"]}'),
        (b'{"a":{"model":"x"},"b":"\\"model\\":1"}', b'{"a":{"model":"x"},"b":"\\"model\\":1", "model": "big-2"}'),
        (b'{"mode\\u006c" :null}', b'{"mode\\u006c" :"big-2"}'),  # the name, spelled otherwise
        (b'{"model":1,"model":[2,{"x":"]}"}]}', b'{"model":"big-2","model":"big-2"}'),  # whichever its reader takes
        ('{"é":"ü\\\\"}'.encode(), '{"é":"ü\\\\", "model": "big-2"}'.encode()),
        (b'{"x":123456789012345678901234567890.0}', b'{"x":123456789012345678901234567890.0, "model": "big-2"}'),
    ],
)
def test_all_other_bytes_stay(body: bytes, wanted: bytes) -> None:
    assert set_members(body, MODEL) == wanted


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b"[1]", "not an object"),
        (b'"x"', "not an object"),
        (b'{"a":1', "not JSON"),
        (b'{"a":1} {"b":2}', "not JSON"),
        (b'{"a":NaN}', "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b'{"a":"\n"}', "not JSON"),
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        (b'{"a":"\xff"}', "not UTF-8"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON"),
    ],
)
def test_what_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(NoObjectError, match=why):
        set_members(body, MODEL)
