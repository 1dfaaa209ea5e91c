"""`redrive top` against a running redrive: once, on a terminal, and where it can't be had."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import signal
import struct
import termios
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from support.process import COMMAND, Redrive, environment
from support.scripted import Upstream, answer

from proxy import cli

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKEN = "a-token-of-some-length"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Redrive]:
    """A redrive with a token and a probe, after a call that went well and one that failed."""
    async with Upstream(answer(200), answer(400)) as upstream:
        config = (
            f"listen: 127.0.0.1:0\nadmin: {{listen: 127.0.0.1:0, token: {TOKEN}}}\nprobe: 127.0.0.1:0\n"
            f"upstreams: {{good: {{url: '{upstream.url}'}}, bad: {{url: '{upstream.url}', prefix: /bad}}, idle: "
            "{url: 'http://idle.example'}}\n"
        )
        async with (
            Redrive(tmp_path_factory.mktemp("top"), config, listen="") as redrive,
            aiohttp.ClientSession() as app,
        ):
            for path in ("/good/x", "/bad/x"):
                async with app.get(redrive.url + path) as answered:
                    await answered.read()
            yield redrive


async def top(*arguments: str) -> int:
    return await asyncio.to_thread(cli.main, ["top", *arguments])


async def test_a_script_gets_the_table(
    running: Redrive, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_ADMIN_TOKEN", TOKEN)
    assert await top("--admin", running.admin) == 0
    head, columns, bad, *rest, total = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"{running.admin[7:]} is ready, last \d+ s, 3 upstreams, 1 in trouble, 0 in flight", head)
    assert columns.split()[:3] == ["upstream", "state", "calls/s"]
    assert bad.split()[:2] == ["bad", "failing"]
    assert bad.endswith("the newest failure is 400 not_retryable, after 400: redrive why 2")
    assert [line.split()[:2] for line in rest] == [["good", "healthy"], ["idle", "quiet"]]
    assert "50.0%" in total.split()
    assert await top("--admin", running.admin, "--json", "--filter", "O", "--sort", "name") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["state"], each["calls"]) for each in told["upstreams"]] == [("good", "healthy", 1)]
    assert [each["newest_failure"] for each in told["upstreams"]] == [None]
    assert told["total"]["success"] == 1.0


async def test_refused_requests_are_no_upstream_in_trouble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with (
        Redrive(tmp_path, "upstreams: {idle: {url: 'http://idle.example'}}\n") as redrive,
        aiohttp.ClientSession() as app,
        app.get(f"{redrive.url}/nowhere") as answered,
    ):
        assert answered.status == 404
        assert await top("--once", "--admin", redrive.admin) == 0
        head, _, refused, *_, total = capsys.readouterr().out.splitlines()
        assert "1 upstream, none in trouble" in head
        assert refused.startswith("(refused)  turned away")
        assert "in trouble" not in total
        assert await top("--json", "--admin", redrive.admin) == 0
        assert json.loads(capsys.readouterr().out)["total"]["in_trouble"] == 0


async def test_the_port_and_the_token_of_a_configuration(
    running: Redrive, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("REDRIVE_ADMIN_TOKEN", raising=False)
    file = tmp_path / "redrive.yaml"
    file.write_text(f"admin: {{listen: '{running.admin[7:]}', token: {TOKEN}}}\n")
    for more in ([], ["--admin", running.admin], ["--admin", running.admin[7:]]):
        assert await top("-c", str(file), *more) == 0, capsys.readouterr().err
        assert capsys.readouterr().out.startswith(f"{running.admin[7:]} is ready")


async def test_what_is_wrong_is_one_line(
    running: Redrive, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("REDRIVE_ADMIN_TOKEN", raising=False)
    file = tmp_path / "redrive.yaml"

    async def refused(status: int, *arguments: str) -> str:
        assert await top(*arguments) == status
        out, err = capsys.readouterr()
        assert out == ""
        (line,) = (line for line in err.splitlines() if "redrive: configuration: " not in line)
        return line.removeprefix("redrive: ")

    here = running.admin[7:]
    assert await refused(2, "--admin", running.admin) == (
        f"the admin port at {here} asks for a token: set REDRIVE_ADMIN_TOKEN, or name with -c the configuration that it"
        " runs with"
    )
    monkeypatch.setenv("REDRIVE_ADMIN_TOKEN", "another")
    assert "refuses this token: set " in await refused(2, "--admin", running.admin)
    for other in (running.url, f"http://{running.ready['probe'][0]}"):
        assert "is not redrive's admin port" in await refused(2, "--admin", other)
    assert (
        await refused(2, "--admin", f"https://{here}") == f"what answers at {here} speaks no TLS: name it with http://"
    )
    nothing = "nothing answers at 127.0.0.1:1: connection refused; is redrive running there?"
    assert await refused(1, "--admin", "http://127.0.0.1:1") == nothing
    nowhere = "nothing answers at nowhere.invalid: the name nowhere.invalid can't be resolved"
    assert await refused(1, "--admin", "nowhere.invalid") == nowhere
    assert "no such file" in await refused(1, "--admin", f"unix:{tmp_path}/admin.sock")
    for url in ("http://", "ftp://127.0.0.1", "127.0.0.1:x", "http://127.0.0.1:1/upstreams"):
        assert (await refused(2, "--admin", url)).startswith(
            "--admin takes a URL such as http://127.0.0.1:9901, or unix:"
        )
    assert (await refused(2, "--admin", "")).endswith("or unix:/path, not ''")
    file.write_text("admin: off\n")
    assert await refused(2, "-c", str(file)) == "admin is off in this configuration: there is nothing to ask"
    file.write_text("admin: 127.0.0.1:0\n")
    assert "a port that the system chooses" in await refused(2, "-c", str(file))
    file.write_text("amdin: 127.0.0.1:0\n")
    assert await top("-c", str(file)) == 2
    mistake, remedy = capsys.readouterr().err.splitlines()
    assert mistake == f"{file}:1:1: amdin: unknown key (did you mean admin?)"
    assert remedy == "redrive: a redrive that still runs with the earlier file is asked with --admin http://HOST:PORT"


async def test_a_redrive_of_an_earlier_release_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    board = b'event: board\ndata: {"full":true,"upstreams":[],"buckets":[]}\n\n'
    async with Upstream(answer(200, b'{"upstreams":[]}'), answer(200, board)) as earlier:
        assert await top("--admin", earlier.url) == 2
    assert capsys.readouterr().err == (
        f"redrive: the redrive at {earlier.authority} is of an earlier release: use the `redrive top` of that release\n"
    )


class Terminal:
    """A command on a terminal of its own. `shown` is the picture that it drew last, `said` all that it wrote."""

    def __init__(self, width: int, height: int) -> None:
        self.ours, self.theirs = os.openpty()
        self.resize(width, height)
        self.before = termios.tcgetattr(self.theirs)
        self.said = ""
        self._came = asyncio.Condition()

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    async def start(self, *arguments: str, **env: str) -> None:
        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(self.theirs, termios.TIOCSCTTY, 0)  # so that its keys are signals

        self.process = await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, stdin=self.theirs, stdout=self.theirs, stderr=self.theirs,
            env=environment(**env), preexec_fn=take_terminal,
        )  # fmt: skip
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        self._pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self.ours, "rb", 0, closefd=False)
        )
        self._task = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            async with self._came:
                self.said += data.decode()
                self._came.notify_all()

    @property
    def shown(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.said.rpartition("\x1b[H")[2])

    async def see(self, pattern: str) -> str:
        """Wait until the picture has this; the picture."""
        await self.until(lambda: re.search(pattern, self.shown))
        return self.shown

    async def until(self, holds: Callable[[], object]) -> None:
        async with self._came:
            await asyncio.wait_for(self._came.wait_for(holds), 30)

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    async def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        self._task.cancel()
        self._pipe.close()
        os.close(self.theirs)


async def test_on_a_terminal_until_ctrl_c(running: Redrive) -> None:
    terminal = Terminal(100, 12)
    await terminal.start(
        "top", "--admin", running.admin, TERM="xterm", COLUMNS="80", LINES="24", REDRIVE_ADMIN_TOKEN=TOKEN
    )
    try:
        lines = (await terminal.see(r"q quit")).splitlines()
        assert len(lines) == 12
        assert lines[2].startswith("bad ")
        assert "\x1b[?1049h" in terminal.said and "\x1b[?25l" in terminal.said
        terminal.press("s")
        await terminal.see(r"by name\)")
        terminal.press("S")
        assert (await terminal.see("reversed")).splitlines()[2].startswith("idle ")
        terminal.press("/gox\x7f")
        assert "bad" not in await terminal.see("filter: go_")
        terminal.press("\r")
        await terminal.see(r"/ filter   filter: go *$")
        terminal.press("\x1b[B\x1b[6~\x1b")
        await terminal.see("bad ")
        terminal.resize(40, 8)
        assert max(map(len, (await terminal.see(r"(?s)\A(?:.{0,40}\r?\n){7}.{0,40}\Z")).splitlines())) <= 40
        terminal.press("\x1a")  # Ctrl-Z: the terminal is given back, and taken again
        await asyncio.to_thread(os.waitid, os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
        assert termios.tcgetattr(terminal.theirs) == terminal.before
        await terminal.until(lambda: terminal.said.endswith("\x1b[?1049l"))
        terminal.process.send_signal(signal.SIGCONT)
        await terminal.until(lambda: "\x1b[H" in terminal.said.rpartition("\x1b[?1049l")[2])
        assert terminal.said.count("\x1b[?1049h") == 2
        terminal.press("\x03")
        assert await terminal.process.wait() == 0
        assert termios.tcgetattr(terminal.theirs) == terminal.before
        await terminal.until(lambda: terminal.said.count("\x1b[?1049l") == 2)
        assert terminal.said.rindex("\x1b[?25h") > terminal.said.rindex("\x1b[?25l")
        assert "Traceback" not in terminal.said
    finally:
        await terminal.close()


async def test_a_redrive_that_is_started_again_is_found_again(tmp_path: Path) -> None:
    terminal = Terminal(120, 10)
    async with Redrive(tmp_path, "upstreams: {early: {url: 'http://one.example'}}\n") as first:
        await terminal.start("top", "--admin", first.admin, TERM="xterm", NO_COLOR="1")
        await terminal.see("early ")
    try:
        await terminal.see("lost, asked again: nothing answers at ")
        again = f"listen: 127.0.0.1:0\nadmin: {first.admin[7:]}\n"
        async with Redrive(tmp_path, "upstreams: {two: {url: 'http://one.example'}}\n", listen=again):
            assert "early " not in await terminal.see("two ")
            assert not re.search(r"\x1b\[[0-9;]*3\dm", terminal.said)
            terminal.press("q")
            assert await terminal.process.wait() == 0
        assert termios.tcgetattr(terminal.theirs) == terminal.before
    finally:
        await terminal.close()


async def test_a_terminal_that_can_not_be_drawn_on_gets_the_table_once(running: Redrive) -> None:
    terminal = Terminal(80, 24)
    await terminal.start("top", "--admin", running.admin, TERM="dumb", REDRIVE_ADMIN_TOKEN=TOKEN)
    try:
        assert "total " in await terminal.see("total ")
        assert await terminal.process.wait() == 0
        assert "\x1b" not in terminal.said
        assert max(map(len, terminal.said.splitlines())) <= 80
    finally:
        await terminal.close()


async def test_a_refused_file_is_told_of_with_its_first_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        Redrive(tmp_path, "upstreams: {idle: {url: 'http://idle.example'}}\n") as redrive,
        aiohttp.ClientSession() as app,
    ):
        redrive.file.write_text(redrive.file.read_text() + "\nworkes: 2\nprobee: off\n")
        async with app.post(f"{redrive.admin}/reload") as answered:
            first, second = (await answered.json())["errors"]
        assert await top("--once", "--admin", redrive.admin) == 0
        head, *_, last = capsys.readouterr().out.splitlines()
        assert "a changed file was refused" in head
        assert last == f"refused, and the earlier file is in force: {first}; 1 more: redrive check"
        assert await top("--json", "--admin", redrive.admin) == 0
        assert json.loads(capsys.readouterr().out)["reload_errors"] == [first, second]
