"""What a verb prints comes whole, and a verb that can't print says so, or does without."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import subprocess
import termios
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from support.process import COMMAND, LISTEN, environment

#: Bytes that the pipe holds: less than is printed.
ROOM = 4096


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def waiting(pipe: int) -> int:
    """Bytes that stand in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), "little")


def test_nothing_is_lost_where_the_process_is_stopped_while_it_prints() -> None:
    """A write that a signal interrupts has written a part. Without a buffer, Python does not write the rest."""
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, ROOM)
    process = subprocess.Popen([*COMMAND, "schema"], env=environment(PYTHONUNBUFFERED="1"), stdout=theirs)
    os.close(theirs)
    while waiting(ours) < ROOM or state(process.pid) != "S":  # it prints, and waits for a reader
        select.select([], [], [], 0.001)
    process.send_signal(signal.SIGSTOP)
    while state(process.pid) != "T":
        select.select([], [], [], 0.001)
    process.send_signal(signal.SIGCONT)
    with open(ours, "rb") as output:
        printed = output.read()
    assert process.wait() == 0
    assert json.loads(printed)["title"] == "redrive configuration"


def with_closed(streams: str, *arguments: str) -> list[str]:
    """The command as a shell begins it that closes standard streams: `>&-`, `2>&-`."""
    return ["sh", "-c", f'exec "$@" {streams}', "sh", *COMMAND, *arguments]


def test_a_server_begun_without_standard_streams_serves(tmp_path: Path) -> None:
    """Sockets would get the numbers of the streams: libuv ended each worker when it closed one."""
    file = tmp_path / "redrive.yaml"
    file.write_text(f"{LISTEN}workers: 2\nupstreams: {{a: {{url: 'http://127.0.0.1:1', strategy: none}}}}\n")
    command = with_closed("<&- >&-", "run", "-c", str(file))
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = ""
            while not (listening := re.search(r"listening on (\S+?),", said)):
                line = process.stderr.readline()
                assert line, said
                said += line
            with pytest.raises(urllib.error.HTTPError, match="502"):
                urllib.request.urlopen(f"{listening[1]}/a/x")
        finally:
            process.terminate()
        said += process.stderr.read()
        assert process.wait() == 0, said


def test_verbs_without_a_standard_stream_do_without(
    tmp_path: Path,
) -> None:
    (tmp_path / "redrive.yaml").write_text("upstreams: {a: {url: 'http://a.example'}}\n")

    def ended(streams: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = with_closed(streams, *arguments)
        return subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False)

    silent = ended(">&-", "explain", "GET", "http://a.example/")
    assert (silent.returncode, silent.stdout) == (0, "")
    assert silent.stderr == "redrive: configuration: redrive.yaml\n"
    answer = ended("2>&-", "explain", "--json", "GET", "http://a.example/")
    assert answer.returncode == 0
    assert json.loads(answer.stdout)["refused"] is None
    (tmp_path / "ü.yaml").write_text("")  # the name goes to standard error, which can't say it in every locale
    command = with_closed("2>&-", "explain", "-c", "ü.yaml", "GET", "http://a.example/")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert subprocess.run(command, env=environment() | locale, cwd=tmp_path, capture_output=True, check=False).stdout


def test_a_folder_that_is_gone_is_named_as_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    command = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *COMMAND, "check"]
    ended = subprocess.run(command, env=environment(), cwd=folder, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-1] == (
        "redrive: the folder in which this was started is gone: cd to one that exists"
    )


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_that_finds_no_room_on_the_disk_is_an_error_in_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [*COMMAND, *arguments]
        ended = subprocess.run(command, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, "redrive: no space left on device\n")
