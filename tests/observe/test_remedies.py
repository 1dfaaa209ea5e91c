"""Every reason for not retrying comes with what helps, in the words of the policy that decided."""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import replace

import pytest
from support.front import policy

from proxy.observe.remedies import remedy_of
from proxy.retry.answers.stream_ends import UNFINISHED
from proxy.retry.call.reasons import BY_OWN_CODE, NO_TIME
from proxy.retry.facts import Outcome
from proxy.retry.policies.policy import Credentials, IdempotencyKey, KeyFile, Timeouts
from proxy.transport.faults import CertificateFileError, dialling

POLICY = policy("api")
UNSAFE = "POST may have been carried out, and is not idempotent"

WITHOUT = {Outcome.SUCCESS, Outcome.DENIED, Outcome.BAD_REQUEST}  # nothing to help, or the detail says it


def _certificate(said: str) -> ssl.SSLError:
    error = ssl.SSLCertVerificationError()
    error.verify_message = said
    return error


def _handshake(reason: str) -> ssl.SSLError:
    error = ssl.SSLError()
    error.reason = reason
    return error


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_one(outcome: Outcome) -> None:
    why = UNSAFE if outcome is Outcome.NOT_RETRYABLE else ""
    assert bool(remedy_of(outcome, why, POLICY, "POST")) is (outcome not in WITHOUT)


def test_an_unsafe_call_is_told_of_the_key_and_of_the_setting() -> None:
    said = "send an Idempotency-Key, or say unsafe_methods: always on this upstream if repeating a POST is harmless"
    assert remedy_of(Outcome.NOT_RETRYABLE, UNSAFE, POLICY, "POST") == said
    own = replace(POLICY, route="POST /x", idempotency_key=IdempotencyKey("X-Key", False))
    said = "send a X-Key, or say unsafe_methods: always on this route if repeating a POST is harmless"
    assert remedy_of(Outcome.NOT_RETRYABLE, f"{UNSAFE}; attempt 1 may …", own, "POST") == said


def test_a_closed_port_is_told_of_before_more_attempts() -> None:
    said = "nothing listens there: start the upstream, or correct url; if the upstream only needs longer, raise"
    detail = dialling(ConnectionRefusedError()).detail
    assert remedy_of(Outcome.ATTEMPTS_EXHAUSTED, "", POLICY, "GET", detail).startswith(said)


def test_a_method_in_small_letters_is_told_of_the_one_that_is_repeated() -> None:
    said = remedy_of(Outcome.NOT_RETRYABLE, UNSAFE.replace("POST", "get"), POLICY, "get")
    assert said == "let the app send GET: methods are case-sensitive, and get is another one"
    assert "Idempotency-Key" in remedy_of(Outcome.NOT_RETRYABLE, UNSAFE.replace("POST", "post"), POLICY, "post")


@pytest.mark.parametrize(
    ("outcome", "why", "said"),
    [
        (Outcome.NOT_RETRYABLE, "nothing names it as retryable", "classify.transient"),
        (Outcome.NOT_RETRYABLE, "it is named as fatal", "classify.rules"),
        (Outcome.NOT_RETRYABLE, "non_fatal does not name it", "non_fatal"),
        (Outcome.NOT_RETRYABLE, "POST is not idempotent, and unsafe_methods is never", "unsafe_methods: unprocessed"),
        (Outcome.ATTEMPTS_EXHAUSTED, "that was the last of 3 attempts", "strategy.max_attempts (now 3)"),
        (Outcome.DEADLINE, "", "timeouts.total (now 2m)"),
        (Outcome.DEADLINE, NO_TIME, "more than 0"),
        (Outcome.PUSHBACK_TOO_LONG, "", "pushback.max_delay (now 1m)"),
        (Outcome.COMMITTED, "the request's body outgrew its replay buffer", "buffers.per_request"),
        (Outcome.COMMITTED, "its answer had begun to go to the app", "timeouts.first_byte"),
        (Outcome.DISABLED, "X-Retry-Disable", "leave X-Retry-Disable out"),
        (Outcome.DISABLED, "the mode is observe", "mode: enforce"),
        (Outcome.OVERLOADED, "limits.waiting has no place for the wait", "limits.waiting"),
    ],
)
def test_a_remedy_names_the_setting(outcome: Outcome, why: str, said: str) -> None:
    own = replace(POLICY, timeouts=Timeouts(total=120.0))
    assert said in remedy_of(outcome, why, own, "POST")
    json.dumps(remedy_of(outcome, why, own, "POST"))


def test_a_stream_that_ended_too_soon_is_told_of_the_event_unless_the_app_gets_one() -> None:
    why, detail = "its answer had begun to go to the app", UNFINISHED.detail
    assert "streams: {unfinished: event}" in remedy_of(Outcome.COMMITTED, why, POLICY, "POST", detail)
    own = replace(POLICY, unfinished="event")
    assert "unfinished" not in remedy_of(Outcome.COMMITTED, why, own, "POST", detail)


def test_a_refused_key_is_the_matter_of_whoever_gave_it() -> None:
    why = "nothing names it as retryable"
    assert "the app's credentials" in remedy_of(Outcome.NOT_RETRYABLE, why, POLICY, "GET", status=401)
    own = replace(POLICY, credentials=Credentials("authorization", ("Bearer a",), "next"))
    assert "credentials.values" in remedy_of(Outcome.NOT_RETRYABLE, why, own, "GET", status=401)
    assert "classify.transient" in remedy_of(Outcome.NOT_RETRYABLE, why, own, "GET", status=404)


def test_a_refused_key_that_stands_in_a_file_is_corrected_there() -> None:
    def remedy(*files: KeyFile | None) -> str:
        keys = Credentials("x-api-key", tuple("abc"[: len(files)]), "next", files)
        own = replace(POLICY, credentials=keys)
        return remedy_of(Outcome.NOT_RETRYABLE, "nothing names it as retryable", own, "GET", status=401)

    one, two = KeyFile("/run/keys/1", "{}"), KeyFile("/run/keys/2", "{}")
    assert remedy(one).endswith("correct it in /run/keys/1")
    assert remedy(one, two).endswith("correct it in /run/keys/1, /run/keys/2, or where credentials.values names it")
    assert remedy(one, None).endswith("correct it in /run/keys/1, or where credentials.values names it")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (_certificate("Hostname mismatch, certificate is not valid for 'localhost'."), "correct the host in url"),
        (_certificate("certificate has expired"), "needs a new certificate"),
        (_certificate("self-signed certificate"), "verify: FILE"),
        (_handshake("WRONG_VERSION_NUMBER"), "speaks no TLS"),
        (CertificateFileError("the key is encrypted"), "redrive check"),
        (socket.gaierror(), "name service"),
    ],
)
def test_a_fault_that_waiting_does_not_mend_has_its_own(fault: OSError, said: str) -> None:
    """The words are those of the fault itself: another wording there would lose the remedy."""
    detail = dialling(fault).detail
    assert said in remedy_of(Outcome.ATTEMPTS_EXHAUSTED, "that was the last of 3 attempts", POLICY, "GET", detail)
    refused = dialling(ConnectionRefusedError()).detail
    assert "max_attempts" in remedy_of(
        Outcome.ATTEMPTS_EXHAUSTED, "that was the last of 3 attempts", POLICY, "GET", refused
    )


def test_a_closed_port_is_told_of_where_the_bucket_ran_dry_too() -> None:
    detail = dialling(ConnectionRefusedError()).detail
    said = remedy_of(Outcome.BUCKET_EMPTY, "", POLICY, "GET", detail)
    assert said.startswith("nothing listens there: start the upstream, or correct url; too many attempts fail")


def test_a_strategy_of_ones_own_is_not_told_of_a_bucket_that_it_does_not_have() -> None:
    assert remedy_of(Outcome.BUCKET_EMPTY, BY_OWN_CODE, POLICY, "GET").endswith(
        "let the strategy's own code grant more retries"
    )


def test_a_committed_grpc_call_is_told_of_its_head_since_first_byte_does_not_apply_to_it() -> None:
    why = "its answer had begun to go to the app"
    said = remedy_of(Outcome.COMMITTED, why, POLICY, "POST", is_grpc=True)
    assert said == "let the server send nothing before it knows that it will answer: a head of its own commits the call"
    assert "per_request" in remedy_of(
        Outcome.COMMITTED, "the request's body outgrew its replay buffer", POLICY, "POST", is_grpc=True
    )
