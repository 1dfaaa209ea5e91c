"""The part that all signals of OpenTelemetry have in common here (extra `otel`): the resource, the connection of an
exporter, and the report of what goes wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from opentelemetry.sdk.resources import SERVICE_NAME, Resource

#: Seconds that the end waits for the last data of a signal.
CLOSING = 2.0

Trouble = Callable[[str], None]


def own_resource() -> Resource:
    """The resource that the OTEL_ variables describe, with the service name `redrive` unless they have one."""
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "redrive"}))
    return resource


def connected(exporter: Callable[..., Any]) -> Any:
    """Make one of the SDK's exporters (`exporter` is its class) that connects to its collector directly: the proxy that
    HTTP_PROXY names may be this very process.
    """
    try:
        import requests
    except ImportError:
        return exporter()
    session = requests.Session()
    session.trust_env = False
    return exporter(session=session)


def report_to(trouble: Trouble) -> None:
    """Have each different message of OpenTelemetry's passed to `trouble` once, without a traceback."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    if not any(isinstance(handler, _Once) and handler.trouble is trouble for handler in logger.handlers):
        logger.handlers = [_Once(trouble)]


class _Once(logging.Handler):
    """A log handler that passes on each different message once."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(logging.WARNING)
        self.trouble = trouble
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a message on, unless it was passed on before."""
        if str(record.msg) not in self._said:
            self._said.add(str(record.msg))
            self.trouble(record.getMessage().splitlines()[0][:300])
