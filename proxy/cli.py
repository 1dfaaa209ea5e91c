"""The command line (contract, section 2).

This module builds nothing itself, and imports what a verb needs only when that verb is used. Answers go to standard
output, errors to standard error, one a line. Exit status: 0 fine; 1 the thing asked about does not hold; 2 bad usage or
bad input. A user's mistake never gives a traceback.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import argparse

    from proxy.config.load import LoadResult
    from proxy.config.settings import Address
    from proxy.top.client import AdminPort

FINE, DOES_NOT_HOLD, BAD_INPUT = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status. `arguments`: those after the command's name, None for those of this
    process.
    """
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        is_own = sys.stdout is sys.__stdout__  # else it is another program's, which closes it
        if is_own and isinstance(sys.stdout.buffer, io.RawIOBase):  # PYTHONUNBUFFERED: a half write would lose the rest
            output = io.BufferedWriter(sys.stdout.buffer)
            sys.stdout = io.TextIOWrapper(output, sys.stdout.encoding, line_buffering=True)
        sys.stdout.reconfigure(errors="replace")  # a character that the terminal can't show is no error
    try:
        if (options := _parsed(arguments)) is None:
            return BAD_INPUT
        status: int = options.verb(options)
        print(end="", flush=True)
    except BrokenPipeError:  # the reader of our output has closed it
        _silence()
        return FINE
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _silence()  # rich says so with a status of 1
        return FINE
    except OSError as error:  # for example a full disk
        _silence()
        if isinstance(error, FileNotFoundError) and error.filename is None:  # only `getcwd` names no file
            return _refuse("the folder in which this was started is gone: cd to one that exists")
        return _refuse(f"{(error.strerror or str(error)).lower()}{f': {error.filename}' if error.filename else ''}")
    except Exception as error:  # a compiled core that is older than its source misses names and parameters of it
        from proxy.extras import missing
        from proxy.stale_build import warning

        said = (missing(error) if isinstance(error, ModuleNotFoundError) else "") or warning()
        if not said:
            raise
        return _refuse(said)
    except KeyboardInterrupt:
        return 130
    return status


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace | None:
    """Parse the command line; None if it names no verb. --help, --version and bad usage raise `SystemExit`, once what
    they print is written.
    """
    options = _usual_run(sys.argv[1:] if arguments is None else list(arguments))
    if options is not None:
        return options
    parser = _parser()
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit:
        print(end="", flush=True)  # a full disk is an error here as for every verb
        raise
    if parsed.verb is None:
        parser.print_help(sys.stderr)
        return None
    return parsed


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the process began without (`>&-`). A socket would get its
    number otherwise, and be taken for it: libuv ends the process when such a socket is closed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            os.set_inheritable(opened, True)  # workers and commands begin with it
            if getattr(sys, name) is None:
                setattr(sys, name, open(opened, "w" if number else "r", errors="replace", closefd=False))  # noqa: SIM115


def _silence() -> None:
    """Point standard output at the null device, so that the interpreter does not try to flush it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(options: argparse.Namespace) -> int:
    """Serve until a signal ends the process."""
    from proxy.early_signals import end_early

    end_early()
    from proxy.stale_build import warning

    if said := warning():
        print(f"redrive: warning: {said}", file=sys.stderr)
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

    return _at_admin_port(options, at, names_file=False) or status  # `answer` names it


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
        why_not_known,
    )

    if options.unset and options.shell == "dotenv":
        return _refuse("a .env file can't unset a variable: leave its lines out")
    settings = _load(options)[1].settings
    if settings is None:
        return BAD_INPUT
    name = options.app or ""
    if options.app is not None and not PLAIN_NAME.fullmatch(name):
        shown = name or repr("")  # a variable of a script that is not set, say
        return _refuse(f"--app {shown}: a name has letters, digits, dots, dashes and underscores, and nothing else")
    if name and (why := why_not_known(settings, name)):
        print(f"redrive: --app {name}: {why}", file=sys.stderr)
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
        print(error, file=sys.stderr)
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


def _at_admin_port(options: argparse.Namespace, show: Callable[[AdminPort], None], *, names_file: bool = True) -> int:
    """Call `show` with the admin port that the options name; return the exit status. `names_file`: see `_load`."""
    from proxy.top import AdminError, admin_port, named_port

    settings = None
    if options.admin is None or options.config is not None:
        settings = _load(options, names_file=names_file)[1].settings
        if settings is None:
            if options.admin is None:
                _refuse("a redrive that still runs with the earlier file is asked with --admin http://HOST:PORT")
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
        text = answer.read(200).decode("utf-8", "replace").strip().partition("\n")[0]
    except (OSError, HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error)
        return f"nothing answers at {address}: {why[:1].lower()}{why[1:]}"
    finally:
        connection.close()
    if answer.status == 404:
        return f"what answers at {address} is not redrive's admin port or its probe"
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


def _usual_run(arguments: list[str]) -> argparse.Namespace | None:
    """Parse the command line of nearly all processes that serve, `run` with or without a file; None if it is another
    one. The parser of all verbs, with what it imports, would stay in the memory of each of these processes.
    """
    match arguments:
        case ["run"]:
            file = None
        case ["run", "-c" | "--config", file] if file and not file.startswith("-"):
            pass
        case _:
            return None
    return cast("argparse.Namespace", SimpleNamespace(verb=run, version=None, config=file, take_over=None))


def _parser() -> argparse.ArgumentParser:
    from proxy.command_parser import make_parser

    return make_parser(
        {
            "run": run,
            "check": check,
            "explain": explain,
            "test": test,
            "simulate": simulate,
            "demo": demo,
            "schema": schema,
            "env": env,
            "exec": exec_,
            "init": init,
            "completion": completion,
            "healthcheck": healthcheck,
            "top": top,
            "requests": requests,
            "why": why,
            "ca": ca,
        }
    )
