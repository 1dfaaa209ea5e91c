"""The parser of the command line: its verbs with their options and arguments, and what is said of bad usage.

What a verb does is written in `proxy.cli`: this module imports nothing of what a verb needs.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from proxy import __version__

#: The exit status of bad usage, as `proxy.cli` has it of bad input.
BAD_USAGE = 2

#: The sort orders of `top`; the first is the default.
ORDERS = ("state", "name", "calls", "success", "attempts", "p95", "bucket", "cooldown")

#: config/examples of the checkout, installed with the package.
EXAMPLES = Path(__file__).parent / "examples"

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
    """The option that prints the version, and whether the compiled core is in use or the one in Python; a compiled core
    that is older than its source is called so, since `redrive run` may refuse it.
    """

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from proxy.stale_build import warning
        from proxy.wire.http1.compiled import CORE

        older = ", older than its source: run `make core`" if warning() else ""
        print(f"redrive {__version__} ({CORE} core{older})")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser that reports bad usage in one line, which suggests the nearest verb if one resembles what was typed."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse what the verb takes, and refuse the rest here, so that the message names the verb's own --help."""
        self._typed = [str(each) for each in args or ()]
        taken, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{self._hint(rest)}")
        return taken, rest

    def _hint(self, rest: list[str]) -> str:
        """Say where a file belongs that was named without its option, or which option resembles one that was typed; ""
        if the arguments in `rest` are something else.
        """
        options = self._option_string_actions
        wrong = next((each.partition("=")[0] for each in rest if each.startswith("--") and each != "--"), "")
        if wrong:
            import difflib

            near = next(iter(difflib.get_close_matches(wrong, options, 1)), None)
            return f" (did you mean {near}?)" if near else ""
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
        message = re.sub(r"argument (\S+): (a number .*)", r"\1 takes \2", message)
        message = re.sub(r"argument (\S+): (names no file)", r"\1 \2", message)
        message = re.sub(r"argument (\S+): expected (?:one|at least one) argument", r"\1 needs a value", message)
        if missing := re.fullmatch(r"the following arguments are required: (\S+)", message):
            message += self._what_is_missing(missing[1])
        self.exit(BAD_USAGE, f"redrive: {message}; {self.prog} --help says more\n")

    def _what_is_missing(self, name: str) -> str:
        """Say what can stand for an argument that is missing: its choices, or the method before a URL; "" if anything
        can.
        """
        choices = next((each.choices for each in self._actions if each.metavar == name and each.choices), None)
        if choices:
            return f" (one of {', '.join(map(str, choices))})"
        url = next((each for each in self._typed if "://" in each), None) if name == "URL" else None
        return f" (METHOD comes first: {self.prog} GET {url})" if url else ""


def _takes_config(verb: argparse.ArgumentParser) -> None:
    places = "$REDRIVE_CONFIG, redrive.yaml, config/redrive.yaml, /etc/redrive/redrive.yaml, the defaults"
    help_text = f"the configuration; without it, the first found of {places}"
    verb.add_argument("-c", "--config", type=_file_name, metavar="FILE", help=help_text)


def _file_name(text: str) -> str:
    """Refuse an empty name, which a script passes if its variable is not set."""
    if not text:
        raise argparse.ArgumentTypeError("names no file: it is empty")
    return text


def _takes_admin(verb: argparse.ArgumentParser, words: str = ", as") -> None:
    """Add the option --admin. `words` stand in its help text between "the admin port" and the form of the address."""
    help_text = f"the admin port{words} http://HOST:PORT or unix:/path (default: the configuration's)"
    verb.add_argument("--admin", metavar="URL", help=f"{help_text}; its token is that of -c, or $REDRIVE_ADMIN_TOKEN")


def _run(verb: argparse.ArgumentParser) -> None:
    help_text = (
        "take over the listeners of the redrive that runs with this configuration, which then lets its calls finish; "
        "PATH: of the one that was started with the same PATH"
    )
    verb.add_argument("--take-over", nargs="?", const="", metavar="PATH", help=help_text)


def _check(verb: argparse.ArgumentParser) -> None:
    option = verb.add_argument
    help_text = "text for people, json for editors, github for pull-request annotations (default: %(default)s)"
    option("--format", choices=("text", "json", "github"), default="text", help=help_text)
    option("--notes", action="store_true", help="also print notes: figures worth knowing, such as when a bucket drains")
    option("file", nargs="?", metavar="FILE", help="the configuration, as with -c")


def _explain(verb: argparse.ArgumentParser) -> None:
    option = verb.add_argument
    option("method", metavar="METHOD", help="the request's method, or CONNECT")
    option("url", metavar="URL", help="http://…, /… as a base URL's path, or HOST:PORT for CONNECT")
    either = verb.add_mutually_exclusive_group().add_argument
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
    _takes_admin(verb, " to ask for that:")
    help_text = "a file with the request's body, for its estimate; or the answer's body, for rules that look into it"
    option("--body", default="", metavar="FILE", help=help_text)


def _test(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("files", nargs="+", metavar="FILE", help="policy tests, one file or several")
    verb.add_argument("--json", action="store_true", help="print one JSON array")


def _simulate(verb: argparse.ArgumentParser) -> None:
    help_text = "who calls, and what happens to the upstream (default: a restart, from the examples)"
    verb.add_argument("--scenario", metavar="FILE", help=help_text)
    verb.add_argument("--json", action="store_true", help="print the figures as JSON")
    verb.add_argument("--plot", metavar="FILE", help="write a chart of it, as SVG")


def _demo(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--seconds", type=_seconds, metavar="N", help="end after N seconds (default: at Ctrl-C)")
    verb.add_argument("--json", action="store_true", help="print only the figures, as JSON (needs --seconds)")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"a number of seconds from 1 to 86400, not {text}")
    return value


def _number(text: str) -> int:
    if not re.fullmatch("0*[1-9][0-9]{0,15}", text):
        raise argparse.ArgumentTypeError(f"a number from 1 on, not {text or repr(text)}")
    return int(text)


def _env(verb: argparse.ArgumentParser) -> None:
    option = verb.add_argument
    help_text = "what the lines are for: %(choices)s (default: %(default)s)"
    option("--shell", choices=("sh", "fish", "powershell", "dotenv"), default="sh", help=help_text)
    option("--java", action="store_true", help="also JAVA_TOOL_OPTIONS, which every JVM reports when it starts")
    option("--app", metavar="NAME", help="the name by which redrive is to know the app (`apps` in the configuration)")
    option("--unset", action="store_true", help="print the lines that unset the variables again")


def _exec(verb: argparse.ArgumentParser) -> None:
    option = verb.add_argument
    help_text = "also read its HTTPS requests to the configuration's upstreams, with a CA made for this command"
    option("--intercept", action="store_true", help=help_text)
    option("--quiet", action="store_true", help="say nothing on standard error, not even what became of its calls")
    option("command", nargs=argparse.REMAINDER, metavar="-- CMD", help="the command and its arguments")


def _init(verb: argparse.ArgumentParser) -> None:
    help_text = "upstreams to begin with: a provider's name, or the URL of any other service"
    verb.add_argument("providers", nargs="*", metavar="PROVIDER", help=help_text)
    verb.add_argument("--file", default="redrive.yaml", metavar="FILE", help="where to write it (default: %(default)s)")


def _completion(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="one of %(choices)s")


def _top(verb: argparse.ArgumentParser) -> None:
    option = verb.add_argument
    _takes_admin(verb)
    option("--once", action="store_true", help="print the table once (implied if the output is not a terminal)")
    option("--json", action="store_true", help="print the figures once, as one JSON object")
    option("--sort", choices=ORDERS, default=ORDERS[0], help="what to sort by: %(choices)s (default: %(default)s)")
    option("--filter", metavar="TEXT", default="", help="only upstreams with TEXT in their name")


def _requests(verb: argparse.ArgumentParser) -> None:
    option = verb.add_argument
    _takes_admin(verb)
    option("--follow", action="store_true", help="print new calls as they end, until Ctrl-C")
    option("--json", action="store_true", help="print each call as one JSON object, with its attempts")
    option("--limit", type=_number, default=20, metavar="N", help="at most so many (default: %(default)s)")
    option("--notable", action="store_true", help="only calls that were retried or refused, or did not succeed")
    for name, meant in (
        ("upstream", "calls to this upstream"),
        ("route", "calls under this route"),
        ("outcome", "calls with this outcome, such as attempts_exhausted"),
        ("status", "calls that got this status: 503, or 5xx"),
        ("app", "calls of this app: its name under apps, or the product that its User-Agent names"),
    ):
        option(f"--{name}", metavar=name.upper(), help=f"only {meant}")


def _why(verb: argparse.ArgumentParser) -> None:
    _takes_admin(verb)
    verb.add_argument("--json", action="store_true", help="print the call as one JSON object")
    help_text = "the call's number, as redrive requests shows it (default: the last call that was retried or failed)"
    verb.add_argument("number", type=_number, nargs="?", metavar="ID", help=help_text)


def _ca(verb: argparse.ArgumentParser) -> None:
    verbs = verb.add_subparsers(title="verbs", metavar="VERB", dest="ca", required=True)
    help_text = "make the CA (its key readable only by its owner), and bundle.pem next to it"
    made = verbs.add_parser("init", help=help_text, description=help_text)
    help_text = "only for these hosts and their subdomains (name constraints)"
    made.add_argument("--for", dest="hosts", nargs="+", action="extend", default=[], metavar="HOST", help=help_text)
    help_text = "if there is a CA for these hosts already, keep it and exit 0"
    made.add_argument("--if-missing", action="store_true", help=help_text)
    help_text = "print where the CA is, its fingerprint, its hosts, and how long it is valid"
    shown = verbs.add_parser("show", help=help_text, description=help_text)
    help_text = "print the CA's certificate, for a trust store"
    exported = verbs.add_parser("export", help=help_text, description=help_text)
    what = exported.add_mutually_exclusive_group()
    what.add_argument("--bundle", action="store_true", help="print the machine's current roots and the CA")
    help_text = "write cert.pem, bundle.pem and truststore.p12 (for Java) to this folder, for apps in other containers"
    what.add_argument("--to", metavar="FOLDER", help=help_text)
    for each in (made, shown, exported):
        _takes_config(each)


class _Verb(NamedTuple):
    """A verb as the command line has it. `options` adds its options and arguments, None if it has none; `config`: it
    takes the configuration, with -c.
    """

    help_text: str
    options: Callable[[argparse.ArgumentParser], None] | None = None
    config: bool = True


#: The verbs by their names, in the order of `--help`.
_VERBS = {
    "run": _Verb("serve until SIGTERM or Ctrl-C; reload the file when it changes", _run),
    "check": _Verb("validate a configuration; print every error and warning", _check),
    "explain": _Verb("which upstream, route, strategy, bucket apply, and what would happen next", _explain),
    "test": _Verb("run policy tests", _test, config=False),
    "simulate": _Verb("play a policy through an outage, next to no retries and immediate ones", _simulate),
    "demo": _Verb("a flaky upstream, the proxy in front, traffic, and a live view", _demo, config=False),
    "schema": _Verb("print the JSON Schema of the configuration", config=False),
    "env": _Verb('print the lines that point an app here: eval "$(redrive env)"', _env),
    "exec": _Verb("run one command with a redrive of its own in front of its requests", _exec),
    "init": _Verb("write a small redrive.yaml with comments, to begin with", _init, config=False),
    "completion": _Verb("print the script that completes these verbs in a shell", _completion, config=False),
    "healthcheck": _Verb("exit 0 when a running redrive is ready"),
    "top": _Verb("show the upstreams of a running redrive as a live table", _top),
    "requests": _Verb("print the last calls of a running redrive, and follow new ones", _requests),
    "why": _Verb("print why a call of a running redrive was, or was not, retried, and what helps", _why),
    "ca": _Verb("make, show or export the local CA for TLS interception", _ca, config=False),
}


def make_parser(carry_out: Mapping[str, Callable[[argparse.Namespace], int]]) -> argparse.ArgumentParser:
    """Make the parser of the command line. The attribute `verb` of what it parses is the function that `carry_out` has
    under the verb's name, None if no verb was named.
    """
    parser = _Parser(
        prog="redrive",
        description="A retrying HTTP sidecar.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"try it:         redrive demo\nhelp on a verb: redrive VERB --help\nexamples:       {EXAMPLES}",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and which core is in use")
    parser.set_defaults(verb=None)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    for name, verb in _VERBS.items():
        made = verbs.add_parser(name, help=verb.help_text, description=verb.help_text)
        made.set_defaults(verb=carry_out[name])
        if verb.config:
            _takes_config(made)
        if verb.options is not None:
            verb.options(made)
    return parser
