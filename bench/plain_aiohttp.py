"""What a user would write: a reverse proxy from aiohttp's own server and client, on uvloop."""

import sys

import aiohttp
import uvloop
from aiohttp import web

HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"}


async def main(port: int, upstream: int) -> None:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), auto_decompress=False, skip_auto_headers={"User-Agent"}
    )

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path.split("/", 2)[-1]
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in HOP]
        body = await request.read() if request.can_read_body else None
        url = f"http://127.0.0.1:{upstream}/{path}"
        async with session.request(request.method, url, headers=headers, data=body) as answer:
            kept = [(k, v) for k, v in answer.headers.items() if k.lower() not in HOP]
            return web.Response(status=answer.status, headers=dict(kept), body=await answer.read())

    runner = web.ServerRunner(web.Server(handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
    import asyncio

    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
