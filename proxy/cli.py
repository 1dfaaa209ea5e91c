"""The command line (contract, section 2).

This module builds nothing itself, and imports what a verb needs only when that verb is used. Answers go to standard
output, errors to standard error, one a line. Exit status: 0 fine; 1 the thing asked about does not hold; 2 bad usage or
bad input. A user's mistake never gives a traceback.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from proxy import __version__

if TYPE_CHECKING:
    from proxy.config.load import LoadResult
    from proxy.config.settings import Address
    from proxy.top.client import AdminPort

FINE, DOES_NOT_HOLD, BAD_INPUT = 0, 1, 2

#: The sort orders of `top`; the first is the default.
ORDERS = ("state", "name", "calls", "success", "attempts", "p95", "bucket", "cooldown")

#: config/examples of the checkout, installed with the package.
EXAMPLES = Path(__file__).parent / "examples"

Verb = Callable[[argparse.Namespace], int]


#: Other tools' words for what a verb or an option does here.
_OTHERS = {
    **dict.fromkeys(("serve", "server", "start", "up"), "run"),
    **dict.fromkeys(("validate", "lint", "verify"), "check"),
    **dict.fromkeys(("status", "stats", "ps", "list"), "top"),
    **dict.fromkeys(("logs", "tail", "calls", "history"), "requests --follow"),
    **dict.fromkeys(("new", "setup", "generate"), "init"),
    **dict.fromkeys(("version",), "--version"),
    **dict.fromkeys(("help",), "--help"),
}


class _Version(argparse.Action):
    """Prints the version, and whether the compiled core is in use or the one in Python."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from proxy.wire.http1.compiled import CORE

        print(f"redrive {__version__} ({CORE} core)")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Reports bad usage in one line, which suggests the nearest verb if one resembles what was typed."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse what the verb takes, and refuse the rest here, so that the message names the verb's own --help."""
        taken, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{self._hint(rest)}")
        return taken, rest

    def _hint(self, rest: list[str]) -> str:
        """Say where a file belongs that was named without its option; "" if the arguments in `rest` are something
        else.
        """
        options = self._option_string_actions
        if rest[0] in ("-c", "--config"):
            return " (a policy test names its configuration under config:)" if self.prog.endswith(" test") else ""
        if len(rest) != 1 or not rest[0].endswith((".yaml", ".yml")):
            return ""
        option = next((each for each in ("--scenario", "-c") if each in options), None)
        return f" (did you mean {option} {rest[0]}?)" if option else ""

    def error(self, message: str) -> NoReturn:
        chosen = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if chosen and not message.startswith("argument VERB"):
            option, choices = message.split(":")[0].removeprefix("argument "), chosen[2].replace("'", "")
            message = f"{option} takes one of {choices}, not {chosen[1]}"
        elif chosen:
            import difflib

            verbs = re.findall(r"[a-z]+", chosen[2])
            known = _OTHERS if self.prog == "redrive" else {}
            near = known.get(chosen[1]) or next(iter(difflib.get_close_matches(chosen[1], verbs, 1)), None)
            message = f"there is no verb {chosen[1]}" + (f" (did you mean {near}?)" if near else "")
        message = re.sub(r"argument (\S+): invalid int value: '(.*)'", r"\1 takes a number, not \2", message)
        self.exit(BAD_INPUT, f"redrive: {message}; {self.prog} --help says more\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status. `arguments`: those after the command's name, None for those of this
    process.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a character that the terminal can't show is no error
    parser = _parser()
    options = parser.parse_args(arguments)
    verb: Verb | None = getattr(options, "verb", None)
    if verb is None:
        parser.print_help(sys.stderr)
        return BAD_INPUT
    try:
        status = verb(options)
        print(end="", flush=True)
    except BrokenPipeError:  # the reader of our output has closed it
        _silence()
        return FINE
    except OSError as error:  # for example a full disk
        _silence()
        return _refuse(f"{(error.strerror or str(error)).lower()}{f': {error.filename}' if error.filename else ''}")
    except ModuleNotFoundError as error:
        from proxy.extras import missing

        said = missing(error)
        if not said:
            raise
        return _refuse(said)
    except KeyboardInterrupt:
        return 130
    return status


def _silence() -> None:
    """Point standard output at the null device, so that the interpreter does not try to flush it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="redrive",
        description="A retrying HTTP sidecar.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"try it:         redrive demo\nhelp on a verb: redrive VERB --help\nexamples:       {EXAMPLES}",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and which core is in use")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")

    def add(name: str, verb: Verb, help_text: str, *, config: bool = True) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=help_text, description=help_text)
        made.set_defaults(verb=verb)
        if config:
            _takes_config(made)
        return made

    option = add("run", run, "serve until SIGTERM or Ctrl-C; reload the file when it changes").add_argument
    help_text = (
        "take over the listeners of the redrive that runs with this configuration, which then lets its calls finish; "
        "PATH: of the one that was started with the same PATH"
    )
    option("--take-over", nargs="?", const="", metavar="PATH", help=help_text)
    option = add("check", check, "validate a configuration; print every error and warning").add_argument
    help_text = "text for people, json for editors, github for pull-request annotations (default: %(default)s)"
    option("--format", choices=("text", "json", "github"), default="text", help=help_text)
    option("--notes", action="store_true", help="also print notes: figures worth knowing, such as when a bucket drains")
    option("file", nargs="?", metavar="FILE", help="the configuration, as with -c")
    asked = add("explain", explain, "which upstream, route, strategy, bucket apply, and what would happen next")
    option = asked.add_argument
    option("method", metavar="METHOD", help="the request's method, or CONNECT")
    option("url", metavar="URL", help="http://…, /… as a base URL's path, or HOST:PORT for CONNECT")
    either = asked.add_mutually_exclusive_group().add_argument
    either("--status", metavar="N", help="the status that every attempt gets, HTTP or gRPC")
    help_text = (
        "how every attempt fails: connect_failure, refused_stream, reset (or reset:CODE, HTTP/2's), attempt_timeout"
    )
    either("--fail", metavar="KIND", help=help_text)
    field: dict[str, Any] = {"action": "append", "default": [], "metavar": "'Name: value'"}
    help_text = "a field of the request and of the answer (each reads its own); may be repeated"
    option("-H", dest="fields", help=help_text, **field)
    for side in ("request", "answer"):
        option(f"--{side}-header", dest=f"of_{side}", help=f"a field of the {side} only", **field)
    option("--http2", action="store_true", help="the app speaks HTTP/2, as gRPC clients always do")
    option("--json", action="store_true", help="print the same as one JSON object")
    option("--all", action="store_true", help="also list the values that are defaults")
    option("--now", action="store_true", help="also ask the redrive that runs what holds such a call now")
    help_text = "the admin port to ask for that: http://HOST:PORT or unix:/path (default: the configuration's)"
    option("--admin", metavar="URL", help=f"{help_text}; its token is that of -c, or $REDRIVE_ADMIN_TOKEN")
    help_text = "a file with the request's body, for its estimate; or the answer's body, for rules that look into it"
    option("--body", default="", metavar="FILE", help=help_text)
    option = add("test", test, "run policy tests", config=False).add_argument
    option("files", nargs="+", metavar="FILE", help="policy tests, one file or several")
    option("--json", action="store_true", help="print one JSON array")
    option = add(
        "simulate", simulate, "play a policy through an outage, next to no retries and immediate ones"
    ).add_argument
    help_text = "who calls, and what happens to the upstream (default: a restart, from the examples)"
    option("--scenario", metavar="FILE", help=help_text)
    option("--json", action="store_true", help="print the figures as JSON")
    option("--plot", metavar="FILE", help="write a chart of it, as SVG")
    help_text = "a flaky upstream, the proxy in front, traffic, and a live view"
    option = add("demo", demo, help_text, config=False).add_argument
    option("--seconds", type=_seconds, metavar="N", help="end after N seconds (default: at Ctrl-C)")
    option("--json", action="store_true", help="print only the figures, as JSON (needs --seconds)")
    add("schema", schema, "print the JSON Schema of the configuration", config=False)
    option = add("env", env, 'print the lines that point an app here: eval "$(redrive env)"').add_argument
    help_text = "what the lines are for: %(choices)s (default: %(default)s)"
    option("--shell", choices=("sh", "fish", "powershell", "dotenv"), default="sh", help=help_text)
    option("--java", action="store_true", help="also JAVA_TOOL_OPTIONS, which every JVM reports when it starts")
    option("--app", metavar="NAME", help="the name by which redrive is to know the app (`apps` in the configuration)")
    option("--unset", action="store_true", help="print the lines that unset the variables again")
    option = add("exec", exec_, "run one command with a redrive of its own in front of its requests").add_argument
    help_text = "also read its HTTPS requests to the configuration's upstreams, with a CA made for this command"
    option("--intercept", action="store_true", help=help_text)
    option("--quiet", action="store_true", help="say nothing on standard error, not even what became of its calls")
    option("command", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command and its arguments")
    made = add("init", init, "write a small redrive.yaml with comments, to begin with", config=False)
    help_text = "upstreams to begin with: a provider's name, or the URL of any other service"
    made.add_argument("providers", nargs="*", metavar="PROVIDER", help=help_text)
    made.add_argument("--file", default="redrive.yaml", metavar="FILE", help="where to write it (default: %(default)s)")
    made = add("completion", completion, "print the script that completes these verbs in a shell", config=False)
    made.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="one of %(choices)s")
    add("healthcheck", healthcheck, "exit 0 when a running redrive is ready")
    option = add("top", top, "show the upstreams of a running redrive as a live table").add_argument
    help_text = "the admin port, as http://HOST:PORT or unix:/path (default: the configuration's)"
    of_port = f"{help_text}; its token is that of -c, or $REDRIVE_ADMIN_TOKEN"
    option("--admin", metavar="URL", help=of_port)
    option("--once", action="store_true", help="print the table once (implied if the output is not a terminal)")
    option("--json", action="store_true", help="print the figures once, as one JSON object")
    option("--sort", choices=ORDERS, default=ORDERS[0], help="what to sort by: %(choices)s (default: %(default)s)")
    option("--filter", metavar="TEXT", default="", help="only upstreams with TEXT in their name")
    option = add("requests", requests, "print the last calls of a running redrive, and follow new ones").add_argument
    option("--admin", metavar="URL", help=of_port)
    option("--follow", action="store_true", help="print new calls as they end, until Ctrl-C")
    option("--json", action="store_true", help="print each call as one JSON object, with its attempts")
    option("--limit", type=int, default=20, metavar="N", help="at most so many (default: %(default)s)")
    option("--notable", action="store_true", help="only calls that were retried or refused, or did not succeed")
    for name, meant in (
        ("upstream", "calls to this upstream"),
        ("route", "calls under this route"),
        ("outcome", "calls with this outcome, such as attempts_exhausted"),
        ("status", "calls that got this status: 503, or 5xx"),
        ("app", "calls of this app: the product that its User-Agent names"),
    ):
        option(f"--{name}", metavar=name.upper(), help=f"only {meant}")
    option = add(
        "why", why, "print why a call of a running redrive was, or was not, retried, and what helps"
    ).add_argument
    option("--admin", metavar="URL", help=of_port)
    option("--json", action="store_true", help="print the call as one JSON object")
    help_text = "the call's number, as redrive requests shows it (default: the last call that was retried or failed)"
    option("number", type=int, nargs="?", metavar="ID", help=help_text)
    local = add("ca", ca, "make, show or export the local CA for TLS interception", config=False)
    of_ca = local.add_subparsers(title="verbs", metavar="VERB", dest="ca", required=True)
    help_text = "make the CA (its key readable only by its owner), and bundle.pem next to it"
    made = of_ca.add_parser("init", help=help_text, description=help_text)
    help_text = "only for these hosts and their subdomains (name constraints)"
    made.add_argument("--for", dest="hosts", nargs="+", action="extend", default=[], metavar="HOST", help=help_text)
    help_text = "if there is a CA for these hosts already, keep it and exit 0"
    made.add_argument("--if-missing", action="store_true", help=help_text)
    help_text = "print where the CA is, its fingerprint, its hosts, and how long it is valid"
    shown = of_ca.add_parser("show", help=help_text, description=help_text)
    help_text = "print the CA's certificate, for a trust store"
    exported = of_ca.add_parser("export", help=help_text, description=help_text)
    what = exported.add_mutually_exclusive_group()
    what.add_argument("--bundle", action="store_true", help="print the machine's current roots and the CA")
    help_text = "write cert.pem, bundle.pem and truststore.p12 (for Java) to this folder, for apps in other containers"
    what.add_argument("--to", metavar="FOLDER", help=help_text)
    for verb in (made, shown, exported):
        _takes_config(verb)
    return parser


def _takes_config(verb: argparse.ArgumentParser) -> None:
    places = "$REDRIVE_CONFIG, redrive.yaml, config/redrive.yaml, /etc/redrive/redrive.yaml, the defaults"
    verb.add_argument(
        "-c", "--config", metavar="FILE", help=f"the configuration; without it, the first found of {places}"
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"a number of seconds from 1 to 86400, not {text}")
    return value


def run(options: argparse.Namespace) -> int:
    """Serve until a signal ends the process."""
    from proxy.process import end_early

    end_early()
    file, loaded = _load(options, "error", "warning", names_file=False)  # the banner names the file
    if loaded.settings is None:
        return BAD_INPUT
    from proxy.server.late_client import import_aiohttp

    import_aiohttp()
    from proxy.main import serve
    from proxy.take_over import TakeOverError, handover

    try:
        listeners = handover(options.take_over, file, loaded.settings, os.environ)
    except TakeOverError as error:
        print(f"redrive: {error}", file=sys.stderr)
        return DOES_NOT_HOLD
    results = [loaded]
    del loaded  # only the process holds it, so that its first reload frees it
    return serve(file, results.pop, listeners=listeners)


def check(options: argparse.Namespace) -> int:
    """Print all problems of a configuration, or that it has none."""
    from proxy.config import problems as reports

    if options.file is not None:
        if options.config not in (None, options.file):
            return _refuse(f"check takes one file, not {options.config} and {options.file}")
        options.config = options.file
    kinds = ("error", "warning", "note") if options.notes else ("error", "warning")
    as_text = options.format == "text"
    file, loaded = _load(options, *(kinds if as_text else ("none",)))
    problems, settings = loaded.problems, loaded.settings
    names = None if settings is None else len(settings.router.upstreams)
    if options.format == "json":
        print(reports.as_json(file, names, problems))
    elif options.format == "github":
        print("".join(f"{reports.as_github(problem)}\n" for problem in problems), end="")
    else:
        if file is None:
            print("redrive: warning: no configuration file was found: only the defaults are checked", file=sys.stderr)
        if names is not None:
            print(reports.summary(file, names, problems))
        elif sys.stderr.isatty():  # elsewhere standard error has errors alone, one a line
            print(reports.summary(file, names, problems), file=sys.stderr)
    return BAD_INPUT if settings is None else FINE


def explain(options: argparse.Namespace) -> int:
    """Print which policy a request gets, and what the policy would do."""
    from proxy.lab.explain import explain as answer

    named = ("status", "fail", "body", "of_request", "of_answer", "http2")
    asked = {name: getattr(options, name) for name in named}

    def run(now: Callable[[str], list[str]] | None = None) -> int:
        question = options.method, options.url, options.fields
        return answer(options.config, *question, as_json=options.json, every_value=options.all, now=now, **asked)

    if options.admin is None and not options.now:
        return run()
    from proxy.top import holding_now

    status = FINE

    def at(port: AdminPort) -> None:
        nonlocal status
        status = run(lambda name: holding_now(port, name))

    return _at_admin_port(options, at) or status


def test(options: argparse.Namespace) -> int:
    """Run policy tests."""
    from proxy.lab.policy_tests import run_files

    return run_files(options.files, options.json)


def simulate(options: argparse.Namespace) -> int:
    """Play a scenario of traffic and outages under the configuration's policies."""
    from proxy.lab.simulate import simulate as play

    return play(options.config, options.scenario, json=options.json, plot=options.plot)


def demo(options: argparse.Namespace) -> int:
    """Run the demonstration: a flaky upstream, the proxy in front of it, traffic, and a live view."""
    if options.json and options.seconds is None:
        return _refuse("demo --json needs --seconds N: figures are printed at the end")
    from proxy.lab.demo import demo as play

    return play(options.seconds, options.json)


def schema(options: argparse.Namespace) -> int:
    """Print the JSON Schema of the configuration file."""
    import json

    from proxy.config.schema import schema as made

    print(json.dumps(made(), indent=2))
    return FINE


def env(options: argparse.Namespace) -> int:
    """Print, for a shell, the lines that set the environment variables by which an app's calls come to this proxy or,
    with --unset, the lines that restore their earlier values.
    """
    from proxy.app_env import (
        PLAIN_NAME,
        NotWritableError,
        lines,
        replaced_proxies,
        restored,
        saved,
        variables,
        warn_if_missing,
    )

    if options.unset and options.shell == "dotenv":
        return _refuse("a .env file can't unset a variable: leave its lines out")
    settings = _load(options)[1].settings
    if settings is None:
        return BAD_INPUT
    name = options.app or ""
    if name and not PLAIN_NAME.fullmatch(name):
        return _refuse(f"--app {name}: a name has letters, digits, dots, dashes and underscores, and nothing else")
    try:
        dotenv = options.shell == "dotenv"  # for other shells than this one, whose values say nothing there
        values = variables(settings, {} if dotenv else os.environ, java=options.java, app=name)
        if options.unset:
            printed = list(lines(restored(values, os.environ), options.shell))
        else:
            kept = {} if dotenv else saved(values, os.environ)
            printed = list(lines({**values, **kept}, options.shell))
            for line in replaced_proxies(settings, os.environ):
                print(f"redrive: {line}", file=sys.stderr)
    except NotWritableError as error:
        return _refuse(str(error))
    if not options.unset:
        warn_if_missing(settings, java=options.java)
    print("\n".join(printed))
    return FINE


def exec_(options: argparse.Namespace) -> int:
    """Run one command with a redrive in front of its requests."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        return _refuse("exec needs a command: redrive exec -- CMD")
    from proxy.app_env import NotWritableError
    from proxy.app_exec import ExecError
    from proxy.app_exec import run as play
    from proxy.server.intercept import CaError

    try:
        return play(options.config, command, intercept=options.intercept, quiet=options.quiet)
    except ExecError as error:
        print(*(f"redrive: {line}" for line in str(error).splitlines()), sep="\n", file=sys.stderr)
        return error.status
    except (CaError, NotWritableError) as error:
        return _refuse(str(error))


def init(options: argparse.Namespace) -> int:
    """Write a configuration to begin with to the file `options.file`, with the upstreams `options.providers`, and print
    what to do next. Exit status: 0, or 2 if the file exists or can't be written, or if a provider is unknown.
    """
    from proxy.app_init import InitError, write

    try:
        for line in write(Path(options.file), options.providers):
            print(line)
    except InitError as error:
        return _refuse(str(error))
    return FINE


def completion(options: argparse.Namespace) -> int:
    """Print the script that completes the command line in a shell."""
    from proxy.completion import script

    print(script(_parser(), options.shell), end="")
    return FINE


def ca(options: argparse.Namespace) -> int:
    """Make, show or export the local CA, with which redrive intercepts TLS."""
    settings = _load(options)[1].settings
    if settings is None:
        return BAD_INPUT
    from proxy.app_env import export, init, show
    from proxy.server.intercept import CaError

    try:
        if options.ca == "init":
            init(settings, options.hosts, if_missing=options.if_missing)
        elif options.ca == "show":
            show(settings)
        else:
            export(settings, bundle=options.bundle, folder=options.to)
    except CaError as error:
        return _refuse(str(error))
    return FINE


def healthcheck(options: argparse.Namespace) -> int:
    """Ask a running redrive whether it is ready."""
    settings = _load(options)[1].settings
    if settings is None:
        return BAD_INPUT
    address = settings.probe or (settings.admin.listen if settings.admin else None)
    if address is None:
        return _refuse("neither admin nor probe is on: there is nothing to ask")
    why_not = _why_not_ready(address, settings.admin.token if settings.admin else "")
    if why_not:
        print(f"redrive: {why_not}", file=sys.stderr)
        return DOES_NOT_HOLD
    return FINE


def top(options: argparse.Namespace) -> int:
    """Show the upstreams of a running redrive as a table."""
    from proxy.top import Selection
    from proxy.top import top as show

    look = Selection(options.sort, filter=options.filter)
    return _at_admin_port(options, lambda port: show(port, look, once=options.once, as_json=options.json))


def requests(options: argparse.Namespace) -> int:
    """Print the last calls of a running redrive."""
    from proxy.top.calls import requests as show

    asked = {
        name: value for name in ("upstream", "route", "outcome", "status", "app") if (value := vars(options)[name])
    }
    asked |= {"limit": str(max(options.limit, 0)), **({"only": "notable"} if options.notable else {})}
    return _at_admin_port(options, lambda port: show(port, asked, follow=options.follow, as_json=options.json))


def why(options: argparse.Namespace) -> int:
    """Print why a call of a running redrive ended as it did."""
    from proxy.top.calls import why as show

    return _at_admin_port(options, lambda port: show(port, options.number, as_json=options.json))


def _at_admin_port(options: argparse.Namespace, show: Callable[[AdminPort], None]) -> int:
    """Call `show` with the admin port that the options name; return the exit status."""
    from proxy.top import AdminError, admin_port, named_port

    settings = None
    if options.admin is None or options.config is not None:
        settings = _load(options)[1].settings
        if settings is None:
            return BAD_INPUT
    try:
        if settings is not None and options.admin is None:
            port = admin_port(settings)
        else:
            kept = settings.admin.token if settings is not None and settings.admin else ""
            port = named_port(options.admin, kept or os.environ.get("REDRIVE_ADMIN_TOKEN", ""))
        show(port)
    except AdminError as error:
        _refuse(str(error))
        return BAD_INPUT if error.usage else DOES_NOT_HOLD
    return FINE


def _why_not_ready(address: Address, token: str) -> str:
    """Why the process at this address of an admin port or a probe is not ready, in words; "" if it answers that it is.
    `token`: the admin port's, "" for none. The request uses the standard library alone and no proxy from the
    environment, and takes a few seconds at most.
    """
    import socket
    from http.client import HTTPConnection, HTTPException

    seconds = 3.0
    connection = HTTPConnection("localhost", timeout=seconds)
    try:
        if address.unix is None:
            connection.sock = socket.create_connection((address.nearby.host, address.port), seconds)
        else:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(seconds)
            connection.sock.connect(address.unix)
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


def _load(options: argparse.Namespace, *kinds: str, names_file: bool = True) -> tuple[str | None, LoadResult]:
    """Load the configuration file that a verb works on; return its path (None for the defaults alone) and the result of
    loading it. Problems of the given kinds are printed (only errors, if no kind is given). With `names_file`, the path
    of an accepted file is printed; that of a refused file only if the command line did not name it.
    """
    from proxy.config.load import find, load, taken
    from proxy.config.provenance import uncollected

    file = find(options.config, os.environ)
    with uncollected():
        result = load(file, os.environ)
    if names_file if result.settings is not None else options.config is None:  # errors begin with the file's name
        print(taken(options.config, os.environ), file=sys.stderr)
    shown = [problem for problem in result.problems if problem.severity in (kinds or ("error",))]
    if shown and sys.stderr.isatty():
        from proxy.config.problems import to_terminal

        to_terminal(shown)
    else:
        for problem in shown:
            print(problem, file=sys.stderr)
    return file, result


def _refuse(message: str) -> int:
    from proxy.config.problems import printable

    print(f"redrive: {printable(message)}", file=sys.stderr)
    return BAD_INPUT
