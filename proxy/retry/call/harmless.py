"""The parts of a request that are known to hold no credential, so that another upstream may see them: header fields,
query parameters, paths.

Names of credentials cannot be listed: every gateway and every company has its own. So the lists here are of harmless
fields. A field that is on no list is passed on only if its value is too short or too plain to be a secret. Query
parameters have no common names at all. Of these, a parameter is left out if its name says that it holds a secret, or if
its value looks like a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote_plus

#: Fields of the framing and of one hop: written again for each connection, or removed by other code.
_HOP = frozenset(
    {
        "connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "max-forwards",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
        "x-attempt-count", "x-retry-disable", "x-retry-timeout",
    }
)  # fmt: skip
#: Fields about the body, and about the wanted answer (RFC 9110 sections 8 and 12; RFC 9530, RFC 3230, RFC 1864).
_CONTENT = frozenset(
    {
        "accept", "accept-charset", "accept-encoding", "accept-language", "accept-patch", "accept-post",
        "content-digest", "content-disposition", "content-encoding", "content-language", "content-location",
        "content-md5", "content-range", "content-type", "digest", "mime-version", "repr-digest",
        "want-content-digest", "want-digest", "want-repr-digest",
        "cache-control", "date", "dnt", "pragma", "prefer", "priority", "sec-gpc", "user-agent",
    }
)  # fmt: skip
#: Fields that change a request's meaning: without one of them it would ask for something else. A write that loses its
#: condition overwrites what it must not (RFC 9110 section 13); without a method override the method is another one.
_MEANING = frozenset(
    {
        "if", "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range",
        "upload-length", "upload-offset", "x-amz-copy-source", "x-amz-copy-source-range", "x-goog-copy-source",
        "x-goog-generation", "x-goog-metageneration",
        "depth", "overwrite", "soapaction", "x-http-method", "x-http-method-override", "x-method-override",
        "access-control-request-headers", "access-control-request-method", "origin", "x-requested-with",
    }
)  # fmt: skip
#: Fields that record a request's way, so that loops are seen, or identify it. Baggage is not among them: it holds
#: values of the app's own (W3C Baggage, section 5), while `tracestate` holds positions in traces.
_WAY = frozenset(
    {
        "cdn-loop", "early-data", "via", "x-redrive-loop",
        "b3", "elastic-apm-traceparent", "grpc-trace-bin", "sentry-trace", "traceparent", "tracestate",
        "uber-trace-id", "x-amzn-trace-id", "x-b3-flags", "x-b3-parentspanid", "x-b3-sampled", "x-b3-spanid",
        "x-b3-traceid", "x-cloud-trace-context", "x-datadog-parent-id", "x-datadog-sampling-priority",
        "x-datadog-trace-id", "x-trace-id",
        "request-id", "x-client-request-id", "x-correlation-id", "x-ms-client-request-id", "x-request-id",
    }
)  # fmt: skip
#: Versions, features and figures of protocols and of providers' clients. Names of accounts (openai-organization,
#: stripe-account, x-goog-user-project) are not among them: they belong to the credential.
_CLIENT = frozenset(
    {
        "connect-accept-encoding", "connect-content-encoding", "connect-protocol-version", "connect-timeout-ms",
        "grpc-accept-encoding", "grpc-encoding", "grpc-message-type", "grpc-previous-rpc-attempts", "grpc-timeout",
        "x-grpc-retry-attempts", "x-grpc-web", "x-user-agent", "x-envoy-attempt-count",
        "mcp-method", "mcp-name", "mcp-protocol-version",
        "anthropic-beta", "anthropic-dangerous-direct-browser-access", "anthropic-version", "openai-beta",
        "amz-sdk-invocation-id", "amz-sdk-request", "x-amz-target", "x-amz-user-agent", "x-amz-content-sha256",
        "x-goog-api-client", "x-goog-fieldmask", "x-goog-hash", "x-goog-request-params",
        "x-ms-content-crc64", "x-ms-content-sha256", "x-ms-date", "x-ms-return-client-request-id", "x-ms-version",
        "stripe-version", "x-github-api-version", "x-github-next-global-id",
    }
)  # fmt: skip
_HARMLESS = _HOP | _CONTENT | _MEANING | _WAY | _CLIENT
#: The OpenAI and Anthropic SDKs' and browsers' descriptions of themselves; checksums of Amazon's SDKs.
_HARMLESS_BEGINNINGS = (
    *("x-stainless-", "x-amz-checksum-", "sec-fetch-", "sec-ch-ua"),
    *("x-amz-copy-source-if-", "x-amz-if-match-", "x-goog-if-", "x-goog-copy-source-if-", "x-ms-if-"),  # conditions
)
#: A value of less than ten bits: empty, a switch, or a number of at most three digits.
_SMALL = re.compile(r"(?:true|false|yes|no|on|off|[0-9]{1,3})?", re.IGNORECASE).fullmatch
#: A plain value: words, versions and dates, as tenants, modes, regions and languages are written.
_PLAIN_PART = r"(?:[a-z]{0,14}(?:[A-Z][a-z]{2,14}){0,3}|[A-Z]{1,12})(?:[0-9]{0,3}|[0-9]{4}(?=[-/.]))"
_PLAIN = re.compile(rf"{_PLAIN_PART}(?:[-_./,;= ]{{1,2}}{_PLAIN_PART})*").fullmatch
_LONGEST_PLAIN, _MOST_DIGITS = 40, 8
#: Fields of the first upstream alone, whatever their values: accounts that its credential belongs to, and what of the
#: app, or of where it was, no other upstream has to know.
_OF_THE_FIRST = frozenset(
    {
        "anthropic-organization-id", "chatgpt-account-id", "openai-organization", "openai-project", "stripe-account",
        "stripe-context", "x-goog-user-project",
        "baggage", "cf-connecting-ip", "forwarded", "from", "last-event-id", "referer", "true-client-ip", "x-real-ip",
    }
)  # fmt: skip
#: The longest value of a field whose name says that it identifies, and does not prove: `x-tenant-id`.
_LONGEST_ID = 64
_ID = re.compile(r"[A-Za-z0-9._:-]+").fullmatch

#: Names that say that they hold a secret (contract, section 13).
_SECRET = re.compile(r"auth|key|token|secret|session|password|signature", re.IGNORECASE).search
#: Further such names in lower case, which the contract does not list: as any part of a name, or as a whole word of it.
_ALSO_SECRET = re.compile(
    r"assertion|bearer|cookie|credential|creds|csrf|dpop|hmac|jwt|passcode|passphrase|passwd|saml|sessid|xsrf"
    r"|(?:^|[^a-z])(?:cert|cvc|cvv|otp|pass|pin|pwd?|sid|tkn)(?:[^a-z]|$)"
).search
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: Query parameters that hold a credential under a short name: Azure's.
_SHORT = frozenset({"sig", "code"})

#: Prefixes that issuers give their keys so that leaks are found: OpenAI, Anthropic, Stripe, GitHub, GitLab, Slack,
#: Amazon, Google, Hugging Face, SendGrid, npm, DigitalOcean, Shopify, Replicate, Groq, xAI; a JSON Web Token; a scheme.
_ISSUED = re.compile(
    r"(?<![A-Za-z0-9])(?:sk[-_]\S|(?:[pr]k|whsec|gsk|hf|r8|npm|gh[opsur]|github_pat|shpat|shpss|dop_v1)_\S"
    r"|(?:xai|glpat|gldt|xox[a-z])-\S|(?:AKIA|ASIA)[A-Z0-9]{8}|AIza\S{8}|ya29\.|SG\.\S{8}|eyJ[A-Za-z0-9_-]{5}"
    r"|(?:key|pat|secret|token)[-_][A-Za-z]*[0-9]|Bearer\s+\S|Basic\s+[A-Za-z0-9+/]{8})"
).search
#: The names of parameters in a value that is itself a URL or a query.
_INNER = re.compile(r"(?:^|[?&;\s])([^=?&;\s]+)=").findall
_USER_INFO = re.compile(r"//[^/?#\s]*@").search
#: A UUID, which is no secret: nothing may be granted for knowing one (RFC 9562, section 8).
_UUID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])", re.IGNORECASE).sub
#: A row of letters and digits, as in keys: sixteen hexadecimal digits are 64 bits.
_ROW = re.compile(r"[A-Za-z0-9]++").findall
_SHORTEST_ROW, _LONG_ROW = 16, 32
#: A row of base64 characters, the rows of letters and digits in it, and those that are a word or a number.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]++").findall
_SHORTEST_BASE64 = 24
_PART = re.compile(r"[A-Za-z0-9]{8,}").findall
_REGULAR = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+[A-Za-z]{0,2}|[A-Za-z]+[0-9]{1,8}").fullmatch
_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z?").fullmatch
_WORD = re.compile(r"[A-Za-z]{0,16}").fullmatch
#: The beginning of a path parameter: a semicolon, which some servers decode first.
_SEMICOLON = re.compile(rb"(;|%3[bB])")
_EQUALS = re.compile(rb"=|%3[dD]").search


def is_harmless_field(name: str, values: Iterable[str]) -> bool:
    """Whether a field with this lower-case name and these values is known to hold no credential."""
    if _SECRET(name):
        return False
    if name in _HARMLESS or name.startswith(_HARMLESS_BEGINNINGS):
        return True
    if _ALSO_SECRET(name):
        return False
    values = [value.strip() for value in values]
    if all(map(_SMALL, values)):
        return True
    if name in _OF_THE_FIRST or name.startswith("x-forwarded-"):
        return False
    is_id = name.endswith(("-id", "_id"))
    return all(_SMALL(each) or _is_plain(each) or (is_id and _is_id(each)) for each in values)


def _is_plain(value: str) -> bool:
    """Whether a value consists of words, and has no more digits than a date has."""
    if len(value) > _LONGEST_PLAIN or value.isdigit() or sum(map(str.isdigit, value)) > _MOST_DIGITS:
        return False
    return _PLAIN(value) is not None and not looks_like_key(value)


def _is_id(value: str) -> bool:
    return len(value) <= _LONGEST_ID and _ID(value) is not None and not looks_like_key(value)


def is_secret_name(name: str) -> bool:
    """Whether the name of a parameter says that it holds a credential."""
    lower = name.lower()
    return lower in _SHORT or bool(_SECRET(lower) or _ALSO_SECRET(lower) or _ALSO_SECRET(_HUMP.sub("-", name).lower()))


def looks_like_key(value: str) -> bool:
    """Whether `value`, a text from a query, decoded or not, may be or contain a key. When in doubt, the answer is yes:
    a harmless parameter that is left out can be named in `keep`, but a key that is passed on is known to another
    upstream.
    """
    for _ in range(3):  # as received, and decoded once or twice
        if _ISSUED(value) or _USER_INFO(value) or any(is_secret_name(name) for name in _INNER(value)):
            return True
        named = _UUID("", value)
        if any(map(_is_random, _ROW(named))) or any(map(_is_irregular, _BASE64(named))):
            return True
        value, before = unquote_plus(value, "latin-1"), value
        if value == before:
            break
    return False


def is_harmless_word(text: str) -> bool:
    """Whether a part of a query that has no `=` is a mere flag: one short word, as in `?wsdl`."""
    return _WORD(text) is not None


def without_path_parameters(path: bytes, keep: frozenset[str]) -> bytes:
    """Return the path of a target without the parameters `;name=value` in its segments (RFC 3986, section 3.3), except
    for those whose names are in `keep`. An encoded semicolon begins a parameter only if an `=` follows in it; otherwise
    it is part of the segment's name.
    """
    if b";" not in path and b"%3" not in path:
        return path
    return b"/".join([_bare(segment, keep) for segment in path.split(b"/")])


def _bare(segment: bytes, keep: frozenset[str]) -> bytes:
    first, *rest = _SEMICOLON.split(segment)
    kept = [first]
    for mark, text in zip(rest[::2], rest[1::2], strict=True):
        equals = _EQUALS(text)
        name = unquote_plus((text[: equals.start()] if equals else text).decode("latin-1"), "latin-1")
        if name.strip().lower() in keep or (mark != b";" and equals is None):
            kept += mark, text
    return b"".join(kept)


def _is_random(row: str) -> bool:
    """Whether `row`, a text of letters and digits, may be random, as keys are. It is if it is as long as a key and has
    both letters and digits, or if it is longer than any word and of mixed case. Digits alone, and times, are not
    random.
    """
    if len(row) < _SHORTEST_ROW or row.isdigit() or _TIME(row):
        return False
    return not row.isalpha() or (len(row) >= _LONG_ROW and row not in (row.lower(), row.upper()))


def _is_irregular(text: str) -> bool:
    """Whether a long text of base64 characters has a part that is neither a word nor a number, as keys do."""
    return len(text) >= _SHORTEST_BASE64 and any(not _REGULAR(part) for part in _PART(text))
