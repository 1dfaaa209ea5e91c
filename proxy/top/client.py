"""The client of a running redrive's admin port: `redrive top` reads /upstreams once, and then follows the stream
/events for the board, the rows that the dashboard shows.

The client connects directly, and ignores every proxy that the environment names.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import aiohttp

from proxy.config.settings import Address, Settings

#: Seconds for a connection, and for an answer; and without a word on /events after which it counts as dead. The board
#: says something every second, or after 50 times what a look at it took (`proxy.admin.live_board`).
CONNECT, SILENT = 3.0, 12.0
#: How many of an upstream's last calls are read to find one that failed among those that were retried.
_LAST_FEW = 20


class AdminError(Exception):
    """The admin port can't be read; the message is one line for the user. `usage`: the user named something wrong
    (address, token), so another try would not help.
    """

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage


@dataclass(frozen=True, slots=True)
class AdminPort:
    """The address of an admin port. `base` is a URL without a path; `unix` is a socket's path, None for TCP; `token` is
    "" if no token is sent. `shown` is the port's name in messages.
    """

    base: str
    shown: str
    unix: str | None = None
    token: str = field(default="", repr=False)


def admin_port(settings: Settings) -> AdminPort:
    """The admin port of a configuration, as a program on this machine reaches it. Raises AdminError if the port is off,
    or if the system chooses its number.
    """
    admin = settings.admin
    if admin is None:
        raise AdminError("admin is off in this configuration: there is nothing to ask", usage=True)
    address = admin.listen
    if address.unix is None and not address.port:
        message = f"admin listens on {address}, a port that the system chooses: name the one of the log with --admin"
        raise AdminError(message, usage=True)
    return _port(address.nearby, admin.token)


def named_port(url: str, token: str) -> AdminPort:
    """The admin port that a user names: http://HOST:PORT, https://HOST:PORT, HOST:PORT or unix:/path. `token`: the
    secret that the port asks for, "" for none. Raises AdminError for anything else.
    """
    if url.startswith("unix:"):
        return _port(Address(unix=url.removeprefix("unix:").removeprefix("//")), token)
    named = url or repr(url)
    wrong = AdminError(f"--admin takes a URL such as http://127.0.0.1:9901, or unix:/path, not {named}", usage=True)
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise wrong
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise wrong
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    authority = host if port is None else f"{host}:{port}"
    return AdminPort(f"{parts.scheme}://{authority}", authority, token=token)


def _port(address: Address, token: str) -> AdminPort:
    if address.unix is not None:
        return AdminPort("http://localhost", f"unix:{address.unix}", address.unix, token)
    return AdminPort(f"http://{address}", str(address), token=token)


class AdminClient:
    """A reader of one admin port, for `async with`."""

    def __init__(self, port: AdminPort) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        port = self._port
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector() if port.unix is None else aiohttp.UnixConnector(port.unix),
            headers={"Authorization": f"Bearer {port.token}"} if port.token else {},
            timeout=aiohttp.ClientTimeout(connect=CONNECT, sock_read=SILENT),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def upstreams(self, name: str | None = None) -> list[dict[str, Any]]:
        """The answer of /upstreams, for all upstreams or only for the upstream `name`: its configuration, and which
        call began its cooldown. Raises AdminError.
        """
        asked = f"{self._port.base}/upstreams" + (f"?{urlencode({'name': name})}" if name else "")
        try:
            async with self._session.get(asked) as answer:
                await self._check(answer)
                return list(json.loads(await answer.read())["upstreams"])
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._gone(error) from None
        except (ValueError, KeyError, TypeError):
            raise self._stranger() from None

    async def requests(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """The answer of /requests with the parameters `asked`. Raises AdminError."""
        return await self._read(f"/requests?{urlencode(asked)}")

    async def newest_failure(self, upstream: str) -> dict[str, Any] | None:
        """The newest of the last calls to this upstream that did not succeed; None if there is none among the last few
        that were retried or failed. Raises AdminError.
        """
        found = await self.requests({"only": "notable", "upstream": upstream, "limit": str(_LAST_FEW)})
        calls: list[dict[str, Any]] = found["requests"]
        return next((call for call in calls if call["outcome"] != "success"), None)

    async def buckets(self) -> list[dict[str, Any]]:
        """The level of each bucket that was used, as /buckets shows them. Raises AdminError."""
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = await self._read(f"/buckets?after={after}")
            found += page["buckets"]
            after = page["next"]
        return found

    async def request(self, number: int) -> dict[str, Any]:
        """The call of this number, one of the last. Raises AdminError, also if it is no longer kept."""
        return await self._read(f"/requests/{number}", missing=f"call {number} is not kept, or is no longer")

    async def series(self, upstream: str) -> dict[str, Any]:
        """The answer of /series for an upstream, with its last cooldowns, limits and outages. Raises AdminError, also
        if there is no such upstream.
        """
        return await self._read(f"/series?{urlencode({'name': upstream})}")

    async def _read(self, path: str, missing: str = "") -> dict[str, Any]:
        """Return the JSON object that the admin port has at `path`. `missing`: the text of the error if the port
        answers 404 because it does not keep the call of that path; "" if the path is not that of a call. Raises
        AdminError.
        """
        try:
            async with self._session.get(f"{self._port.base}{path}") as answer:
                if answer.status == 404 and missing and (await answer.text()).startswith("This call"):
                    raise AdminError(missing)
                if answer.status == 400:
                    said = (await answer.text()).strip().rstrip(".")
                    raise AdminError(said[:1].lower() + said[1:], usage=True)
                await self._check(answer)
                return dict(json.loads(await answer.read()))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._gone(error) from None
        except (ValueError, KeyError, TypeError):
            raise self._stranger() from None

    async def boards(self) -> AsyncGenerator[dict[str, Any]]:
        """The messages of the admin port's event stream that carry the board (the upstreams' figures), until the port
        ends the stream. Raises AdminError.
        """
        try:
            async with self._session.get(f"{self._port.base}/events?board&most=0") as answer:
                await self._check(answer)
                rest = b""
                async for piece in answer.content.iter_any():
                    *events, rest = (rest + piece).split(b"\n\n")
                    for event in events:
                        if event.startswith(b"event: board\ndata: "):
                            message = json.loads(event.partition(b"\ndata: ")[2])
                            if message["full"] and "states" not in message:
                                raise self._other_release()
                            yield message
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._gone(error) from None
        except (ValueError, KeyError, TypeError):
            raise self._stranger() from None

    async def _check(self, answer: aiohttp.ClientResponse) -> None:
        """Raise AdminError unless this HTTP answer is one of redrive's admin port."""
        if answer.status == 200:
            return
        shown = self._port.shown
        if answer.status == 401:
            sent = "refuses this token" if self._port.token else "asks for a token"
            remedy = "set REDRIVE_ADMIN_TOKEN, or name with -c the configuration that it runs with"
            raise AdminError(f"the admin port at {shown} {sent}: {remedy}", usage=True)
        if answer.status == 421:
            message = (
                f"the admin port at {shown} does not answer to this name: use its address, or list it in admin.hosts"
            )
            raise AdminError(message, usage=True)
        if answer.status == 404:
            raise self._stranger()
        said = (await answer.content.read(200)).decode("utf-8", "replace").partition("\n")[0]
        raise AdminError(f"the admin port at {shown} answered {answer.status} {said}".rstrip())

    def _stranger(self) -> AdminError:
        message = f"what answers at {self._port.shown} is not redrive's admin port (perhaps its listen or its probe)"
        return AdminError(message, usage=True)

    def _other_release(self) -> AdminError:
        message = f"the redrive at {self._port.shown} is of an earlier release: use the `redrive top` of that release"
        return AdminError(message, usage=True)

    def _gone(self, error: Exception) -> AdminError:
        if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | ConnectionResetError):
            why = "the connection was closed"
        elif isinstance(error, TimeoutError):
            why = "no answer in time"
        elif isinstance(error, aiohttp.ClientResponseError | aiohttp.InvalidURL):
            return self._stranger()
        elif isinstance(error, aiohttp.ClientConnectorCertificateError):
            why = str(error.certificate_error)
            return AdminError(f"the certificate of {self._port.shown} was not accepted: {why}", usage=True)
        elif isinstance(error, aiohttp.ClientSSLError):
            return AdminError(f"what answers at {self._port.shown} speaks no TLS: name it with http://", usage=True)
        else:
            number = getattr(error, "errno", None)
            if isinstance(error, aiohttp.ClientConnectorDNSError):
                return AdminError(f"nothing answers at {self._port.shown}: the name {error.host} can't be resolved")
            why = os.strerror(number) if isinstance(number, int) and number > 0 else str(error)
            why = f"{why[:1].lower()}{why[1:]}"
        return AdminError(f"nothing answers at {self._port.shown}: {why}; is redrive running there?")
