"""What a call costs redrive in instructions: `python bench/instructions.py [rows]`, with valgrind (Debian's package) and nginx.

Callgrind counts the instructions that the real process executes in user space, over requests of 32 connections, log and
metrics on; the kernel's are not in it. Unlike times, the count hardly depends on what else the machine does: a run
differs from the next by a few per cent. `REDRIVE_PURE=1` counts Python alone; `--profile` says where callgrind's file
is, for callgrind_annotate. `--memory` counts the data path alone, over connections in memory (`in_memory.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from load import FIELDS, WORKLOADS, Workload
from measure import Running, free_port, tree
from peers import Place, redrive
from run import upstream
from targets import EMPTY, INSTRUCTIONS, RETRY
from tenth import serve_tenth

CONNECTIONS = 32
#: Seconds for which the process is counted at rest before each row: what it does then is not the calls', and under
#: callgrind, where calls take fifty times as long, it would be a fifth of a row.
REST = 10.0
#: Rows by the names that they have here; each is a row of bench/run.py.
ROWS = {
    "repeated": "small GET, 32 connections, 5 fields",
    "query": "small GET, 32 connections, 5 fields, another query each",
    "differs": "small GET, 32 connections, 12 fields, queries, ids and answers' ids differ",
    "shapes": "GET, GET, PUT, DELETE in turn, everything differs",
    "fail": "small GET, 10 % of attempts fail",
    "fail+differs": "10 % of attempts fail, everything differs",
    "app_closes": "small GET, the app closes each call",
    "upstream_closes": "small GET, the upstream closes each call",
    "tls_closes": "small GET, TLS upstream closes each call",
    "tls_new": "small GET, TLS upstream without tickets closes each call",
    "post": "1 MiB POST, with a length",
    "post_chunked": "1 MiB POST, chunked",
    "events": "100 server-sent events",
    "watched": "100 server-sent events, watched",
}
#: Rows whose calls are long: of as many calls as the others are counted by, one in so many is made.
LONG = {"post": 20, "post_chunked": 20, "events": 20, "watched": 20}
#: Rows of an upstream with so many routes, of which each request takes another; bench/run.py has none of them.
ROUTES = {"routes10": 10, "routes1000": 1000}
#: Rows of the small GET with one more key in its upstream's policy: the path that is asked for, and the key.
FEATURES = {
    "rate": ("small", "rate: {kind: rate, rate: 1000000/s, burst: 1000000}"),
    "concurrency": ("small", "concurrency: {max: 1000}"),
    "off": ("small", "mode: off"),
    "observe": ("small", "mode: observe"),
    "adaptive": ("small", "strategy: {kind: adaptive}"),
    "hedging": ("small", "strategy: {kind: hedging, hedging_delay: 10s}"),
    "breaker": ("small", "circuit_breaker: {failure_ratio: 50%}"),
    "first_byte": ("small", "timeouts: {first_byte: 10s}"),
    "headers": ("small", "headers: {request: {set: {X-Team: payments}}, response: {remove: [Server]}}"),
    "attempt_headers": ("small", "attempt_headers: [grpc, envoy]"),
    "credentials": ("small", 'credentials: {header: Authorization, format: "Bearer {}", values: [first, second]}'),
    "json_rule": ("json", "classify: {rules: [{status: 200, json: {error.code: busy}, as: transient}]}"),
}
#: Rows of an upstream of which every tenth attempt fails (`tenth`), with one more key.
FAILING = {"empty": ("small", "bucket: {kind: quota, capacity: 1, initial: 0, success_refund: 0}")}
#: Of how many calls of a row one has an attempt that fails: ten attempts are nine calls where each is repeated.
CALLS_A_FAILURE = {"fail": 9.0, "empty": 10.0}
#: At least so many calls of these rows, and of `repeated` beside them: what a failure costs is ten times what the rows
#: differ by, and what the process does once in many calls would be counted tenfold or not at all.
STEADY = 6400
EVERY = [*ROWS, *ROUTES, *FEATURES, *FAILING]
#: Rows that `--memory` has: a small answer with a length to each request, on connections that stay open.
IN_MEMORY = [
    *("repeated", "query", "differs", "shapes", "fail", "fail+differs"),
    *ROUTES,
    *sorted({*FEATURES} - {"json_rule"}),
    *FAILING,
]
#: Of `--apps`: what the configuration says of apps, and the line by which each request names its app. `configured` is the
#: configuration alone, and `line` the line alone; `listener` names apps without a line, as a base URL of their own does.
APPS = {
    "configured": ("apps: {by: [{header: X-App}], known: {web: {weight: 4}}}\n", ""),
    "line": ("", "X-App: web\r\n"),
    "field": ("apps: {by: [{header: X-App}], known: {web: {weight: 4}}}\n", "X-App: web\r\n"),
    "user": ("apps: {known: {web: {weight: 4}}}\n", "Proxy-Authorization: Basic d2ViOng=\r\n"),
    "user_line": ("", "Proxy-Authorization: Basic d2ViOng=\r\n"),
    "listener": ("apps: {known: {web: {weight: 4}}}\n", ""),
}


def requests(work: Workload, port: int) -> list[bytes]:
    """The requests of a row, which each connection sends in turn; as wrk's are in `load.script`."""
    made = []
    for n in range(1, 65 if work.varied else 2):
        fields = {"Host": f"127.0.0.1:{port}", **dict(FIELDS[: work.fields - 1])}
        if work.fields > 5 and work.varied:
            fields["X-Request-Id"] = f"7f1c2d3e-4b5a-6978-8796-{n:012x}"
        method, body = "GET", b""
        if work.shapes:
            method = {2: "PUT", 3: "DELETE"}.get(n % 4, "GET")
            if n % 4:
                del fields["Accept-Language"]
            if n % 4 == 1:
                fields["If-None-Match"] = f'"{n:x}"'
            if n % 4 == 2:
                body = b"x" * (200 + n)
                fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        if work.closes:
            fields["Connection"] = "close"
        if work.mebibytes:
            body = bytes(work.mebibytes * 2**20)
            fields |= {"Transfer-Encoding": "chunked"} if work.chunked else {"Content-Length": str(len(body))}
            body, method = in_chunks(body) if work.chunked else body, "POST"
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        made.append(f"{method} /{work.upstream}/{work.path}?n={n} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    return made


def in_chunks(body: bytes) -> bytes:
    """A body in chunks of 16 KiB, as wrk's are in `load.script`."""
    pieces = (body[at : at + 16384] for at in range(0, len(body), 16384))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


async def read_body(reader: asyncio.StreamReader, head: bytes) -> None:
    """Read the body of an answer, of a length or in chunks."""
    size = re.search(rb"(?i)content-length: (\d+)", head)
    if size is not None:
        await reader.readexactly(int(size[1]))
        return
    assert b"chunked" in head, head
    while left := int(await reader.readline(), 16):
        await reader.readexactly(left + 2)
    await reader.readexactly(2)


async def ask(port: int, made: list[bytes], count: int, first: int) -> int:
    """Send so many requests on a connection; how many of them had another status than 200."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    failed = 0
    for n in range(count):
        if reader.at_eof():
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(made[(first + n) % len(made)])
        head = await reader.readuntil(b"\r\n\r\n")
        await read_body(reader, head)
        if b"onnection: close" in head:
            await reader.read()
        failed += not head.startswith(b"HTTP/1.1 200")
    writer.close()
    return failed


async def load(port: int, made: list[bytes], count: int, connections: int) -> int:
    """Send so many requests on all connections; how many failed."""
    return sum(await asyncio.gather(*(ask(port, made, count // connections, each * 7) for each in range(connections))))


def featured(name: str, port: int, place: Place) -> tuple[str, list[bytes]]:
    """An upstream with the key of a row, for the configuration, and the request of the row."""
    path, key = FEATURES.get(name) or FAILING[name]
    to = place.upstream_flaky if name in FAILING else place.upstream
    return f'  {name}: {{url: "http://127.0.0.1:{to}", {key}}}\n', [small(f"/{name}/{path}", port)]


def small(target: str, port: int) -> bytes:
    """A small GET, whose fields are those of the row `repeated`."""
    fields = "".join(f"{field}: {value}\r\n" for field, value in (("Host", f"127.0.0.1:{port}"), *FIELDS[:4]))
    return f"GET {target} HTTP/1.1\r\n{fields}\r\n".encode()


def routed(name: str, port: int, upstream: int) -> tuple[str, list[bytes]]:
    """An upstream with the routes of a row, for the configuration, and requests that take turns among them."""
    lines = [f'  {name}:\n    url: "http://127.0.0.1:{upstream}"\n    routes:\n']
    lines += [
        f"      - {{match: {{methods: [GET, POST], path: /small/a{n}/**}}, strategy: {{max_attempts: {2 + n % 3}}}}}\n"
        for n in range(ROUTES[name])
    ]
    turns = [7 * n % ROUTES[name] for n in range(ROUTES[name])]
    return "".join(lines), [small(f"/{name}/small/a{n}/of?n={n}", port) for n in turns]


def of_app(request: bytes, named: str) -> bytes:
    """A request that names its app by the line `named`."""
    line, rest = request.split(b"\r\n", 1)
    return b"%s\r\n%s%s" % (line, named.encode(), rest)


def name_listener(config: Path, port: int) -> None:
    """Give a name to the app that the listener of a configuration is for."""
    text = config.read_text()
    named = text.replace(f"listen: 127.0.0.1:{port}\n", f'listen: [{{address: "127.0.0.1:{port}", app: web}}]\n')
    assert named != text
    config.write_text(named)


class OverSockets:
    """redrive as `redrive run` has it, loaded over sockets. `made`: the requests of each row."""

    def __init__(
        self, command: list[str], port: int, made: dict[str, list[bytes]], connections: int, log: Path
    ) -> None:
        where = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        self._running = Running(command, port, b"", where, log, within=300)
        self._port, self._made, self._connections = port, made, connections
        self.pid, self.stop = self._running.pid, self._running.stop

    def send(self, row: str, calls: int) -> int:
        """Send so many requests of a row; how many failed."""
        return asyncio.run(load(self._port, self._made[row], calls, self._connections))

    def rest(self, seconds: float) -> None:
        """Send nothing for so long."""
        time.sleep(seconds)


class InMemory:
    """redrive's data path in a process that loads it by itself (`in_memory.py`). `made`: the requests of each row."""

    def __init__(self, command: list[str], config: Path, made: dict[str, list[bytes]], log: Path) -> None:
        asked = {row: [each.decode("latin-1") for each in made[row]] for row in IN_MEMORY if row in made}
        failing = [row for row in asked if row.startswith("fail") or row in FAILING]
        requests = config.with_suffix(".json")
        requests.write_text(json.dumps({**asked, "failing": failing}))
        command = [*command, sys.executable, str(Path(__file__).parent / "in_memory.py"), str(config), str(requests)]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.pid = self._process.pid

    def _ask(self, line: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def send(self, row: str, calls: int) -> int:
        """Send so many requests of a row; how many failed."""
        return self._ask(f"{row} {calls}")

    def rest(self, seconds: float) -> None:
        """Send nothing for so long."""
        self._ask(f"rest {seconds}")

    def stop(self) -> None:
        """End the process."""
        self._process.communicate()


def control(pid: int, *words: str) -> None:
    """Tell callgrind something."""
    subprocess.run(["callgrind_control", *words, str(pid)], check=True, capture_output=True)


def counted(file: Path) -> int:
    """The instructions in one of callgrind's files."""
    count = re.search(r"^(?:summary|totals): (\d+)", file.read_text(), re.M)
    assert count is not None, file
    return int(count[1])


def main() -> int:
    """Count and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="*", default=list(ROWS), help=", ".join(EVERY) + "; or all")
    options.add_argument("--calls", type=int, default=3200, help="how many are counted")
    options.add_argument("--connections", type=int, default=CONNECTIONS, help="with 1, no two share a turn of the loop")
    options.add_argument("--profile", action="store_true", help="keep callgrind's files, and say where")
    options.add_argument("--apps", choices=APPS, help="name apps in the configuration, and one in each request")
    options.add_argument("--memory", action="store_true", help="count the data path alone, over connections in memory")
    chosen = options.parse_args()
    known = IN_MEMORY if chosen.memory else EVERY
    if chosen.rows == ["all"]:
        chosen.rows = known
    elif chosen.memory and chosen.rows == [*ROWS]:
        chosen.rows = [row for row in ROWS if row in IN_MEMORY]
    missing = [name for name in ("valgrind", "nginx", "openssl") if not shutil.which(name)]
    if missing or not set(chosen.rows) <= set(known):
        print(f"missing: {', '.join(missing)}" if missing else f"rows are: {', '.join(known)}", file=sys.stderr)
        return 2
    works = {work.name: work for work in WORKLOADS}
    folder = Path(tempfile.mkdtemp(prefix="redrive-instructions-"))
    nginx, place = upstream(folder)
    place.port, place.upstream_flaky, place.upstream_streams = free_port(), serve_tenth(), free_port()
    command = [sys.executable, str(Path(__file__).parent / "streams.py"), "server", str(place.upstream_streams)]
    streams = Running(command, place.upstream_streams, b"", 0, folder / "streams.log")
    cores = os.sched_getaffinity(0)
    # Nobody is timed: where all run anywhere, turns of the loop come out most alike.
    for pid in (*tree(nginx.pid), *tree(streams.pid)):
        os.sched_setaffinity(pid, cores)
    out = place.written / "callgrind.out"
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
    command += ["--dump-instr=yes"] if chosen.profile else []
    started, found = redrive(place), dict[str, float]()
    asked = {row: requests(works[ROWS[row]], place.port) for row in ROWS}
    with Path(started[-1]).open("a") as file:
        for row in sorted({*chosen.rows} - {*ROWS}):
            made = routed(row, place.port, place.upstream) if row in ROUTES else featured(row, place.port, place)
            asked[row] = made[1]
            file.write(made[0])
        if chosen.apps:
            file.write(APPS[chosen.apps][0])
    if chosen.apps == "listener":
        name_listener(Path(started[-1]), place.port)
    os.environ.setdefault("PYTHONHASHSEED", "0")
    if chosen.apps:
        asked = {row: [of_app(each, APPS[chosen.apps][1]) for each in made] for row, made in asked.items()}
    proxy: OverSockets | InMemory
    try:
        if chosen.memory:
            proxy = InMemory(command, Path(started[-1]), asked, place.written / "log")
        else:
            proxy = OverSockets([*command, *started], place.port, asked, chosen.connections, place.written / "log")
        try:
            for dump, row in enumerate(chosen.rows, start=1):
                one_in = LONG.get(row, 1)
                calls = chosen.calls // one_in
                if row in CALLS_A_FAILURE or (row == "repeated" and not CALLS_A_FAILURE.keys().isdisjoint(chosen.rows)):
                    calls = max(calls, STEADY)
                proxy.send(row, 640 // one_in)  # warm
                control(proxy.pid, "-i", "on")
                proxy.send(row, 320 // one_in)
                control(proxy.pid, "-z")
                proxy.rest(REST)
                control(proxy.pid, "-d")
                at_rest = counted(Path(f"{out}.{2 * dump - 1}")) / REST
                control(proxy.pid, "-z")
                begun = time.perf_counter()
                failed = proxy.send(row, calls)
                seconds = time.perf_counter() - begun
                control(proxy.pid, "-d")
                control(proxy.pid, "-i", "off")
                file = Path(f"{out}.{2 * dump}")
                where = f"  {file}" if chosen.profile else ""
                every, rest = counted(file) / calls / 1000, at_rest * seconds / calls / 1000
                found[row] = every - rest
                goal = None if chosen.memory else INSTRUCTIONS.get(row)
                asked_for = "" if goal is None else f" ({goal:g}{'' if found[row] <= goal else ', missed'})"
                print(
                    f"{row:16} {found[row]:7.1f} thousand a call{asked_for}, {failed} failed, and {rest:.1f} at rest{where}",
                    flush=True,
                )
            for (row, goal), of, what in ((RETRY, 0.0, "a retry"), (EMPTY, 1.0, "a 503 without a token")):
                if row in found and "repeated" in found:
                    cost = CALLS_A_FAILURE[row] * (found[row] - found["repeated"]) + of * found["repeated"]
                    print(f"{what:22} {cost:7.1f} thousand ({goal:g}{'' if cost <= goal else ', missed'})")
        finally:
            proxy.stop()
    finally:
        nginx.stop()
        streams.stop()
        if not chosen.profile:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
