"""The proxies that are measured side by side: how each is installed, configured and started on one core.

Each is told to retry where it can (and how is written in `notes`), keeps its connections to the upstream alive, and
runs one worker. What a peer does not do in a row is said in bench/README.md, so that the rows are read fairly.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from measure import VENV
from targets import PURE, TARGETS

HERE = Path(__file__).parent


@dataclass
class Place:
    """Where a run happens: a scratch folder, the upstream's ports, and the port that the proxy gets."""

    folder: Path
    port: int
    upstream: int
    upstream_tls: int
    upstream_tls_once: int
    upstream_flaky: int
    ca: Path
    upstream_h2: int = 0  # 0: not on this machine
    upstream_grpcio: int = 0
    upstream_streams: int = 0
    intercepts: bool = False  # whether redrive reads the upstream's TLS: it needs its local CA beside its configuration

    @property
    def written(self) -> Path:
        """The folder of logs and of what loads write: apart, as the system wakes redrive at each write beside its files."""
        return self.folder / "written"

    def http1(self) -> list[tuple[str, int]]:
        """Names and ports of the upstreams that speak HTTP/1; those whose names begin with `tls` speak it over TLS."""
        tls = [("tls", self.upstream_tls), ("tls_once", self.upstream_tls_once)]
        streams = [("streams", self.upstream_streams), ("watched", self.upstream_streams)]
        named = [("plain", self.upstream), *tls, ("flaky", self.upstream_flaky), ("to_h1", self.upstream), *streams]
        return [(name, port) for name, port in named if port]

    def upstreams(self) -> set[str]:
        """Names of all upstreams that this machine has."""
        both = {"to_h2"} if self.upstream_h2 else set()
        return both | {name for name, _ in (*self.http1(), *self.http2())}

    def http2(self) -> list[tuple[str, int]]:
        """Names and ports of the upstreams that speak HTTP/2 and nothing else."""
        both = (("h2", self.upstream_h2), ("grpcio", self.upstream_grpcio))
        return [(name, port) for name, port in both if port]


@dataclass
class Peer:
    """`command` makes the argument list (and writes what configuration it needs). `reverse`, `forward`: what it does.
    `streams`: it has a way to the upstream of events and WebSockets.

    `rows`: the only ones that it takes part in, by their names; none said: all that it can do. `judged`: a target of
    `targets.py` compares with it, so that it takes part in every round; the others take part in the first one.
    """

    name: str
    command: Callable[[Place], list[str]]
    reverse: bool = True
    forward: bool = False
    tls: bool = True
    retries: bool = True
    connect: bool = False
    http2: bool = False
    streams: bool = False
    judged: bool = False
    rows: frozenset[str] = frozenset()
    available: Callable[[], bool] = field(default=lambda: True)
    notes: str = ""


def on_path(name: str) -> Callable[[], bool]:
    """Whether a system command is installed."""
    return lambda: shutil.which(name, path="/usr/sbin:/usr/bin:/bin:/usr/local/bin") is not None


def in_venv(name: str) -> Callable[[], bool]:
    """Whether the benchmark's own environment has a command."""
    return lambda: (VENV / "bin" / name).exists()


def redrive(place: Place) -> list[str]:
    """redrive with everything on: policy, bucket, headers, metrics, access log to a file, the admin port."""
    file = place.folder / "redrive.yaml"
    more = "".join(
        f'  {name}: {{url: "http://127.0.0.1:{port}", services: [bench.{name}]}}\n' for name, port in place.http2()
    )
    if place.upstream_h2:
        more += f'  to_h2: {{url: "http://127.0.0.1:{place.upstream_h2}", protocol: http/2}}\n'
    if place.upstream_streams:
        more += f'  to_h1: {{url: "http://127.0.0.1:{place.upstream}", protocol: http/1.1}}\n'
        more += f'  streams: {{url: "http://127.0.0.1:{place.upstream_streams}"}}\n'
        more += f'  watched: {{url: "http://127.0.0.1:{place.upstream_streams}", dialects: [openai]}}\n'
    intercept = ", connect: intercept" if place.intercepts else ""
    file.write_text(
        f"""listen: 127.0.0.1:{place.port}
admin: 127.0.0.1:0
upstreams:
  plain: {{url: "http://127.0.0.1:{place.upstream}"}}
  tls: {{url: "https://localhost:{place.upstream_tls}", verify: {place.ca}{intercept}}}
  tls_once: {{url: "https://localhost:{place.upstream_tls_once}", verify: {place.ca}}}
  flaky: {{url: "http://127.0.0.1:{place.upstream_flaky}", bucket: {{kind: quota, capacity: 1000000}},
           strategy: {{kind: standard, backoff: {{base: 25ms, max: 250ms}}}}}}
{more}"""
    )
    return [sys.executable, "-m", "proxy", "run", "-c", str(file)]


def python_alone(place: Place) -> list[str]:
    """The same without the compiled core."""
    return ["env", "REDRIVE_PURE=1", *redrive(place)]


def is_compiled() -> bool:
    """Whether redrive runs its compiled core."""
    told = subprocess.run([sys.executable, "-m", "proxy", "--version"], capture_output=True, text=True, check=True)
    return "compiled" in told.stdout


def envoy(place: Place) -> list[str]:
    """Envoy: retry policy (5xx, reset, connect-failure; 2 retries) and a retry budget of 20 %; no access log."""
    clusters = []
    http1 = place.http1()
    to_h2 = [("to_h2", place.upstream_h2)] if place.upstream_h2 else []
    for name, port in http1 + to_h2 + place.http2():
        http2 = (
            """
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}"""
            if (name, port) in to_h2 + place.http2()
            else ""
        )
        tls = (
            """
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: localhost
        common_tls_context: {validation_context: {trusted_ca: {filename: "%s"}}}"""
            % place.ca
            if name.startswith("tls")
            else ""
        )
        clusters.append(
            f"""
  - name: {name}
    type: STATIC
    connect_timeout: 5s
    circuit_breakers:
      thresholds:
      - {{max_connections: 10000, max_pending_requests: 10000, max_requests: 10000,
          retry_budget: {{budget_percent: {{value: 20}}, min_retry_concurrency: 10}}}}
    load_assignment:
      cluster_name: {name}
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address:
        {{address: 127.0.0.1, port_value: {port}}}}}}}}}]}}]{tls}{http2}"""
        )
    routes = "".join(
        f"""
              - match: {{prefix: "{prefix}"}}
                route:
                  cluster: {name}
                  prefix_rewrite: "{rewritten}"
                  retry_policy: {{retry_on: "5xx,reset,connect-failure,unavailable", num_retries: 2}}"""
        for name, prefix, rewritten in [
            *((name, f"/{name}/", "/") for name, _ in http1 + to_h2),
            *((name, f"/bench.{name}/", f"/bench.{name}/") for name, _ in place.http2()),
        ]
    )
    file = place.folder / "envoy.yaml"
    file.write_text(
        f"""static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {place.port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          upgrade_configs: [{{upgrade_type: websocket}}]
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:{routes}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:{"".join(clusters)}
"""
    )
    return [str(VENV / "bin" / "envoy"), "-c", str(file), "--concurrency", "1", "--disable-hot-restart", "-l", "error"]


def _haproxys_way(name: str, place: Place) -> str:
    """What HAProxy has to know of a server to speak to it."""
    if name.startswith("tls"):
        return f"ssl verify required ca-file {place.ca} sni str(localhost)"
    return "" if name in dict(place.http1()) else "proto h2"


def haproxy(place: Place) -> list[str]:
    """HAProxy: one thread, retry-on all-retryable-errors, 3 retries."""
    backends = "".join(
        f"""
backend {name}
  http-request replace-path /{name}/(.*) /\\1
  server s 127.0.0.1:{port} {extra}
"""
        for name, port in [*place.http1(), *place.http2(), ("to_h2", place.upstream_h2)]
        for extra in (_haproxys_way(name, place),)
        if port
    )
    prefixes = {name: name for name in place.upstreams() - {"plain"}}
    prefixes |= {name: f"bench.{name}" for name, _ in place.http2()}
    choices = "\n".join(f"  use_backend {name} if {{ path_beg /{each}/ }}" for name, each in sorted(prefixes.items()))
    file = place.folder / "haproxy.cfg"
    file.write_text(
        f"""global
  nbthread 1
  maxconn 8000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  retries 3
  retry-on all-retryable-errors
  http-reuse always
frontend f
  bind 127.0.0.1:{place.port}
{choices}
  default_backend plain
{backends}"""
    )
    return ["/usr/sbin/haproxy", "-db", "-f", str(file)]


def nginx(place: Place) -> list[str]:
    """nginx: one worker, proxy_next_upstream on errors and 503 (the server is listed three times), access log off."""
    ups = "".join(
        f"upstream {name} {{ {f'server 127.0.0.1:{port} max_fails=0; ' * 3} keepalive 512; }}\n"
        for name, port in place.http1()
    )
    verified = f"proxy_ssl_trusted_certificate {place.ca}; proxy_ssl_verify on; "
    verified += "proxy_ssl_name localhost; proxy_ssl_server_name on;"
    locations = "".join(
        f"location /{name}/ {{ proxy_pass {scheme}://{name}/; {extra} }}\n"
        for name, _ in place.http1()
        for scheme, extra in (("https", verified) if name.startswith("tls") else ("http", ""),)
    )
    return write_nginx(
        place.folder / "nginx-proxy",
        f"""{ups}
server {{
  listen 127.0.0.1:{place.port} backlog=4096;
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  proxy_next_upstream error timeout http_503 non_idempotent;
  proxy_next_upstream_tries 3;
  client_max_body_size 1g;
  {locations}
}}
""",
    )


def write_nginx(folder: Path, http: str, *, more: str = "") -> list[str]:
    """An nginx of our own in `folder`, in the foreground, one worker."""
    folder.mkdir(parents=True, exist_ok=True)
    temp = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"""daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log crit;
worker_rlimit_nofile 65536;
events {{ worker_connections 16384; multi_accept on; }}
http {{
access_log off; keepalive_requests 100000000; keepalive_timeout 1h; {temp}{more}
{http}
}}
"""
    )
    return ["/usr/sbin/nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def squid(place: Place) -> list[str]:
    """squid: forward proxy, no cache, no log."""
    file = place.folder / "squid.conf"
    file.write_text(
        f"""http_port 127.0.0.1:{place.port}
acl all_src src all
http_access allow all_src
cache deny all
cache_mem 8 MB
access_log none
cache_log {place.folder}/cache.log
pid_filename {place.folder}/squid.pid
coredump_dir {place.folder}
workers 1
shutdown_lifetime 0 seconds
"""
    )
    return ["/usr/sbin/squid", "-N", "-f", str(file)]


def tinyproxy(place: Place) -> list[str]:
    """tinyproxy: forward proxy; it opens a connection upstream for each request."""
    file = place.folder / "tinyproxy.conf"
    file.write_text(
        f"Port {place.port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 1024\nAllow 127.0.0.1\n"
        f'LogFile "{place.folder}/tinyproxy.log"\nLogLevel Critical\n'
    )
    return ["/usr/bin/tinyproxy", "-d", "-c", str(file)]


def mitmproxy(place: Place) -> list[str]:
    """mitmproxy's mitmdump in regular mode, quiet."""
    options = ["--set", f"confdir={place.folder}/mitm", "--set", "flow_detail=0", "--set", "termlog_verbosity=error"]
    return [str(VENV / "bin" / "mitmdump"), "-q", "--listen-host", "127.0.0.1", "-p", str(place.port), *options]


def proxy_py(place: Place) -> list[str]:
    """proxy.py: forward proxy, one worker, threadless."""
    options = ["--num-workers", "1", "--num-acceptors", "1", "--log-level", "ERROR"]
    return [
        str(VENV / "bin" / "proxy"),
        "--hostname",
        "127.0.0.1",
        "--port",
        str(place.port),
        *options,
        "--data-dir",
        str(place.folder),
    ]


def plain_aiohttp(place: Place) -> list[str]:
    """What a user would write: aiohttp's server and client session on uvloop."""
    return [sys.executable, str(HERE / "plain_aiohttp.py"), str(place.port), str(place.upstream)]


def bare_relay(place: Place) -> list[str]:
    """The limit: bytes copied between two sockets by uvloop, nothing read."""
    return [sys.executable, str(HERE / "bare_relay.py"), str(place.port), str(place.upstream)]


PEERS = [
    Peer(
        "redrive",
        redrive,
        judged=True,
        forward=True,
        connect=True,
        http2=True,
        streams=True,
        notes="policy, bucket, metrics, access log to a file",
    ),
    Peer(
        PURE,
        python_alone,
        judged=True,
        http2=True,
        streams=True,
        rows=frozenset(target.row for target in TARGETS),
        available=is_compiled,
        notes="the same, REDRIVE_PURE=1",
    ),
    Peer(
        "envoy",
        envoy,
        judged=True,
        http2=True,
        streams=True,
        available=in_venv("envoy"),
        notes="retry policy and retry budget; no access log",
    ),
    Peer(
        "haproxy",
        haproxy,
        judged=True,
        http2=True,
        streams=True,
        available=on_path("haproxy"),
        notes="retry-on all-retryable-errors; no log",
    ),
    Peer("nginx", nginx, available=on_path("nginx"), notes="proxy_next_upstream on 503; no log"),
    Peer(
        "squid",
        squid,
        False,
        True,
        tls=False,
        retries=False,
        connect=True,
        available=on_path("squid"),
        notes="no cache",
    ),
    Peer(
        "tinyproxy",
        tinyproxy,
        False,
        True,
        tls=False,
        retries=False,
        connect=True,
        available=on_path("tinyproxy"),
        notes="no keep-alive upstream",
    ),
    Peer(
        "mitmproxy",
        mitmproxy,
        False,
        True,
        tls=False,
        retries=False,
        available=in_venv("mitmdump"),
        notes="no retries",
    ),
    Peer(
        "proxy.py",
        proxy_py,
        False,
        True,
        tls=False,
        retries=False,
        connect=True,
        available=in_venv("proxy"),
        notes="no retries",
    ),
    Peer("aiohttp", plain_aiohttp, True, False, False, False, notes="web.Server + ClientSession, no retries, no log"),
    Peer("bare relay", bare_relay, True, False, False, False, notes="the limit: reads nothing"),
]
