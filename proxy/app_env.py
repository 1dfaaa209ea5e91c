"""The environment variables that point an app here, as each shell reads them (`redrive env`; contract, section 2)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from proxy.config.settings import Address, Settings
from proxy.server.intercept.command import variables as of_certificates

#: Where a proxy must not be asked for: this machine, and the clouds' metadata services (credentials live there).
NO_PROXY = (
    "localhost,127.0.0.1,::1,169.254.169.254,169.254.170.2,fd00:ec2::254,168.63.129.16,100.100.100.200,"
    "metadata.google.internal"
)
#: What every reader of .env files takes as it stands, without quotes.
_PLAIN = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
#: PowerShell ends a single-quoted string at any of these, and takes two of one for one of it.
_POWERSHELL_QUOTES = re.compile("(['\u2018\u2019\u201a\u201b])")


class NotWritableError(Exception):
    """The lines cannot be written; the text is for people, one line."""


def variables(settings: Settings, *, java: bool = False) -> dict[str, str]:
    """Every variable and its value; with `java` what JVMs read too, each of which prints that it did. Raises
    NotWritableError where no listener can be named in a URL.
    """
    address = next((address for address in settings.listen if address.unix is None and address.port), None)
    if address is None:
        raise NotWritableError("there is no listener on a TCP port that an app could be pointed to")
    names = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "grpc_proxy")
    return {
        **dict.fromkeys(names, f"http://{address.nearby}"),
        **dict.fromkeys(("NO_PROXY", "no_proxy", "no_grpc_proxy"), NO_PROXY),
        "NODE_USE_ENV_PROXY": "1",  # Node heeds the others from 22.21 or 24 on, and only then
        **({"JAVA_TOOL_OPTIONS": _java(address.nearby)} if java else {}),
        **of_certificates(settings),
    }


def _java(address: Address) -> str:
    """The properties of java.net's proxies, which grpc-java reads too; the hosts are NO_PROXY's, IPv6 in brackets."""
    hosts = (f"[{host}]" if ":" in host else host for host in NO_PROXY.split(","))
    proxies = (
        f"-D{scheme}.proxyHost={address.host} -D{scheme}.proxyPort={address.port}" for scheme in ("http", "https")
    )
    return f"{' '.join(proxies)} -Dhttp.nonProxyHosts={'|'.join(hosts)}"


def lines(values: Mapping[str, str], shell: str, *, unset: bool = False) -> Iterator[str]:
    """What `shell` (sh, fish, powershell, dotenv) is to read, a line a variable. Raises NotWritableError."""
    for name, value in values.items():
        if shell == "fish":  # between single quotes it knows two escapes
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            yield f"set -e {name};" if unset else f"set -gx {name} '{escaped}';"
        elif shell == "powershell":
            doubled = _POWERSHELL_QUOTES.sub(r"\1\1", value)
            yield f"Remove-Item Env:{name} -ErrorAction Ignore" if unset else f"$env:{name} = '{doubled}'"
        elif shell == "dotenv":
            yield f"{name}={_dotenv(name, value)}"
        else:
            yield f"unset {name}" if unset else f"export {name}={shlex.quote(value)}"


def _dotenv(name: str, value: str) -> str:
    """There is no standard: what needs escapes is read in as many ways as there are readers, so it is refused."""
    if _PLAIN.fullmatch(value):
        return value
    if re.search(r"['\\\r\n]", value):
        raise NotWritableError(f"{name} has a quote, a backslash or a line end, which readers of .env take differently")
    return f"'{value}'"
