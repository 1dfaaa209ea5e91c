"""`redrive init`: a small configuration with comments, to begin with.

It never replaces a file. Each provider is a few lines; config/examples has more about each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

#: How a file begins.
_HEAD = """\
# redrive.yaml: the upstreams that your apps call, and how their calls are retried.
#
#   redrive check                  says what is wrong with this file
#   redrive explain METHOD URL     says what happens to a request
#   redrive run                    serves it, and loads it again when it changes
#
# Everything that is not set here has a default: at most 3 attempts with growing waits between them, paid for from a
# bucket that all callers share. https://github.com/redrive-proxy/redrive/tree/main/docs has every key.

upstreams:
"""
#: The upstreams of a file without any.
_EMPTY = """\
#  name:                                # any name; as a base URL it is http://127.0.0.1:8080/name
#    url: https://api.example.com
#    dialects: [http]                   # add your provider's: aws, anthropic, azure, github, google, openai, stripe
"""
#: Each provider's lines: how an app is pointed at redrive, and its policy.
PROVIDERS = {
    "openai": """\
  # OPENAI_BASE_URL=http://127.0.0.1:8080/openai/v1, and OpenAI(max_retries=0)
  openai:
    url: https://api.openai.com
    dialects: [http, openai]            # its error codes, its limits' resets, and the POSTs that its own client repeats
    strategy: {max_attempts: 4, backoff: {base: 500ms, max: 8s}}
    timeouts: {first_byte: 2m}          # a stream without an event for so long is asked for again
""",
    "anthropic": """\
  # ANTHROPIC_BASE_URL=http://127.0.0.1:8080/anthropic, and Anthropic(max_retries=0)
  anthropic:
    url: https://api.anthropic.com
    dialects: [http, anthropic]         # overloaded_error, rate limits, and the POSTs that its own client repeats
    strategy: {max_attempts: 4, backoff: {base: 500ms, max: 8s}}
    timeouts: {first_byte: 2m}          # a stream without an event for so long is asked for again
""",
    "github": """\
  # curl http://127.0.0.1:8080/github/zen
  github:
    url: https://api.github.com
    dialects: [http, github]            # its two rate limits, and when they are reset
""",
    "stripe": """\
  # StripeClient(key, base_addresses={"api": "http://127.0.0.1:8080/stripe"}, max_network_retries=0)
  stripe:
    url: https://api.stripe.com
    dialects: [http, stripe]            # a lock that times out is repeated, a declined card is not
    idempotency_key: {inject: true}     # a POST without an Idempotency-Key gets one, the same on every attempt
""",
    "aws": """\
  # HTTP_PROXY=http://127.0.0.1:8080 AWS_MAX_ATTEMPTS=1, with http:// as the scheme of the endpoint URL
  aws:
    hosts: ["*.amazonaws.com:443", "*.amazonaws.com:80"]
    dialects: [http, aws]               # its throttling codes, in JSON and in XML
""",
    "google": """\
  # http://127.0.0.1:8080/google as the base URL of Gemini's client
  google:
    url: https://generativelanguage.googleapis.com
    dialects: [http, google]            # RESOURCE_EXHAUSTED, and the delay that RetryInfo asks for
    timeouts: {first_byte: 2m}
""",
}


class InitError(Exception):
    """Raised if the configuration file is not written; the text is one line for people."""


def write(file: Path, providers: Iterable[str]) -> Iterator[str]:
    """Write a configuration with these providers to `file`, and yield the lines to print about it. A provider is a name
    that is known here, or the URL of another service. Raises InitError, also if the file exists.
    """
    text = "".join([_HEAD, *(_stanza(name) for name in dict.fromkeys(providers))])
    text = text if text != _HEAD else f"{text}{_EMPTY}"
    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(text)
    except FileExistsError:
        raise InitError(f"{file} exists already, and is left as it is") from None
    except OSError as error:
        raise InitError(f"{file} can't be written: {(error.strerror or str(error)).lower()}") from None
    yield f"{file} is written"
    yield f"next: redrive run -c {file}" if str(file) != "redrive.yaml" else "next: redrive run"


def _stanza(named: str) -> str:
    """The lines of an upstream for `named`: a provider that is known here, or the URL of another service. Raises
    InitError.
    """
    if named in PROVIDERS:
        return PROVIDERS[named]
    if not named.startswith(("http://", "https://")):
        raise InitError(f"{named} is none of {', '.join(PROVIDERS)}, and no URL of another service (https://…)")
    try:
        host = urlsplit(named).hostname or ""
    except ValueError:
        host = ""
    if not re.fullmatch(r"[a-z0-9.-]*[a-z0-9]", host) or re.search(r"[\s'\"#{}\[\]]", named):
        raise InitError(f"{named} is not a URL")
    labels = [label for label in host.split(".") if label not in ("www", "api")]
    name = host if re.fullmatch(r"[0-9.]+", host) else labels[0] if labels else host
    return f"""\
  # http://127.0.0.1:8080/{name} as the base URL, or http://{host}/ through HTTP_PROXY=http://127.0.0.1:8080
  {name}:
    url: {named}
    dialects: [http]                    # Retry-After and the RateLimit fields
"""
