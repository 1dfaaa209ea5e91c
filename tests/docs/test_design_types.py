"""What a type checker says of a program that uses our strategies by the design's types of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from proxy import retry

#: The Smithy Python design's own interfaces, as they are declared there and in smithy-core 0.9.0.
DESIGN = '''
from dataclasses import dataclass
from typing import Protocol

from proxy.retry import {classes}
from proxy.retry import ErrorRetryInfo, RetryStrategy, RetryToken, aio


class DesignBackoff(Protocol):
    def compute_next_backoff_delay(self, retry_attempt: int) -> float: ...


@dataclass(kw_only=True)
class DesignToken(Protocol):
    retry_count: int
    """Retry count is the total number of attempts minus the initial attempt."""

    retry_delay: float
    """Delay in seconds to wait before the retry attempt."""


class DesignStrategy(Protocol):
    backoff_strategy: DesignBackoff
    max_attempts: int

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> DesignToken: ...


class DesignAwaited(Protocol):
    async def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> DesignToken: ...

    async def record_success(self, *, token: RetryToken) -> None: ...


class Mine:
    """A strategy of one's own with the design's token."""

    def acquire_initial_retry_token(self, *, token_scope: str | None = None) -> RetryToken:
        return MyToken(retry_count=0, retry_delay=0.0)


@dataclass(kw_only=True)
class MyToken:
    retry_count: int
    retry_delay: float


def wait(token: DesignToken) -> float:
    token.retry_delay = max(0.0, token.retry_delay)
    return token.retry_delay


def begin(strategy: RetryStrategy) -> float:
    return wait(strategy.acquire_initial_retry_token())


def ours(token: DesignToken) -> RetryToken:
    return token


async def awaited(strategy: DesignAwaited) -> float:
    return wait(await strategy.acquire_initial_retry_token())


for made in ({made}):
    begin(made)

plain: RetryStrategy = StandardRetryStrategy()
wrapped: DesignAwaited = aio.wrap(plain)


class DesignPlainToken(Protocol):
    retry_count: int
    retry_delay: float


def plain_token(token: RetryToken) -> DesignPlainToken:
    return token
'''


@pytest.mark.parametrize("strict", [True, False])
def test_a_type_checker_takes_our_token_for_the_designs(strict: bool, tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed (make dev)")
    names = [name for name in retry.__all__ if name.endswith("RetryStrategy") and name != "RetryStrategy"]
    assert len(names) > 6
    text = DESIGN.format(classes=", ".join(names), made=", ".join(f"{name}()" for name in names))
    (tmp_path / "app.py").write_text(textwrap.dedent(text))
    flags = ["--strict"] if strict else []
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), *flags]
    root = Path(__file__).parent.parent.parent
    done = subprocess.run([*command, str(tmp_path / "app.py")], cwd=root, capture_output=True, text=True)
    assert done.stdout == "" and done.returncode == 0, done.stdout + done.stderr
