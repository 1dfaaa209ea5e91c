"""aiohttp's client is imported when somebody uses it, not with the server."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from proxy import late_modules

BEFORE = """
import os, sys
from proxy.server.late_client import import_aiohttp
import_aiohttp()
"""

WITHOUT = """
import aiohttp, frozenlist
from aiohttp import hdrs, web
print("aiohttp.client" in sys.modules, "frozenlist._frozenlist" in sys.modules)
print(os.environ.get("FROZENLIST_NO_EXTENSIONS"))
print(aiohttp.web is web, aiohttp.hdrs is hdrs)
"""

WITH = """
import aiohttp
import aiohttp.connector, aiohttp.web
server = aiohttp.web.Server
from aiohttp import ClientSession, ClientTimeout
print(aiohttp.ClientSession is ClientSession, aiohttp.TCPConnector is aiohttp.connector.TCPConnector)
print(aiohttp.web.Server is server, type(aiohttp).__name__, [n for n in aiohttp.__all__ if not hasattr(aiohttp, n)])
print(aiohttp.http.SERVER_SOFTWARE.endswith(f"aiohttp/{aiohttp.__version__}"))
try:
    aiohttp.no_such_name
except AttributeError as error:
    print(error)
"""


def ran(code: str, *path: Path) -> list[str]:
    """What a process that imports the server so, and then runs this, prints."""
    code = f"import sys; sys.path[:0] = {[str(each) for each in path]!r}\n{BEFORE}{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_server_comes_without_the_client() -> None:
    assert ran(WITHOUT) == ["False False", "None", "True True"]


def test_a_package_that_is_there_already_is_left_as_it_is() -> None:
    code = "import sys, aiohttp; before = aiohttp.ClientSession\n" + BEFORE + "import aiohttp as after\n"
    code += "print(after is aiohttp, after.ClientSession is before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("", "True True\n")


def test_what_the_environment_says_of_frozenlist_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROZENLIST_NO_EXTENSIONS", "yes")
    assert ran("print(os.environ['FROZENLIST_NO_EXTENSIONS'])") == ["yes"]


def test_the_package_is_whole_as_soon_as_somebody_asks() -> None:
    assert ran(WITH) == [
        "True True",
        "True module []",
        "True",
        "module aiohttp has no attribute no_such_name",
    ]


LATE = """
import html, unicodedata, uuid
print(type(html).__name__, *(name in sys.modules for name in ("email.policy", "attr.validators", "urllib.request")))
import attr, typing_extensions
from aiohttp import helpers, web
print(attr.has(attr.define(type("C", (), {}))), hasattr(typing_extensions, "Annotated"))
print(helpers.parse_content_type("text/plain; charset=utf-8")[:2], helpers.parse_content_type("strange"))
print(web.FileResponse("x")._path, type(web.WebSocketResponse()).__module__)
import yarl
print(yarl.URL("http://b\u00fccher.example/").host, yarl.URL("http://b\u00fccher.example/").raw_host)
"""


def test_what_the_server_seldom_uses_is_imported_when_it_does() -> None:
    assert ran(LATE) == [
        "module False False False",
        "True True",
        "('text/plain', mappingproxy({'charset': 'utf-8'})) ('application/octet-stream', mappingproxy({}))",
        "x aiohttp.web_ws",
        "bücher.example xn--bcher-kva.example",
    ]


def release(folder: Path, package: str, web: str) -> Path:
    """A folder with an aiohttp whose package and server are these lines."""
    (folder / "aiohttp").mkdir()
    (folder / "aiohttp" / "__init__.py").write_text(package)
    (folder / "aiohttp" / "web.py").write_text(web)
    return folder


def test_of_a_release_that_hides_its_version_all_is_imported(tmp_path: Path) -> None:
    made = release(tmp_path, "from .web import *\n__version__ = str(5)\n", "Server = 1\n")
    assert ran("import aiohttp; print(type(aiohttp).__name__, aiohttp.__version__)", made) == ["module 5"]


def test_of_a_release_whose_server_needs_its_package_all_is_imported(tmp_path: Path) -> None:
    package = '__version__ = "5"\nfrom .base import Base\nfrom .web import Server\n'
    made = release(tmp_path, package, "from . import Base\nServer = Base\n")
    (made / "aiohttp" / "base.py").write_text("Base = int\n")
    assert ran("import aiohttp; print(type(aiohttp).__name__, aiohttp.Server)", made) == ["module <class 'int'>"]


class Waited:
    """The lock, which lets the package's code go on as soon as a second thread asks for it."""

    def __init__(self, lock: AbstractContextManager[Any], is_asked: threading.Event) -> None:
        self.lock, self.is_asked, self.first = lock, is_asked, threading.get_ident()

    def __enter__(self) -> None:
        if threading.get_ident() != self.first:
            self.is_asked.set()
        self.lock.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self.lock.__exit__(*raised)


def test_a_second_thread_waits_for_the_package_that_the_first_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_for_two").mkdir()
    code = "begun.set(); is_asked.wait(60); late = 5\nis_missing = not hasattr(__import__(__name__), 'none')\n"
    (tmp_path / "late_for_two" / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    begun, is_asked = threading.Event(), threading.Event()
    package = late_modules.late_package("late_for_two", begun=begun, is_asked=is_asked)
    try:
        monkeypatch.setattr(late_modules, "_one_at_a_time", Waited(late_modules._one_at_a_time, is_asked))

        def second() -> Any:
            begun.wait(60)
            return package.late

        with ThreadPoolExecutor(1) as other:
            found = other.submit(second)
            assert package.late == 5
            assert found.result(60) == 5
        assert package.is_missing
    finally:
        del sys.modules["late_for_two"]


def test_a_package_whose_code_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_and_poor").mkdir()
    (tmp_path / "late_and_poor" / "__init__.py").write_text("rich = money\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    package = late_modules.late_package("late_and_poor")
    try:
        with pytest.raises(NameError):
            _ = package.rich
        vars(package)["money"] = 7
        assert package.rich == 7
    finally:
        del sys.modules["late_and_poor"]
