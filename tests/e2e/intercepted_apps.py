"""Whole programs, each a process of its own, which read their surroundings as they were written to.

Each is given a URL and prints the status and the body of one GET. None of them names a proxy or a certificate.
"""

from __future__ import annotations

import shutil
import sys

import pytest

REQUESTS = """
import sys, requests
got = requests.get(sys.argv[1])
print(got.status_code, got.text)
"""

HTTPX = """
import sys, httpx
got = httpx.get(sys.argv[1])
print(got.status_code, got.text)
"""

AIOHTTP = """
import asyncio, sys, aiohttp
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session, session.get(sys.argv[1]) as got:
        print(got.status, await got.text())
asyncio.run(main())
"""

URLLIB = """
import sys, urllib.request
got = urllib.request.urlopen(sys.argv[1])
print(got.status, got.read().decode())
"""

# The service's own address: the SDK makes it of the region, and nothing in the program says otherwise.
BOTO3 = """
import boto3
got = boto3.client("s3", region_name="eu-central-1").list_buckets()
print(got["ResponseMetadata"]["HTTPStatusCode"], ",".join(bucket["Name"] for bucket in got["Buckets"]))
"""

# Node's fetch reads the surroundings from 24 on. Before that, what proxy agents (https-proxy-agent and its kin) do is
# written out: CONNECT, TLS in it, a request over that.
NODE = """
const url = new URL(process.argv[1]);
async function byFetch() {
  const got = await fetch(url);
  console.log(got.status, await got.text());
}
function byAgent() {
  const http = require("node:http"), https = require("node:https"), tls = require("node:tls");
  const proxy = new URL(process.env.HTTPS_PROXY);
  const path = `${url.hostname}:${url.port || 443}`;
  const headers = { host: path };
  const connect = http.request({ host: proxy.hostname, port: proxy.port, method: "CONNECT", path, headers });
  connect.once("connect", (answer, socket) => {
    if (answer.statusCode !== 200) throw new Error(`CONNECT: ${answer.statusCode}`);
    const secure = tls.connect({ socket, servername: url.hostname, ALPNProtocols: ["http/1.1"] });
    const agent = Object.assign(new https.Agent(), { createConnection: () => secure });
    https.get(url, { agent }, (got) => {
      let text = "";
      got.setEncoding("utf8").on("data", (data) => (text += data)).on("end", () => console.log(got.statusCode, text));
    });
  });
  connect.end();
}
parseInt(process.versions.node) >= 24 ? byFetch() : byAgent();
"""


def _needs(command: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(command) is None, reason=f"{command} is not installed")


#: What it prints, brought into the others' form: status and body on one line.
CURL = """
set -e
got=$(curl -sS --max-time 30 -w '\\n%{http_code}' "$0")
body=${got%
*}
echo "${got##*
} $body"
"""

APPS = [
    pytest.param(("sh", "-c", CURL), id="curl", marks=_needs("curl")),
    pytest.param((sys.executable, "-c", REQUESTS), id="requests"),
    pytest.param((sys.executable, "-c", HTTPX), id="httpx"),
    pytest.param((sys.executable, "-c", AIOHTTP), id="aiohttp"),
    pytest.param((sys.executable, "-c", URLLIB), id="urllib"),
    pytest.param(("node", "-e", NODE), id="node", marks=_needs("node")),
]
