"""What waits unread on a connection, as compiled code sees it and as Python does."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from proxy.transport.unread import has_said, polled


@pytest.mark.parametrize("asks", [has_said, polled], ids=["as built", "in Python"])
def test_a_word_and_an_end_wait_and_silence_does_not(asks: Callable[[int], bool]) -> None:
    here, there = socket.socketpair()
    with here, there:
        assert not asks(here.fileno())
        there.send(b"x")
        assert asks(here.fileno())
        here.recv(1)
        assert not asks(here.fileno())
        there.close()
        assert asks(here.fileno())


@pytest.mark.parametrize("asks", [has_said, polled], ids=["as built", "in Python"])
def test_a_connection_that_is_gone_is_not_silent(asks: Callable[[int], bool]) -> None:
    assert asks(2**30)
    with pytest.raises(ValueError, match="file descriptor"):
        asks(-1)
