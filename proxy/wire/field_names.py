"""The names of the header fields that the proxy acts on, found in one pass over a lower-cased head.

No code loops over the fields. One regular expression, an alternation factored by first letter, is run with `findall`;
fields that it does not name are forwarded unexamined.
"""

from __future__ import annotations

import re

#: RFC 9110 section 7.6.1, but for Transfer-Encoding: a chunked body is forwarded chunked. Trailers are forwarded, so
#: Trailer is end-to-end here.
HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"})

#: Request fields that are never forwarded as they came; a head with one of them (but Connection) is not `simple`.
REQUEST_CUT = HOP_BY_HOP | {
    *(b"proxy-authorization", b"http2-settings"),
    *(b"x-retry-disable", b"x-retry-timeout", b"x-attempt-count"),
}
#: Answer fields that are never forwarded as they came.
ANSWER_CUT = HOP_BY_HOP | {b"x-attempt-count"}

#: Further request fields that change what is done. They are found in the same pass, so that asking for one that did not
#: come costs one look-up in a small dict.
REQUEST_READ = (
    *(
        b"via",
        b"x-redrive-loop",
        b"expect",
        b"content-type",
        b"early-data",
        b"sec-fetch-site",
        b"origin",
        b"idempotency-key",
    ),
    *(b"grpc-timeout", b"amz-sdk-invocation-id", b"amz-sdk-request", b"grpc-previous-rpc-attempts"),
    *(b"x-envoy-attempt-count", b"x-stainless-retry-count"),
)
ANSWER_READ = (
    *(b"date", b"grpc-status", b"retry-after", b"retry-after-ms", b"x-ms-retry-after-ms", b"x-amz-retry-after"),
    *(b"grpc-retry-pushback-ms", b"x-grpc-retry-pushback-ms", b"x-should-retry", b"stripe-should-retry"),
    *(b"ratelimit", b"ratelimit-remaining", b"ratelimit-reset"),
)

KEEP_ALIVE, CLOSE = b"keep-alive", b"close"

FRAMING = frozenset({b"content-length", b"transfer-encoding"})
#: Names that no `headers` key of a policy may edit: framing, hop-by-hop fields, routing.
NOT_EDITED = frozenset(name.decode() for name in HOP_BY_HOP | FRAMING | {b"host", b"trailer"})
#: Fields that no trailer section may have, on HTTP/1 or HTTP/2 (RFC 9110 section 6.5.1): framing and routing. A reader
#: that takes trailers for fields of the head would be misled. Hop-by-hop fields in trailers are cut on HTTP/1 and are
#: malformed on HTTP/2 (RFC 9113 section 8.2.2).
MISLEADING_TRAILERS = FRAMING | {b"host", b"trailer", b"max-forwards"}
_LOGIN = rb"(?=:[ \t]*+(?:ntlm|negotiate)(?:[ \t,]|\r))"


def _specials(names: frozenset[bytes], logins: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Return one expression, an alternation factored by first letter, that finds, in a lower-cased head, the fields
    with these names, and those named in `logins` if their value is of NTLM or Negotiate.
    """
    by_letter: dict[bytes, list[bytes]] = {}
    for name in sorted(names):
        by_letter.setdefault(name[:1], []).append(re.escape(name[1:]))
    for name in logins:
        by_letter.setdefault(name[:1], []).append(re.escape(name[1:]) + _LOGIN)
    branches = [letter + rb"(?:" + b"|".join(rest) + rb")" for letter, rest in sorted(by_letter.items())]
    return re.compile(rb"\n(" + b"|".join(branches) + rb"):[ \t]*+([^\r]*+)")


#: The names that the proxy acts on, without the fields of logins, which count only if their value is NTLM or Negotiate.
REQUEST_NAMES = frozenset({b"host", b"max-forwards", *FRAMING, *REQUEST_CUT, *REQUEST_READ})
ANSWER_NAMES = frozenset({*FRAMING, *ANSWER_CUT, *ANSWER_READ})
REQUEST_LOGINS = (b"authorization",)
ANSWER_LOGINS = (b"www-authenticate", b"proxy-authenticate")
find_request = _specials(REQUEST_NAMES, REQUEST_LOGINS).findall
find_answer = _specials(ANSWER_NAMES, ANSWER_LOGINS).findall
#: The same names by their text, so that asking for one that did not come ends in a small dict.
REQUEST_KEYS = {name.decode(): name for name in REQUEST_NAMES}
ANSWER_KEYS = {name.decode(): name for name in ANSWER_NAMES}

#: Fields that send a head to the slow path, because they mean more than that they are cut.
REQUEST_SLOW = frozenset({b"te", b"upgrade", b"max-forwards"})
ANSWER_SLOW = frozenset({b"te", b"upgrade"})

#: Fields that are cut and mean nothing else. (Connection means something unless it is keep-alive.)
REQUEST_MERELY_CUT = REQUEST_CUT - REQUEST_SLOW - {b"connection"}
ANSWER_MERELY_CUT = ANSWER_CUT - ANSWER_SLOW - {b"connection"}
