"""Readers of addresses and names: addresses, urls, host patterns, networks, header names.

As in units.py, each reader takes a scalar's text and returns a value, or raises ValueError with a message that says
what would be right.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from proxy.config.problems import did_you_mean
from proxy.config.settings import LONGEST_SOCKET, MOST_WORKERS, Address, Network
from proxy.config.units import checked, is_digits, is_off, or_off, scalar, text, word, written
from proxy.retry.policies.routing import Endpoint, HostPattern
from proxy.wire.field_names import NOT_EDITED, REQUEST_CUT

_REDIS_URL = re.compile(
    r"(redis|valkey)s?://[^/?#]+(/[0-9]*)?(\?.*)?|unix:///[^?]+(\?.*)?"
    r"|(redis|valkey)s?\+sentinel://[^/?#]+/[^/?#]+(/[0-9]*)?(\?.*)?|(redis|valkey)s?\+cluster://[^/?#]+/?(\?.*)?"
)
#: A token (RFC 9110, section 5.6.2).
TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: Fields that frame a message or control the proxy itself; editing them would break the exchange.
_OURS = NOT_EDITED | {"x-attempt-count", "x-redrive-loop"}
#: Request fields that the proxy removes or writes itself: no upstream gets an app's value of them.
_NOT_THE_APPS = _OURS | {"via"} | {name.decode() for name in REQUEST_CUT}
#: A fully qualified protobuf name, in which `*` stands for any characters.
_SERVICE = re.compile(r"[A-Za-z_*][\w*-]*(\.[\w*-]+)*", re.ASCII)

_PORT = "a port is a number from 1 to 65535"


def _text(wanted: str) -> Callable[[Any], str]:
    return lambda value: str(scalar(value, wanted))


#: A reader of a method, or any other RFC 9110 token.
token = checked(_text("a method such as GET"), TOKEN.fullmatch, "{} is not a method")
#: A reader of a header field's name, which keeps the user's spelling.
header_name = checked(_text("a header's name"), TOKEN.fullmatch, "{} is not a header name")
#: A reader of the name of an upstream, a bucket or a strategy.
name = checked(
    _text("a name"),
    re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}").fullmatch,
    "a name is made of letters, digits, dots, dashes and underscores, at most 100",
)


def editable_header(value: Any) -> str:
    """The name of a header field that may be set or removed. Fields that the proxy itself writes are refused."""
    found = header_name(value)
    if found.lower() in _OURS:
        raise ValueError(f"{found} is written by the proxy itself and cannot be changed")
    return found


def key_header(value: Any) -> str:
    """The name of the request field that carries an idempotency key. A field that the proxy itself changes is refused,
    since no upstream would get the app's key.
    """
    found = header_name(value)
    if found.lower() in _NOT_THE_APPS:
        raise ValueError(f"{found} never reaches an upstream as the app sent it; name a field for the key alone")
    return found


def header_value(value: Any) -> str:
    """A header field's value: latin-1, without line breaks."""
    found = text(value)
    try:
        found.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError(f"{written(value)} has characters that no header can carry") from None
    return found.strip(" \t")


def _without_edges(found: str) -> bool:
    return found == found.strip()


#: A reader of a glob for texts that never have space around them: a header field's value, an XML element's text.
trimmed_glob = checked(text, _without_edges, "has space at its beginning or end, which nothing that it is to match has")
#: A reader of the admin token: it follows `Bearer `, and has no space around it.
admin_token = checked(text, _without_edges, "has space at its beginning or end; remove it")


def credential(value: Any) -> str:
    """A credential's value: visible ASCII, without space around it. No error message repeats it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is empty")
    if value != value.strip():
        raise ValueError("has a space or a line break at its beginning or end; remove it")
    if not all(" " <= character <= "~" for character in value):
        raise ValueError("has characters that no credential has: a header takes only visible ASCII")
    return str(value)


def credential_format(value: Any) -> str:
    """The text of a header field that carries a credential: {} stands, once, where the credential goes. No error
    message repeats it.
    """
    if not isinstance(value, str) or value.count("{}") != 1:
        raise ValueError("must contain {} once, where the value goes, as in 'Bearer {}'")
    if value != value.strip() or not all(" " <= character <= "~" for character in value):
        raise ValueError("must be visible ASCII, without a space at its beginning or end")
    return str(value)


def app_name(value: Any) -> str:
    """Check the name of an app and return it: letters, digits, dots, dashes and underscores. Raises ValueError for any
    other name, and for `others`, which stands for all apps that the configuration does not list.
    """
    found = name(value)
    if found == "others":
        raise ValueError("is the name of all apps that are not listed: write it beside known, as apps.others")
    return found


def no_credentials(value: Any) -> str:
    """Accept the word `none`, for an upstream without credentials. Any other value is refused, and not repeated in the
    error message, because it may be a credential.
    """
    if value != "none":
        raise ValueError("must be none, or a mapping: {header: …, values: […]}")
    return "none"


def address(value: Any) -> Address:
    """An address to listen on: HOST:PORT, [IPv6]:PORT or unix:/path."""
    found = word(value)
    if found.startswith("unix:"):
        return Address(unix=_socket(found))
    host, colon, port = found.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        hint = f" (did you mean 127.0.0.1:{found}?)" if is_digits(found) else ""
        raise ValueError(f"{written(value)} is not an address; write it as HOST:PORT or unix:/path{hint}")
    if host.startswith(("http://", "https://")):
        bare = found.partition("//")[2]
        raise ValueError(f"{written(value)} is a url, not an address (did you mean {bare}?)")
    if not is_digits(port) or int(port) > 65535:
        raise ValueError(f"{written(value)} has a port above 65535; a port is a number from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = _ipv6(host[1:-1], value)
    elif ":" in host:
        raise ValueError(f"{written(value)} is not an address (did you mean [{host}]:{port}?)")
    elif not host or host == "*":
        raise ValueError(f"{written(value)} names no host (did you mean 0.0.0.0:{port}?)")
    elif not _is_host(host):
        raise ValueError(f"{written(value)} is not an address; {host!r} is not a host")
    return Address(host, int(port))


def _socket(found: str) -> str:
    """The path of a socket that is written as `unix:` or `unix://` followed by the path."""
    path = found.removeprefix("unix:").removeprefix("//")
    if not path or len(os.fsencode(path)) > LONGEST_SOCKET:
        raise ValueError(f"unix: takes a path of at most {LONGEST_SOCKET} bytes")
    return path


address_or_off = or_off(address)


def admin_name(value: Any) -> str:
    """A host name under which the admin listener may be asked: for one port if it has a port, else for any. A request's
    Host must be equal to it, so patterns are refused.
    """
    found = word(value)
    if "/" in found:
        hint = found.partition("://")[2].split("/")[0] or found.split("/")[0]
        raise ValueError(f"{written(value)} is a url, not a name{f' (did you mean {hint}?)' if hint else ''}")
    if "*" in found:
        raise ValueError(f"{written(value)} is a pattern, but names are compared whole: list each name")
    name, _, port = found.rpartition(":") if not found.endswith("]") and ":" in found else (found, "", "")
    if not _is_host(name) or (port and not is_digits(port)):
        raise ValueError(f"{written(value)} is not a name such as redrive.internal")
    return found


def workers(value: Any) -> int | None:
    """The number of worker processes; None for `auto`, one for each core."""
    found = scalar(value, "a whole number or auto")
    if found == "auto":
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,3}", found) or int(found) > MOST_WORKERS:
        raise ValueError(f"{written(value)} must be a whole number from 1 to {MOST_WORKERS}, or auto")
    return int(found)


def network(value: Any) -> Network:
    """An address, or a network in CIDR form."""
    found = word(value)
    try:
        return ipaddress.ip_network(found.strip("[]"), strict=False)
    except ValueError:
        raise ValueError(f"{written(value)} is neither an address nor a network such as 10.0.0.0/8") from None


def parent_proxy(value: Any) -> str | None:
    """`http://host:port` of a parent proxy, or None for `none`."""
    found = word(value)
    if found == "none" or is_off(found):
        return None
    try:
        parts = urlsplit(found)
        port, host = parts.port, parts.hostname
    except ValueError:
        parts, port, host = urlsplit(""), None, None
    if parts.scheme != "http" or not host or not _is_host(host) or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"{_masked(value)} is not a parent proxy; write it as http://host:port, or none")
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return f"http://{user}{pattern_host(host)}:{port or 80}"


def redis_url(value: Any) -> str:
    """The address of Redis: `redis://`, `rediss://`, `unix://`, or the addresses of Sentinel or of a Cluster.

    `valkey` means `redis`, `valkeys` `rediss`. Errors in the rest of the url are reported by the client library.
    """
    found = word(value)
    if _REDIS_URL.fullmatch(found) is None:
        forms = "redis://host:6379/0, unix:///path, redis+sentinel://host,host/service, redis+cluster://host,host"
        raise ValueError(f"{_masked(value)} is not the address of a Redis server; write {forms} (rediss for TLS)")
    if not found.startswith("unix:"):
        for authority in re.split("[/?]", found.partition("://")[2])[0].rpartition("@")[2].split(","):
            port = authority.rpartition("]")[2].partition(":")[2] or "1"
            if not is_digits(port) or not 0 < int(port) <= 65535:
                raise ValueError(f"{_masked(value)} has no valid port; {_PORT}")
    return found


def endpoint(value: Any) -> Endpoint:
    """An upstream's url: http or https, host, port and path; or unix:/path."""
    found = word(value)
    if found.startswith("unix:"):
        return Endpoint("http", "localhost", 80, "", unix=_socket(found))
    try:
        parts = urlsplit(found)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        if "port" in str(error).lower() or "digits" in str(error):  # the latter: for int()
            raise ValueError(f"{_masked(value)} has no valid port; {_PORT}") from None
        raise ValueError(f"{_masked(value)} is not a url: {error}") from None
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", found):
        wrong = re.match(r"(https?)[:/]+", found, re.IGNORECASE)  # https:/ or https//
        near = f"{wrong[1].lower()}://{found[wrong.end() :]}" if wrong else _with_scheme(found.lstrip("/"))
        unquoted = found.strip("“”„‘’«»")  # YAML takes a word processor's quotes as text
        if re.match(r"https?://", unquoted):
            near = unquoted
        hint = "" if "@" in found or "?" in found else f" (did you mean {near}?)"
        raise ValueError(f"{_masked(value)} has no scheme{hint}")
    if parts.scheme not in ("http", "https"):
        hint = did_you_mean(parts.scheme, ("http", "https"))
        raise ValueError(f"{_masked(value)} must begin with http:// or https://{hint}")
    if "@" in parts.netloc:
        raise ValueError("a url must not contain credentials; set them with headers.request.set.authorization")
    if "?" in found or "#" in found:
        raise ValueError(f"{_masked(value)} must not have a query or a fragment")
    if any(char in found for char in " \\"):
        raise ValueError(f"{written(value)} contains a character that a url can't have")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    if port == 0:
        raise ValueError(f"{written(value)} has port 0; {_PORT}")
    written_path = str(getattr(value, "raw", value)).partition("://")[2].partition("/")[2]
    # On the wire, characters of other scripts are percent-encoded UTF-8.
    path = "".join(char if char.isascii() else quote(char) for char in parts.path).rstrip("/")
    port = port or (443 if scheme == "https" else 80)
    return Endpoint(scheme, _host(host or "", value), port, path, private="${" in written_path)


def host_pattern(value: Any) -> HostPattern:
    """A host pattern, exact or with `*`, with or without a port."""
    found = word(value)
    if "/" in found:
        hint = found.partition("://")[2].split("/")[0] or found.split("/")[0]
        raise ValueError(f"{written(value)} is a url, not a host (did you mean {hint}?)")
    host, colon, port = found.rpartition(":")
    if not colon or host.count("[") != host.count("]"):
        host, port = found, ""
    elif not is_digits(port) or not 0 < int(port) <= 65535:
        raise ValueError(f"{written(value)} has no valid port; {_PORT}, and a host without one matches any port")
    if ":" in host and not host.startswith("["):
        raise ValueError(f"{written(value)} is not a host; an IPv6 address goes in brackets")
    return HostPattern(pattern_host(_host(host, value)), int(port) if port else None)


def pattern_host(host: str) -> str:
    """A host as patterns are compared with it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def service_pattern(value: Any) -> str:
    """The full name of a gRPC service, such as `helloworld.Greeter`, or a pattern with `*`, such as `acme.*`."""
    found = word(value)
    if "/" in found:
        inner = found.strip("/").split("/")[0]
        hint = f" (did you mean {inner}?)" if inner else ""
        raise ValueError(f"{written(value)} is a path, not a service such as helloworld.Greeter{hint}")
    if not _SERVICE.fullmatch(found):
        raise ValueError(f"{written(value)} is not a gRPC service; it is written as helloworld.Greeter, or acme.*")
    return found


def prefix(value: Any) -> str:
    """The path prefix under which apps reach an upstream when redrive is their reverse proxy, without a slash at its
    end. `value`: the value of the key as YAML gave it; a ValueError says what is wrong with it.
    """
    found = word(value)
    if not found.startswith("/"):
        raise ValueError(f"{written(value)} must begin with / (did you mean /{found}?)")
    if any(char in found for char in "?#% \\") or not found.isascii():
        raise ValueError(f"{written(value)} must be a plain path, without ?, #, % or spaces")
    if "//" in found or any(part in (".", "..") for part in found.split("/")):
        raise ValueError(f"{written(value)} must not contain empty or dot segments")
    return found.rstrip("/") or "/"


prefix_or_off = or_off(prefix)


def route_path(value: Any) -> str:
    """A route's path glob. It must begin with a slash, and contain no segment `.` or `..`, since no path would match
    it. `*` alone matches `OPTIONS *`.
    """
    found = word(value)
    if not found.startswith(("/", "**")) and found != "*":
        glob = as_glob(found) if found.startswith("^") else ""
        url = re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*(/.*)?", found)
        why = "must begin with /"
        if url is not None:
            glob, why = url[1] or "/**", "is a url, but a route looks at the path alone"
        elif found.startswith("^"):
            why = "must begin with /: it is a glob, not a regular expression"
        elif _PLAIN.match(found):
            glob = f"/{found}"
        if "${" in str(getattr(value, "raw", value)):  # a value from the environment is not repeated
            glob = ""
        raise ValueError(f"{written(value)} {why}{f' (did you mean {glob}?)' if glob else ''}")
    if any(segment in (".", "..") for segment in found.split("/")):
        raise ValueError(f"{written(value)} never matches: a path is compared without its dot segments; remove them")
    return found


#: The first character of a path whose slash was probably forgotten.
_PLAIN = re.compile(r"[\w*{.~-]")


def as_glob(regex: str) -> str:
    """The glob that the author of a path's regular expression probably meant; "" if that is not clear."""
    glob = regex.removeprefix("^").removesuffix("$").replace("\\/", "/").replace("\\.", ".")
    glob = re.sub(
        r"\(\?:?|\\[dwS][+*]|\[\^/\][+*]|\[[\w-]+\][+*]", lambda found: "*" if found[0][0] != "(" else "(", glob
    )
    glob = re.sub(r"\.[*+]", "**", glob)
    glob = re.sub(r"\((\*+)\)", r"\1", glob)
    return glob if glob.startswith("/") and not re.search(r"[\^$()\[\]{}|+?\\]", glob) else ""


def _host(host: str, value: Any) -> str:
    """A host in lower case, without brackets, and a name with non-ASCII letters in its ASCII form (RFC 5891). `value`:
    the whole setting, which the error repeats.
    """
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if ":" in host:
        return _ipv6(host, value)
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            raise ValueError(f"{written(value)} names no host") from None
    host = host.lower().removesuffix(".")
    if not _is_host(host.replace("*", "x")):
        raise ValueError(f"{written(value)} names no host")
    return host


def _ipv6(host: str, value: Any) -> str:
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        raise ValueError(f"{written(value)} does not contain an IPv6 address") from None


def _is_host(host: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})", host) is not None or ":" in host


def _masked(value: Any) -> str:
    """A url for a message, without its credentials and its query, even if it is malformed."""
    hidden = re.sub(r"://[^\s'\"]*@", "://…@", written(value))  # a password may contain a slash that is not escaped
    return re.sub(r"[?#][^\s'\"]*", "?…", re.sub(r"(?<![^/\s'\"])[^/\s'\"]*@", "…@", hidden))


def _with_scheme(rest: str) -> str:
    """Complete a url without a scheme: with http if it begins with this machine, which few serve TLS on, else https."""
    here = re.match(r"(localhost|127\.[0-9.]+|\[::1\])([:/]|$)", rest, re.IGNORECASE)
    return f"{'http' if here else 'https'}://{rest}"
