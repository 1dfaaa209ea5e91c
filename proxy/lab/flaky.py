"""A small flaky upstream on loopback, to try redrive without the internet: `python -m proxy.lab.flaky`.

The upstream answers requests in turn with 503, with 503 and `Retry-After: 1`, and with 200. The body gives the number
of the attempt; if attempts are not counted, the number of the request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import os
import sys
from itertools import count

from aiohttp import web

HOST, PORT = "127.0.0.1", 8081


async def serve(host: str, port: int, parent: int) -> None:
    """Serve at this host and port until interrupted, or until the process with the id `parent` (0: none) is no longer
    this process's parent.
    """
    requests = count(1)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        number = next(requests)
        attempt = request.headers.get("X-Attempt-Count")
        which = f"request {number}" if attempt is None else f"attempt {attempt}"
        headers = {"Retry-After": "1"} if number % 3 == 2 else {}
        status = 200 if number % 3 == 0 else 503
        text = f"{request.method} {request.path} was {which}, and the answer is {status}\n"
        return web.Response(status=status, text=text, headers=headers)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        for address in runner.addresses:  # with --port 0 the system's choice
            place = f"[{address[0]}]" if ":" in address[0] else address[0]
            text = f"a flaky upstream on http://{place}:{address[1]} answers 503, 503 with Retry-After: 1, 200, in turn"
            print(text, file=sys.stderr, flush=True)
        forever = asyncio.Event()
        while parent in (0, os.getppid()):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(forever.wait(), 0.5)
    finally:
        await runner.cleanup()


def main() -> int:
    """Run this module's own command line, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m proxy.lab.flaky", description="a flaky upstream on loopback")
    parser.add_argument("--host", default=HOST, help="where to listen; %(default)s unless named")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--parent", type=int, default=0, metavar="PID", help="end with this process, the parent")
    options = parser.parse_args()
    try:
        asyncio.run(serve(options.host, options.port, options.parent))
    except OSError as error:
        why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
        print(f"the flaky upstream can't listen on {options.host}:{options.port}: {why}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
