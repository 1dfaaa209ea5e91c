"""HTTP dates as they are written, beside the standard library's."""

from __future__ import annotations

from email.utils import formatdate

from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.answers.http_date import http_date, read_http_date


@given(st.floats(0, 253402300799))
def test_a_date_is_written_as_anybody_writes_it_and_read_again(wall: float) -> None:
    assert http_date(wall) == formatdate(wall, usegmt=True)
    assert read_http_date(http_date(wall), wall) == int(wall)
