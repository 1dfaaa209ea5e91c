"""The names that matter: the few fields that change what is done, found in one pass over a lower-cased head.

There is no loop over fields. One expression, an alternation factored by first letter, is run with `findall`; what it
does not name is never examined, only carried along. With `*_KEYS`, a look-up of a name that did not come ends in a
small dict.
"""

from __future__ import annotations

import re

#: RFC 9110 section 7.6.1, but for Transfer-Encoding: a chunked body is sent on chunked. Trailers are passed on, so
#: Trailer is end-to-end here.
HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"})

#: Fields of a request that are never sent on as they came; with one of them (but Connection) a head is not `simple`.
REQUEST_CUT = HOP_BY_HOP | {
    *(b"proxy-authorization", b"http2-settings"),
    *(b"x-retry-disable", b"x-retry-timeout", b"x-attempt-count"),
}
#: Fields of an answer that are never sent on as they came.
ANSWER_CUT = HOP_BY_HOP | {b"x-attempt-count"}

#: Fields of a request that change what is done, beside those: looked for in the same pass, so that asking for one that
#: did not come costs a look into a small dict.
REQUEST_TOLD = (
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
ANSWER_TOLD = (
    *(b"date", b"grpc-status", b"retry-after", b"retry-after-ms", b"x-ms-retry-after-ms", b"x-amz-retry-after"),
    *(b"grpc-retry-pushback-ms", b"x-grpc-retry-pushback-ms", b"x-should-retry", b"stripe-should-retry"),
    *(b"ratelimit", b"ratelimit-remaining", b"ratelimit-reset"),
)

KEEP_ALIVE = b"keep-alive"

FRAMING = frozenset({b"content-length", b"transfer-encoding"})
#: What no edit of a policy's may touch: framing, the hop, the way.
NOT_EDITED = frozenset(name.decode() for name in HOP_BY_HOP | FRAMING | {b"host", b"trailer"})
#: Fields that no trailer section may have, on HTTP/1 as on HTTP/2 (RFC 9110 section 6.5.1): framing, and the way. A
#: reader that takes trailers for fields of the head would be misled. Those of one connection are cut, or malformed
#: (RFC 9113 section 8.2.2).
MISLEADING_TRAILERS = FRAMING | {b"host", b"trailer", b"max-forwards"}
_LOGIN = rb"(?=:[ \t]*+(?:ntlm|negotiate)(?:[ \t,]|\r))"


def _specials(names: frozenset[bytes], logins: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """One expression for the names that matter, over lowered bytes, as an alternation factored by first letter."""
    by_letter: dict[bytes, list[bytes]] = {}
    for name in sorted(names):
        by_letter.setdefault(name[:1], []).append(re.escape(name[1:]))
    for name in logins:
        by_letter.setdefault(name[:1], []).append(re.escape(name[1:]) + _LOGIN)
    branches = [letter + rb"(?:" + b"|".join(rest) + rb")" for letter, rest in sorted(by_letter.items())]
    return re.compile(rb"\n(" + b"|".join(branches) + rb"):[ \t]*+([^\r]*+)")


#: The names that matter, but for those of logins, which do where NTLM or Negotiate is spoken.
REQUEST_NAMES = frozenset({b"host", b"max-forwards", *FRAMING, *REQUEST_CUT, *REQUEST_TOLD})
ANSWER_NAMES = frozenset({*FRAMING, *ANSWER_CUT, *ANSWER_TOLD})
REQUEST_LOGINS = (b"authorization",)
ANSWER_LOGINS = (b"www-authenticate", b"proxy-authenticate")
find_request = _specials(REQUEST_NAMES, REQUEST_LOGINS).findall
find_answer = _specials(ANSWER_NAMES, ANSWER_LOGINS).findall
REQUEST_KEYS = {name.decode(): name for name in REQUEST_NAMES}
ANSWER_KEYS = {name.decode(): name for name in ANSWER_NAMES}

#: With one of these a head goes the slow path: they mean something beside being cut.
REQUEST_SLOW = frozenset({b"te", b"upgrade", b"max-forwards"})
ANSWER_SLOW = frozenset({b"te", b"upgrade"})

#: What is left out and means nothing else. (Connection means something unless it is keep-alive.)
REQUEST_MERELY_CUT = REQUEST_CUT - REQUEST_SLOW - {b"connection"}
ANSWER_MERELY_CUT = ANSWER_CUT - ANSWER_SLOW - {b"connection"}
