"""Where an upstream is: opaque to deciding, data for transport (policies carry it along)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: (verify, client certificate, parent proxy), as a `Target` has them.
Reach = tuple[bool | str, tuple[str, str] | None, str | None]
ConnectMode = Literal["auto", "tunnel", "intercept", "deny"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place of an upstream. `host` is a name or address without brackets; `path` is the url's path, put in front
    in prefix use only, without a trailing "/" ("" where the url has none). `unix` is a socket's path, else None.
    `private`: part of the path came from the environment, so it is not shown.
    """

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str = ""
    unix: str | None = None
    private: bool = field(default=False, compare=False)

    @property
    def authority(self) -> str:
        """host[:port] as a Host field names it: the scheme's own port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"

    @property
    def shown_path(self) -> str:
        """The url's path as people may see it."""
        return "/***" if self.private else self.path


@dataclass(frozen=True, slots=True)
class Target:
    """`endpoints` is empty where the request itself says where to go. `verify` is a CA file's path where it is a str.

    `client_cert` is (cert file, key file). `via_proxy` is "http://host:port" of a parent proxy, or None.
    """

    endpoints: tuple[Endpoint, ...] = ()
    verify: bool | str = True
    client_cert: tuple[str, str] | None = None
    via_proxy: str | None = None

    @property
    def reach(self) -> Reach:
        """How endpoints are reached, whichever they are."""
        return self.verify, self.client_cert, self.via_proxy
