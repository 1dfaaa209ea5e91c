"""`redrive healthcheck`: one question to a running redrive, for a container without a shell.

The standard library alone, no proxy from the environment, an answer within a few seconds.
"""

from __future__ import annotations

import socket
from http.client import HTTPConnection, HTTPException

from proxy.config.settings import Address

_SECONDS = 3.0


def ready(address: Address, token: str) -> str:
    """ "" where the process at this address says that it is ready, else why not."""
    connection = HTTPConnection("localhost", timeout=_SECONDS)
    try:
        connection.sock = _connect(address)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", "/readyz", headers=headers)
        answer = connection.getresponse()
        text = answer.read(200).decode("utf-8", "replace").strip()
    except (OSError, HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error)
        return f"nothing answers at {address}: {why[:1].lower()}{why[1:]}"
    finally:
        connection.close()
    return "" if answer.status == 200 else f"not ready: {answer.status} {text}"


def _connect(address: Address) -> socket.socket:
    if address.unix is None:
        return socket.create_connection((address.nearby.host, address.port), _SECONDS)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(_SECONDS)
    connected.connect(address.unix)
    return connected
