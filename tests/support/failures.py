"""Exceptions as strategies are asked about them."""

from __future__ import annotations

from typing import Literal


class Failure(Exception):  # noqa: N818
    """Speaks both protocols."""

    def __init__(
        self,
        *,
        safe: bool | None = True,
        retry_after: float | None = None,
        throttling: bool = False,
        timeout: bool = False,
        fault: Literal["client", "server"] | None = "server",
    ) -> None:
        super().__init__("it failed")
        self.is_retry_safe = safe
        self.retry_after = retry_after
        self.is_throttling_error = throttling
        self.is_timeout_error = timeout
        self.fault = fault


class OnlyInfo(Exception):  # noqa: N818
    """The seed's three members alone."""

    is_retry_safe: bool | None = None
    retry_after: float | None = None
    is_throttling_error = False


class OnlyFault(Exception):  # noqa: N818
    """HasFault alone."""

    def __init__(self, fault: Literal["client", "server"] | None) -> None:
        super().__init__(fault)
        self.fault = fault
