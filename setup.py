"""What of the package is compiled, where a C compiler is, and what pyproject.toml can't say of it: the readme with
absolute links, and a source distribution that is the same bytes every time.

Without one, and with REDRIVE_PURE=1, the package is Python alone and does the same
(docs/decisions/0013-compiled-way.md). All of MODULES are compiled or none is: one that is calls others past the
interpreter. They are linked into one shared object (tools/one_library.py).
"""

from __future__ import annotations

import gzip
import multiprocessing
import os
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

sys.path.insert(0, str(Path(__file__).parent / "tools"))
from one_library import BuildLibrary, one_library
from readme import long_description

#: Modules that are compiled, one a line. Of most the source is the Python that also runs without a compiler, with types
#: in the `.pxd` beside it; of a `.pyx` there is nothing else.
#: `proxy.retry.scopes.definitions` is not here: it takes 0.4 us of a policy's first call, and others do not ask it.
MODULES = [
    "proxy.forward.app_repeats",
    "proxy.forward.attempt",
    "proxy.forward.call_driver",
    "proxy.forward.call_report",
    "proxy.forward.context",
    "proxy.forward.delivery",
    "proxy.forward.edits",
    "proxy.forward.exchange",
    "proxy.forward.headers",
    "proxy.forward.request_plan",
    "proxy.forward.sending",
    "proxy.forward.streams",
    "proxy.forward.timers",
    "proxy.forward.undecided",
    "proxy.forward.upload",
    "proxy.forward.usual_calls",
    "proxy.forward.whole_look",
    "proxy.heap",
    "proxy.observe.access_log",
    "proxy.observe.call_record",
    "proxy.observe.json_line",
    "proxy.observe.masking",
    "proxy.observe.metrics",
    "proxy.observe.observers",
    "proxy.observe.recent_calls",
    "proxy.observe.sink",
    "proxy.retry.call.actions",
    "proxy.retry.call.admission",
    "proxy.retry.budgets.app_buckets",
    "proxy.retry.budgets.app_parts",
    "proxy.retry.call.at_once",
    "proxy.retry.call.attempt_failure",
    "proxy.retry.call.attempt_record",
    "proxy.retry.strategies.backoff",
    "proxy.retry.budgets.buckets",
    "proxy.retry.call.call_state",
    "proxy.retry.weather.caller",
    "proxy.retry.capacity.chances",
    "proxy.retry.answers.classification",
    "proxy.retry.answers.content_coding",
    "proxy.retry.weather.ending",
    "proxy.retry.call.endings",
    "proxy.retry.call.environment",
    "proxy.retry.answers.event_stream",
    "proxy.retry.capacity.evidence",
    "proxy.retry.facts",
    "proxy.retry.call.feedback",
    "proxy.retry.weather.fleet_part",
    "proxy.retry.call.flows",
    "proxy.retry.weather.governor",
    "proxy.retry.call.hedged_flow",
    "proxy.retry.answers.json_text",
    "proxy.retry.weather.lane",
    "proxy.retry.weather.lane_places",
    "proxy.retry.queues.lane_queue",
    "proxy.retry.weather.lanes",
    "proxy.retry.weather.limit",
    "proxy.retry.weather.losses",
    "proxy.retry.weather.lost_rows",
    "proxy.retry.call.machine",
    "proxy.retry.call.next_attempt",
    "proxy.retry.answers.octet_search",
    "proxy.retry.weather.outage",
    "proxy.retry.call.payment",
    "proxy.retry.answers.pushback",
    "proxy.retry.queues.queue_walk",
    "proxy.retry.call.refusals",
    "proxy.retry.call.repeat_checks",
    "proxy.retry.call.sequential_plan",
    "proxy.retry.call.single_flows",
    "proxy.retry.scopes.registry",
    "proxy.retry.policies.route_index",
    "proxy.retry.weather.route_names",
    "proxy.retry.answers.rules",
    "proxy.retry.scopes.scope_state",
    "proxy.retry.weather.spacing",
    "proxy.retry.call.states",
    "proxy.retry.answers.stream_ends",
    "proxy.retry.answers.stream_errors",
    "proxy.retry.capacity.traffic",
    "proxy.retry.capacity.traffic_words",
    "proxy.retry.call.transparent_retry",
    "proxy.retry.weather.trial",
    "proxy.retry.weather.usual_times",
    "proxy.retry.value_bases",
    "proxy.retry.queues.waiting_room",
    "proxy.retry.weather.weather_changes",
    "proxy.server.connection",
    "proxy.server.http2",
    "proxy.server.http2_stream",
    "proxy.transport.chunk_writer",
    "proxy.transport.clock",
    "proxy.transport.connection",
    "proxy.transport.dial_times",
    "proxy.transport.direct_dial",
    "proxy.transport.event_loop",
    "proxy.transport.event_source",
    "proxy.transport.flusher",
    "proxy.transport.http2",
    "proxy.transport.http2_protocol",
    "proxy.transport.openssl_sessions",
    "proxy.transport.origins",
    "proxy.transport.pool",
    "proxy.transport.replay_buffer",
    "proxy.transport.socket_calls",
    "proxy.transport.socket_reads",
    "proxy.transport.streams",
    "proxy.wire.fields",
    "proxy.wire.head",
    "proxy.wire.http1.body",
    "proxy.wire.http1.gather",
    "proxy.wire.http1.parser",
    "proxy.wire.http1.request",
    "proxy.wire.http1.response",
    "proxy.wire.http1.scan",
    "proxy.wire.http1.slow_path",
    "proxy.wire.http1.splice",
    "proxy.wire.http2.credit",
    "proxy.wire.http2.fields",
    "proxy.wire.http2.flow",
    "proxy.wire.http2.frames",
    "proxy.wire.http2.graceful_shutdown",
    "proxy.wire.http2.head_reader",
    "proxy.wire.http2.heads",
    "proxy.wire.http2.hpack",
    "proxy.wire.http2.octets",
    "proxy.wire.http2.outbox",
    "proxy.wire.http2.peer_limits",
    "proxy.wire.http2.peer_settings",
    "proxy.wire.http2.request",
    "proxy.wire.http2.response",
    "proxy.wire.http2.session",
    "proxy.wire.http2.stream",
    "proxy.wire.http2.stream_ids",
    "proxy.wire.http2.unfinished_frame",
]

#: Rooms whose objects go from process to process: policies to workers, and from them what was counted and logged.
PICKLED = ("proxy.observe.", "proxy.retry.")
#: Modules there without such code: bases of dataclasses have their own way to be pickled, and a count with a pointer
#: into memory, which Cython refuses to pickle, stays in its process.
UNPICKLED = ("proxy.retry.capacity.traffic", "proxy.retry.value_bases")

#: Modules there whose objects are in no reference cycle: records, which hold texts, numbers and other records. The
#: collector would read each of them over and over, and 1,000 are kept. (A decorator in a `.pxd` does not reach a class
#: whose code is in a `.py`.)
ACYCLIC = ["proxy.observe.call_record", "proxy.retry.call.attempt_record"]

#: Modules there whose classes keep up to KEPT of their objects, once given up, for the next ones: each retry makes and
#: gives up all of them, and memory from Python's allocator takes three times as many instructions. Classes with a base
#: class of their own can't do so.
BRIEF = [
    "proxy.forward.sending",
    "proxy.forward.timers",
    "proxy.observe.call_record",
    "proxy.retry.call.attempt_record",
    "proxy.retry.call.call_state",
    "proxy.retry.facts",
    "proxy.retry.call.machine",
    "proxy.retry.call.next_attempt",
    "proxy.retry.call.payment",
    "proxy.retry.call.states",
]
KEPT = 8

#: What Cython puts into every module, once for all: it is a fifth of their size, and so of the memory they take.
SHARED = "proxy._compiled"

#: A None where an object was promised is an exception, and so is an index out of bounds. Without `binding` functions
#: and methods are of the interpreter's own kinds: Cython's have a signature to ask for, and take 1.5 MiB more at rest.
#: The methods of classes without types are Cython's all the same: Python makes no methods of the others.
DIRECTIVES = {
    "language_level": 3,
    "nonecheck": True,
    "boundscheck": True,
    "annotation_typing": False,
    "binding": False,
}
#: No exception of C++ passes through, so nobody unwinds these stacks: the tables for that are a twentieth of a module,
#: and would take memory beside it. What Cython marks as unlikely, errors nearly all, is taken for what never happens,
#: not for one case in ten: it is compiled for its size. Nor is code aligned: there is a jump every few bytes. Each
#: function has a section of its own, so that the linker can put together what runs together (tools/order.ld).
FLAGS = [
    *("-O2", "-g0", "-fno-asynchronous-unwind-tables", "--param=builtin-expect-probability=100"),
    *("-fno-align-functions", "-fno-align-jumps", "-fno-align-labels", "-fno-align-loops"),
    "-ffunction-sections",
]
#: The same with a check of every access to memory, if the environment asks for it (`scripts/asan`).
SANITIZE = ["-fsanitize=address"] if os.environ.get("REDRIVE_SANITIZE") == "address" else []
if SANITIZE:
    FLAGS = ["-O1", "-g1", "-fno-omit-frame-pointer", *SANITIZE]


def extension(module: str) -> Extension:
    """A module of the table, out of its source."""
    path = module.replace(".", "/")
    source = path + (".c" if module == SHARED else ".pyx" if Path(path + ".pyx").exists() else ".py")
    return Extension(module, [source], extra_compile_args=FLAGS, extra_link_args=SANITIZE)


def generated(modules: Iterable[str], *, pickled: bool, acyclic: bool = False, kept: int = 0) -> list[Extension]:
    """Extensions whose C is there, with code to pickle what their classes make or without it: a tenth of all.
    `acyclic`: what their classes make is not collected; `kept`: how many of a class's objects it keeps for the next.
    """
    from Cython.Build import cythonize
    from Cython.Compiler import Errors
    from Cython.Compiler.Options import get_directive_defaults

    Errors.LEVEL = 2 if kept else 1  # without it, that classes with a base class keep none is said of each
    # Else they are known to classes alone, whose decorators are in no `.py`.
    get_directive_defaults().update(no_gc=False, freelist=0)
    # What is set above is this process's: its forked children have it. From Python 3.14 on, children would otherwise be
    # begun anew, without it, and run this file from its start.
    forks = "fork" in multiprocessing.get_all_start_methods()
    if forks:
        multiprocessing.set_start_method("fork", force=True)
    return list(
        cythonize(
            [extension(module) for module in modules],
            build_dir="build/cython",
            compiler_directives=DIRECTIVES | {"auto_pickle": pickled, "no_gc": acyclic, "freelist": kept},
            nthreads=(os.cpu_count() or 1) if forks else 0,
            quiet=True,
            shared_utility_qualified_name=SHARED,
        )
    )


class SteadySdist(sdist):
    """A source distribution without the time, the user and the order of the machine that made it: $SOURCE_DATE_EPOCH,
    where it is set, is the time of every file.
    """

    def make_archive(self, base_name: str, format: str, *args: object, **more: object) -> str:
        """The archive; only gztar can be made so."""
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch is None or format != "gztar":
            return str(super().make_archive(base_name, format, *args, **more))

        def steady(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.mtime, member.uid, member.gid, member.uname, member.gname = int(epoch), 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            return member

        folder, archive = Path(base_name).name, f"{base_name}.tar.gz"
        with (
            Path(archive).open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=int(epoch)) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in [Path(folder), *sorted(Path(folder).rglob("*"))]:
                tar.add(path, recursive=False, filter=steady)
        return archive


def compiled() -> list[Extension]:
    """The extensions of the package; none where the environment asks for Python alone, as the command does too."""
    if os.environ.get("REDRIVE_PURE", "0") not in ("", "0"):
        return []
    pickled = [module for module in MODULES if module.startswith(PICKLED) and module not in UNPICKLED]
    parts = []
    for kept in (0, KEPT):
        of_these = [module for module in [SHARED, *MODULES] if (module in BRIEF) == bool(kept)]
        plain = [module for module in of_these if module not in pickled]
        collected = [module for module in of_these if module in pickled and module not in ACYCLIC]
        parts += generated(plain, pickled=False, kept=kept)
        parts += generated(collected, pickled=True, kept=kept)
        parts += generated([module for module in ACYCLIC if module in of_these], pickled=True, acyclic=True, kept=kept)
    return [one_library(parts, Path("build/cython"))]


setup(
    long_description=long_description(),
    long_description_content_type="text/markdown",
    ext_modules=compiled(),
    cmdclass={"build_ext": BuildLibrary, "sdist": SteadySdist},
)
