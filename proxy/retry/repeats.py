"""What a provider's official client repeats (contract, section 4, "Repeats"), for `unsafe_methods: provider`.

Who names a dialect and switches its SDK's retries off must not be worse off than with them. So what the SDK repeats is
repeated here, whatever the method, and what nothing else names gets a class: 408 timeout, 429 throttling, else
transient. What is repeated by whom is data (proxy/config/dialects/*.yaml), read from the clients' sources.
"""

from __future__ import annotations

import re
from dataclasses import replace

from proxy.retry.facts import IDEMPOTENT_METHODS, Class, Fault, Reply, Request, Verdict
from proxy.retry.policy import Classify, Repeats
from proxy.retry.rules import any_matches

_CLASSES = {408: Class.TIMEOUT, 429: Class.THROTTLING}
#: What the SDK says of its own attempts, however it is spelled: what is no 1 may be more.
_AWS_COUNTS = re.compile(r"\b(?:attempt|max)[ \t]*=[ \t]*([^\s;,]*)", re.IGNORECASE)


def with_repeats(rules: Classify, request: Request, end: Reply | Fault, verdict: Verdict) -> Verdict:
    """The verdict on an attempt's end, with the dialect whose own client repeats this call after it, if one does."""
    if verdict.cls in (Class.SUCCESS, Class.FATAL):
        return verdict
    covering = [(name, each) for name, each in rules.repeats if _covers(each, name, rules, request, end, verdict)]
    if not covering:
        return verdict
    name, repeats = min(covering, key=lambda each: each[1].within is not None)
    if verdict.cls.retryable:
        return replace(verdict, repeated_by=name, repeated_within=repeats.within)
    status = end.status if isinstance(end, Reply) else 0
    cls = _CLASSES.get(status, Class.TRANSIENT)
    what = status or (end.kind.value if isinstance(end, Fault) else "")
    unprocessed = verdict.unprocessed or cls is Class.THROTTLING
    return Verdict(cls, f"dialect {name}: its client repeats {what}", unprocessed, name, repeats.within)


def _covers(
    repeats: Repeats, dialect: str, rules: Classify, request: Request, end: Reply | Fault, verdict: Verdict
) -> bool:
    if isinstance(end, Fault):
        named = end.kind in repeats.faults
    else:
        named = end.status >= 400 and _names(repeats, dialect, request, end, verdict)
    return named and _is_the_clients(repeats, rules, request)


def _names(repeats: Repeats, dialect: str, request: Request, reply: Reply, verdict: Verdict) -> bool:
    if reply.status in repeats.statuses:
        return True
    if reply.status in repeats.idempotent_statuses and request.method in IDEMPOTENT_METHODS:
        return True
    if repeats.transient_codes and verdict.dialect == dialect and verdict.cls is Class.TRANSIENT:
        return True
    if repeats.retry_after and reply.fields.get_all("retry-after"):
        return True
    return repeats.should_retry and any(value.lower() == "true" for value in reply.fields.get_all("x-should-retry"))


def _is_the_clients(repeats: Repeats, rules: Classify, request: Request) -> bool:
    """Whether the request is one that the client would repeat."""
    fields = request.fields
    if not all(any_matches(list(fields.get_all(name)), glob) for name, glob in repeats.headers):
        return False
    if repeats.keyed and not request.is_idempotent(rules.key_header, rules.keys_injected):
        return False
    told = fields.get_all("amz-sdk-request") if repeats.alone else ()
    return all(count in ("0", "1") for text in told for count in _AWS_COUNTS.findall(text))
