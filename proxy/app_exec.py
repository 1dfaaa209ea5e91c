"""`redrive exec`: one command, with a redrive of its own in front of its requests for as long as it runs.

The redrive is a process of its own on free ports. It ends when this process ends, however that happens. The command
gets the variables of `redrive env`; its exit status, or the signal that ended it, becomes ours, and signals are passed
on to it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO, Any

from proxy.app_env import replaced_proxies, unredirected, variables, warn_if_missing
from proxy.config.load import LoadResult, find, load, taken
from proxy.config.settings import Address, Settings
from proxy.config.yaml_tree import Map, adopt
from proxy.server.intercept import intercepts, needed

#: The exit statuses of a shell for a command that it can't run, and for one that it can't find.
NOT_RUNNABLE, NOT_FOUND = 126, 127
#: Signals that are passed on; those of the terminal only if they did not come from it, since then the command has them.
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGQUIT)
_OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
#: Signals whose default leaves a core dump, which would be ours.
_WITH_A_CORE = {signal.SIGQUIT, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE}
_WITH_A_CORE |= {signal.SIGSEGV, signal.SIGSYS, signal.SIGXCPU, signal.SIGXFSZ}
#: The redrive of a command: it ends where its standard input does.
_CODE = """
import os, signal, sys, threading

def watch():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=watch, daemon=True).start()

from proxy.app_exec import serve

serve(sys.argv[1] or None, sys.argv[2])
"""


class ExecError(Exception):
    """Raised if the command could not be begun; the text is lines for people, as standard error gets them. `status`:
    the exit status of this process.
    """

    def __init__(self, lines: str, status: int) -> None:
        super().__init__(lines)
        self.status = status


class _Edit:
    """The changes that `exec` makes to a configuration: free ports, one process, a log to read, and, with `ca`, the
    folder of a CA that was made for the command.
    """

    def __init__(self, file: str | None, ca: str, *, intercept: bool) -> None:
        self._file = file
        self._values: dict[str, Any] = {
            "listen": "127.0.0.1:0",
            "admin": "127.0.0.1:0",
            "probe": "off",
            "workers": "1",
            "log": {"format": "json"},
        }
        if ca:
            self._values["ca"] = {"cert": f"{ca}/cert.pem", "key": f"{ca}/key.pem"}
        self._intercept = intercept

    def __call__(self, tree: Map) -> None:
        if self._file is not None and tree.mark.file != self._file:  # a file that is included has none of these
            return
        for key, value in self._values.items():
            tree.put(key, adopt(value, tree.mark), tree.mark)
        if self._intercept:
            defaults = tree.sub("defaults").copy()
            defaults.put("connect", adopt("intercept", tree.mark), tree.mark)
            tree.put("defaults", defaults, tree.mark)


def serve(file: str | None, given: str) -> None:
    """Serve the configuration `file` for a command until the command ends. `given`: the folder of the CA, the character
    `|`, and "yes" if HTTPS is intercepted or "no" if not.
    """
    from proxy.main import serve as serve_process
    from proxy.server.late_client import import_aiohttp

    folder, _, intercept = given.rpartition("|")
    edit = _Edit(file, folder, intercept=intercept == "yes")
    import_aiohttp()
    serve_process(file, lambda: load(file, os.environ, edit), edit)


def run(config: str | None, command: Sequence[str], *, intercept: bool, quiet: bool) -> int:
    """Run `command` with a redrive in front of its requests, and return its exit status; a signal that ended it ends
    this process too. `config`: the configuration file that the user named, None for the usual one; `intercept`: read
    its HTTPS calls to the upstreams of the configuration, with a CA that is made for it; `quiet`: print nothing. Raises
    ExecError and CaError.
    """
    file = find(config, os.environ)
    if not quiet:
        print(taken(config, os.environ), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="redrive-") as folder:
        settings, ca = _settled(file, folder, intercept=intercept)
        sidecar = _Sidecar(file, f"{ca}|{'yes' if intercept else 'no'}")
        try:
            served = replace(settings, listen=(sidecar.listen,))
            if not quiet:
                warn_if_missing(served)
                for line in replaced_proxies(served, os.environ):
                    print(f"redrive: {line}", file=sys.stderr)
            added = {"REDRIVE_URL": f"http://{sidecar.listen}", "REDRIVE_ADMIN": f"http://{sidecar.admin}"}
            status = _run(command, {**os.environ, **variables(served, os.environ), **added})
        finally:
            sidecar.close()
        if not quiet:
            print(f"redrive: {summary(sidecar.calls, intercept=intercept)}", file=sys.stderr)
    return _ended(status)


def _settled(file: str | None, folder: str, *, intercept: bool) -> tuple[Settings, str]:
    """Return the settings for the redrive that `redrive exec` starts for its command, and the folder of the CA that was
    made here for it ("" if none was). `file`: the configuration to read, None for the defaults. `folder`: where to make
    a CA. `intercept`: the TLS of all upstreams is intercepted, with a CA that is made here. Without it, a CA is made if
    the settings intercept the TLS of any upstream, and the CA that they name does not exist.
    """
    _loaded(file)  # a mistake in a value that is replaced is still a mistake
    settings = _loaded(file, _Edit(file, "", intercept=intercept))
    if not intercepts(settings) or (not intercept and Path(settings.ca.cert).exists()):
        return settings, ""
    needed()
    from datetime import UTC, datetime

    from proxy.server.intercept import ca
    from proxy.transport.clock import wall

    now, environ = datetime.fromtimestamp(wall(), UTC), unredirected(os.environ)
    ca.init(Path(folder) / "cert.pem", Path(folder) / "key.pem", [], now, environ)
    return _loaded(file, _Edit(file, folder, intercept=intercept)), folder


def _loaded(file: str | None, edit: _Edit | None = None) -> Settings:
    loaded: LoadResult = load(file, os.environ, edit)
    if loaded.settings is None:
        raise ExecError("\n".join(map(str, loaded.errors)), 2)
    return loaded.settings


class _Sidecar:
    """The redrive of a command. `listen` and `admin`: where it listens; `calls`: what became of its calls."""

    def __init__(self, file: str | None, given: str) -> None:
        self.calls: Counter[str] = Counter()
        self._process = subprocess.Popen(  # noqa: S603  this interpreter
            [sys.executable, "-c", _CODE, file or "", given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # the terminal's Ctrl-C is for the command
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        ready: dict[str, Any] = {}
        while ready.get("event") != "ready":
            line = self._process.stdout.readline()
            if not line:
                raise ExecError(self._process.stderr.read().decode().strip() or "redrive: redrive did not start", 2)
            ready = json.loads(line)
        self.listen = _address(ready["listen"][0])
        self.admin = _address(ready["admin"][0])
        self._readers = [
            threading.Thread(target=self._count, args=(self._process.stdout,)),
            threading.Thread(target=self._process.stderr.read),
        ]
        for reader in self._readers:
            reader.start()

    def _count(self, lines: IO[bytes]) -> None:
        for line in lines:
            count(json.loads(line), self.calls)

    def close(self) -> None:
        """End the process of the command's redrive, and wait until its last line has been read."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        for reader in self._readers:
            reader.join()


def count(line: Mapping[str, Any], calls: Counter[str]) -> None:
    """Add a line of the log, as its JSON object, to the figures in `calls`, which `summary` prints, if it is a
    call's.
    """
    if "outcome" not in line:
        return
    retries = max(int(line.get("attempts") or 0) - 1, 0)
    if line.get("method") == "CONNECT" and line["outcome"] == "success":
        calls["tunnels"] += 1
        return
    calls["calls"] += 1
    calls["retried"] += retries > 0
    calls["retries"] += retries
    if line["outcome"] != "success":
        calls[f"failed: {line['outcome']}"] += 1
    elif retries:
        calls["rescued"] += 1


def summary(calls: Mapping[str, int], *, intercept: bool) -> str:
    """Return what became of a command's calls, in one line. If it made none, say how to make some. `calls`: the counts
    that `count` keeps, by name: `calls`, `retries`, `rescued`, `tunnels`, and `failed: OUTCOME` for each outcome;
    `intercept`: whether HTTPS to the upstreams was read.
    """
    tunnels = calls.get("tunnels", 0)
    why = "--intercept reads https to hosts that an upstream names"
    if intercept:
        why = "no upstream names the host, or one with a `connect` of its own"
    unread = f"{tunnels} tunnel{'s' if tunnels != 1 else ''}, in which nothing is retried: {why}"
    if not calls.get("calls"):
        past = "no calls came; those to localhost and the rest of NO_PROXY go past it, those to $REDRIVE_URL do not"
        return unread if tunnels else past
    failed = {key.removeprefix("failed: "): n for key, n in calls.items() if key.startswith("failed: ")}
    number, retries = calls["calls"], calls["retries"]
    parts = [f"{number} call{'s' if number != 1 else ''}"]
    if retries:
        parts.append(f"{retries} retr{'ies' if retries != 1 else 'y'}, which rescued {calls.get('rescued', 0)}")
    if failed:
        words = ", ".join(f"{n} {outcome}" for outcome, n in sorted(failed.items()))
        parts.append(f"{sum(failed.values())} failed ({words})")
    return "; ".join([*parts, unread] if tunnels else parts)


def _run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command with the environment variables `environ`, and return its exit status as `Popen` has it: below 0 the
    signal that ended it. Signals that come meanwhile are passed on to it.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def passed_on(number: int, _frame: FrameType | None) -> None:
        if number in _OF_THE_TERMINAL and _in_the_foreground():
            return
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    before = {number: signal.signal(number, passed_on) for number in _PASSED_ON}
    try:
        process = subprocess.Popen(command, env=environ)  # noqa: S603  the user's own command
        for number in early:
            process.send_signal(number)
        return process.wait()
    except FileNotFoundError:
        raise ExecError(f"redrive: {command[0]}: there is no such command", NOT_FOUND) from None
    except OSError as error:
        raise ExecError(f"redrive: {command[0]}: {(error.strerror or str(error)).lower()}", NOT_RUNNABLE) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_the_foreground() -> bool:
    """Whether this process is in the foreground of a terminal, whose Ctrl-C reaches the command by itself."""
    try:
        with open("/dev/tty", "rb") as terminal:  # noqa: PTH123  a device
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _ended(status: int) -> int:
    """Return the exit status of this process for `status`, the command's (below 0: the signal that ended the command);
    in that case end this process by the same signal.
    """
    if status >= 0:
        return status
    number = -status
    if number not in _WITH_A_CORE:
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.kill(os.getpid(), number)
    return 128 + number


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host.strip("[]"), int(port))
