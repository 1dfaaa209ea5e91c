"""The search for short texts in the bytes of a stream: compiled code finds what Python finds."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.retry.answers import text_search
from proxy.retry.answers.text_search import holds_any, holds_member

#: Few octets, so that texts and beginnings of them occur often; blocks of sixteen octets are compared at a time.
data = st.text("abc", max_size=70).map(str.encode)
texts = st.lists(st.text("abc", max_size=20).map(str.encode), max_size=3).map(tuple)


@given(data, texts)
@example(b"", (b"",))
@example(b"a" * 16 + b"b", (b"ab",))
@example(b"b" + b"a" * 31, (b"ba", b"ab"))
def test_a_text_is_found_where_python_finds_it(octets: bytes, sought: tuple[bytes, ...]) -> None:
    assert holds_any(octets, sought) is text_search._found(octets, sought)


@given(st.data())
def test_a_text_is_found_wherever_it_is(drawn: st.DataObject) -> None:
    text = drawn.draw(st.binary(min_size=1, max_size=40))
    before, behind = drawn.draw(st.binary(max_size=50)), drawn.draw(st.binary(max_size=50))
    assert holds_any(before + text + behind, (b"not there: " * 20, text))


NULL = {
    b'{"a":null}': False,
    b'{"a" : \r\n\tnull , "b": 1}': False,
    b'[{"a":null}, {"a": null}]': False,
    b'{"a":null, "a":"stop"}': True,
    b'{"a":"stop"}': True,
    b'{"a":nullable}': True,
    b'{"a":null': True,
    b'{"a":nul': True,
    b'{"a"': True,
    b'{"a":': True,
    b'["a", null]': True,
    b'{"b": 1}': False,
}


@pytest.mark.parametrize("document", NULL)
def test_a_member_of_the_value_null_does_not_count(document: bytes) -> None:
    for search in (holds_member, text_search._found_member):
        assert search(document, (b'"a"',)) is NULL[document]
        assert search(b" " * 30 + document, (b'"not there"', b'"a"')) is NULL[document]


pieces = st.lists(st.sampled_from([b'"a"', b'"ab"', b":", b" ", b"\n", b"null", b"nul", b",", b"}", b"]", b"1"]))


@given(pieces.map(b"".join))
def test_a_member_is_found_where_python_finds_it(octets: bytes) -> None:
    names = (b'"ab"', b'"a"')
    assert holds_member(octets, names) is text_search._found_member(octets, names)
