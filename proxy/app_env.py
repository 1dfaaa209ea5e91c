"""Settings that point an app at redrive and make it trust the local CA: `redrive env`, `redrive ca` (contract, 2 and
6).

What a program may read goes to standard output, what people should know about it goes to standard error, and nothing of
the CA's key goes to either.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from proxy.config.advice import unused_app
from proxy.config.settings import Address, Settings
from proxy.retry.apps import Apps
from proxy.server.intercept import intercepts, needed
from proxy.transport.clock import wall

#: Destinations that apps must reach without a proxy: this machine, and the clouds' metadata services (which give out
#: credentials).
NO_PROXY = (
    "localhost,127.0.0.1,::1,169.254.169.254,169.254.170.2,fd00:ec2::254,168.63.129.16,100.100.100.200,"
    "metadata.google.internal"
)
#: The variables that hold NO_PROXY, and those that name a proxy.
NO_PROXY_NAMES = ("NO_PROXY", "no_proxy", "no_grpc_proxy")
PROXY_NAMES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "grpc_proxy")
#: The beginning of the names of variables that keep what was replaced.
SAVED = "REDRIVE_SAVED_"
NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})
#: Variables that replace an app's roots, and so name the bundle: of OpenSSL and Go, requests, curl, git, the AWS SDKs,
#: gRPC.
BUNDLE_NAMES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",  # git's libcurl reads neither of the two above if its TLS is GnuTLS (Debian)
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)
#: The variable that adds to an app's roots, and so names the CA's certificate alone.
CA_NAME = "NODE_EXTRA_CA_CERTS"
#: The names of apps that can stand in a url as they are.
PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")
#: Values that every reader of .env files takes literally, without quotes.
_PLAIN = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
#: Characters that end a single-quoted string in PowerShell; inside it each is written twice.
_POWERSHELL_QUOTES = re.compile("(['\u2018\u2019\u201a\u201b])")


class NotWritableError(Exception):
    """Raised if an app's variables cannot be expressed: no URL names a listener, or a .env file can't hold a value. The
    text is one line for people.
    """


def variables(
    settings: Settings, environ: Mapping[str, str] = NO_ENVIRONMENT, *, java: bool = False, app: str = ""
) -> dict[str, str]:
    """Every environment variable that points an app at redrive, and its value; with `java` also JAVA_TOOL_OPTIONS,
    which makes each JVM print at its start that it has read it. Hosts that `environ` excludes from a proxy stay
    excluded. `app`: the name by which redrive is to know the app, "" for none; the url then has a password too, since
    requests and urllib send no user without one. Raises NotWritableError if no listener can be named in a URL.
    """
    address = _listener(settings, app)
    if address is None:
        raise NotWritableError("no listener has a TCP port that an app could use")
    return {
        **dict.fromkeys(PROXY_NAMES, f"http://{app}:x@{address.nearby}" if app else f"http://{address.nearby}"),
        **{name: _appended(environ, name) for name in NO_PROXY_NAMES},
        "NODE_USE_ENV_PROXY": "1",  # with this, Node follows the other variables, from 22.21 or 24 on
        **({"JAVA_TOOL_OPTIONS": _java(address.nearby, settings, environ, app)} if java else {}),
        **_of_certificates(settings),
    }


def _listener(settings: Settings, app: str) -> Address | None:
    """The listener to point an app at: the first one with a port; if it is to be known by the name `app`, the first one
    that knows it so, where there is one. None if there is no listener with a port.
    """
    places = [address for address in settings.listen if address.unix is None and address.port]
    right = (each for each in places if app and _name_at(settings.apps, each, app) == app)
    return next(right, places[0] if places else None)


def _name_at(apps: Apps | None, address: Address, user: str) -> str:
    """The name by which an app is known that comes by this listener with `user` in the proxy's url; "" for none."""
    ways = {"listener": address.app, "proxy_user": user}
    return next((name for how in (apps.by if apps is not None else ()) if (name := ways.get(how))), "")


def why_not_known(settings: Settings, app: str) -> str:
    """Why an app with the variables for the name `app` is not known by it, "" if it is."""
    address = _listener(settings, app)
    if address is None or settings.apps is None:
        return unused_app(app, settings.apps, "proxy_user")
    known_as = _name_at(settings.apps, address, app)
    if known_as not in ("", app):
        return f"{address} names it {known_as} first: give it a listener of its own, or one without an app"
    return unused_app(app, settings.apps, "listener" if address.app == app else "proxy_user")


def before(environ: Mapping[str, str], name: str, ours: str = "") -> str | None:
    """The value that the variable `name` had before redrive set it: the one that was saved in `environ`, else the
    present one unless it is `ours`, the value that redrive sets; None if it had none.
    """
    saved = environ.get(f"{SAVED}{name}")
    present = environ.get(name) if saved is None else saved
    return None if not present or present == ours else present


def saved(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The further variables that keep what `values` overwrite in `environ`: for each variable of `values` that has a
    value there, one whose name begins with SAVED and which has that value. `restored` brings the values back.
    """
    kept = {name: before(environ, name, value) for name, value in values.items()}
    return {f"{SAVED}{name}": value for name, value in kept.items() if value is not None}


def unredirected(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as it was before the shell took over redrive's variables: each variable of which `saved` kept
    the earlier value has that value again.
    """
    kept = {name.removeprefix(SAVED): value for name, value in environ.items() if name.startswith(SAVED)}
    return {**environ, **kept}


def restored(values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str | None]:
    """The changes of `environ` that undo `values`: each of these variables gets back the value that `saved` kept, or
    None, which removes it; the variables that kept values are removed too.
    """
    kept = {name: environ.get(f"{SAVED}{name}") for name in values}
    return {**kept, **{f"{SAVED}{name}": None for name, value in kept.items() if value is not None}}


def replaced_proxies(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """The lines that tell a user of the proxies that the variables replace, without their passwords. `environ`: the
    environment variables before that.
    """
    ours = variables(settings)
    replaced: dict[str, list[str]] = {}
    for name in PROXY_NAMES:
        value = before(environ, name, ours[name])
        if value is not None and not _is_ours(settings, value):
            replaced.setdefault(_without_password(value), []).append(name)
    if settings.via_proxy is not None:
        return []
    return [
        f"this replaces the proxy {url} ({', '.join(names)}); if requests must go through it, add "
        f"`via_proxy: {url}` to the configuration"
        for url, names in replaced.items()
    ]


def _is_ours(settings: Settings, url: str) -> bool:
    return any(url.rstrip("/") == f"http://{address.nearby}" for address in settings.listen if address.unix is None)


def _without_password(url: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _appended(environ: Mapping[str, str], name: str) -> str:
    """The value that the variable `name` (one of NO_PROXY_NAMES) gets: the hosts that `environ` already excludes from a
    proxy, and those that redrive excludes. The hosts come from both spellings (`no_proxy`, `NO_PROXY`): a client reads
    only one of the two, and which one it reads must not matter.
    """
    ours = NO_PROXY.split(",")
    named = dict.fromkeys((name, *NO_PROXY_NAMES))
    theirs = [host.strip() for each in named for host in (before(environ, each) or "").split(",")]
    return ",".join([*dict.fromkeys(host for host in theirs if host and host not in ours), *ours])


def _trust_store(settings: Settings) -> Path:
    """The path of the trust store for Java that `redrive ca export --to` writes if it is given the CA's own folder."""
    return Path(settings.ca.cert).with_name("truststore.p12")


def _java(address: Address, settings: Settings, environ: Mapping[str, str], app: str) -> str:
    """The system properties that send the traffic of java.net through the proxy at this address, and, if redrive ends
    the TLS of apps, make it trust the local CA; grpc-java reads them too. The hosts to exclude are those of NO_PROXY,
    IPv6 in brackets. Options that are set already come first. `app`: the name that libraries and an app's own
    Authenticator find in the properties of the proxy's user, "" for none.
    """
    hosts = (f"[{host}]" if ":" in host else host for host in NO_PROXY.split(","))
    proxies = (
        f"-D{scheme}.proxyHost={address.host} -D{scheme}.proxyPort={address.port}" for scheme in ("http", "https")
    )
    users = (f"-D{scheme}.proxyUser={app} -D{scheme}.proxyPassword=x" for scheme in ("http", "https") if app)
    options = [*proxies, *users, f"-Dhttp.nonProxyHosts={'|'.join(hosts)}"]
    if intercepts(settings):
        options += [
            f"-Djavax.net.ssl.trustStore={_trust_store(settings)}",
            "-Djavax.net.ssl.trustStoreType=PKCS12",
            "-Djavax.net.ssl.trustStorePassword=changeit",  # that of every JDK's own store: it holds nothing secret
        ]
    theirs = before(environ, "JAVA_TOOL_OPTIONS")
    if theirs is not None and options[0] not in theirs:
        options.insert(0, theirs)
    return " ".join(options)


def lines(values: Mapping[str, str | None], shell: str) -> Iterator[str]:
    """Yield the lines in which `shell` (sh, fish, powershell, dotenv) reads the variables of `values`, one for each;
    None removes a variable (not for dotenv). Raises NotWritableError.
    """
    for name, value in values.items():
        if value is None:
            removes = {"fish": f"set -e {name};", "powershell": f"Remove-Item Env:{name} -ErrorAction Ignore"}
            yield removes.get(shell, f"unset {name}")
        elif shell == "fish":  # fish knows two escapes between single quotes
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            yield f"set -gx {name} '{escaped}';"
        elif shell == "powershell":
            doubled = _POWERSHELL_QUOTES.sub(r"\1\1", value)
            yield f"$env:{name} = '{doubled}'"
        elif shell == "dotenv":
            yield f"{name}={_dotenv(name, value)}"
        else:
            yield f"export {name}={shlex.quote(value)}"


def _dotenv(name: str, value: str) -> str:
    """The value of the variable `name` as a .env file has it, in quotes if need be. There is no standard for such
    files, and readers differ about escapes, so a value that would need one raises NotWritableError.
    """
    if _PLAIN.fullmatch(value):
        return value
    if re.search(r"['\\\r\n]", value):
        raise NotWritableError(
            f"{name} contains a quote, a backslash or a line end, which readers of .env files handle differently"
        )
    return f"'{value}'"


def _of_certificates(settings: Settings) -> dict[str, str]:
    """The environment variables that make apps trust the local CA; none if redrive ends no app's TLS."""
    if not intercepts(settings):
        return {}
    cert = Path(settings.ca.cert)
    bundle = str(cert.with_name("bundle.pem"))
    return {**dict.fromkeys(BUNDLE_NAMES, bundle), CA_NAME: str(cert)}


def warn_if_missing(settings: Settings, *, java: bool = False) -> None:
    """Print a warning if the variables for apps name files of the CA that do not exist; with `java`, also if the trust
    store does not.
    """
    if java and intercepts(settings) and not _trust_store(settings).exists():
        folder = Path(settings.ca.cert).parent
        _print_note(f"missing: {_trust_store(settings)}: run redrive ca export --to {folder} to make it")
    missing = sorted({path for path in _of_certificates(settings).values() if not Path(path).exists()})
    if missing:
        _print_note(f"missing: {' and '.join(missing)}: run redrive ca init to make them; apps fail until then")


def init(settings: Settings, hosts: list[str], *, if_missing: bool = False) -> None:
    """Make the CA for `hosts`, and print what to do with it; with `if_missing`, an existing CA is described instead.
    Raises CaError, also if the existing CA is not for all of `hosts`.
    """
    needed()
    from proxy.server.intercept import ca

    if if_missing and ca.is_there(Path(settings.ca.cert), Path(settings.ca.key), hosts, _now()):
        _print_description(settings)
        return
    made = ca.init(Path(settings.ca.cert), Path(settings.ca.key), hosts, _now(), unredirected(os.environ))
    _print_description(settings)
    _print_roots(len(made.roots.blocks), made.roots.source)
    _print_note('to make apps trust it: eval "$(redrive env)", where an upstream has connect: intercept')


def show(settings: Settings) -> None:
    """Print a description of the CA. Raises CaError."""
    needed()
    _print_description(settings)


def export(settings: Settings, *, bundle: bool = False, folder: str | None = None) -> None:
    """Print the CA's certificate; with `bundle`, print instead the bundle of it and of the certificates that the
    machine trusts now; with `folder`, write the files that apps of any language read into that folder. Raises CaError.
    """
    needed()
    from cryptography.hazmat.primitives.serialization import Encoding

    from proxy.server.intercept import ca

    cert = Path(settings.ca.cert)
    if folder is not None:
        written, roots = ca.export(cert, Path(folder), unredirected(os.environ))
        _print_note(f"written: {', '.join(map(str, written))}")
        _print_roots(len(roots.blocks), roots.source)
        return
    if not bundle:
        print(ca.load_chain(cert)[0].public_bytes(Encoding.PEM).decode("ascii"), end="")
        return
    roots, text = ca.bundle(cert, unredirected(os.environ))
    print(text, end="")
    _print_roots(len(roots.blocks), roots.source)


def _print_description(settings: Settings) -> None:
    from proxy.server.intercept import ca

    for label, value in ca.describe(Path(settings.ca.cert), Path(settings.ca.key), _now()):
        print(f"{label + ':':<13}{value}")


def _print_roots(count: int, source: str) -> None:
    if count:
        _print_note(f"the bundle has the {count} roots of {source}, and this CA")
    else:
        _print_note("this machine has no root certificates (install ca-certificates): the bundle holds only this CA")


def _print_note(text: str) -> None:
    print(f"redrive: {text}", file=sys.stderr)


def _now() -> datetime:
    return datetime.fromtimestamp(wall(), UTC)
