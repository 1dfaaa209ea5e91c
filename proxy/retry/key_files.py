"""Credentials whose values stand in files, and change there while calls run (contract, section 16, "Key files").

A file that has changed is read when the configuration is next looked at for changes. A 401 may come sooner: then the
file is read at once, but at most once a second, and if its value is not the one that the attempt carried, the attempt
is made once more with the new value.

Law: a call makes such an attempt once, and only if the 401 was the first answer to the call, and no attempt of it may
have been carried out. A credential whose file has a new value is not set aside for the 401 that its old value got.
"""

from __future__ import annotations

from proxy.retry.call_state import CallState
from proxy.retry.facts import Failure
from proxy.retry.policy import Credentials
from proxy.retry.states import Flight

#: The decision on an attempt after which its call goes on with the new value of its credential.
RENEWED = "key renewed"


def read_again(call: CallState, flight: Flight, now: float) -> None:
    """Read the file of the credential that the attempt `flight` carried once more, because the upstream answered 401,
    and use its content for further attempts. Does nothing if the file was read within the last second or can't be read.
    """
    keys, definition = call.next_attempt.keys, _carried(call)
    if keys is None or definition is None or flight.key is None:
        return
    file = definition.files[flight.key] if definition.files else None
    if file is not None and file.is_due(now):
        value = call.next_attempt.env.read_key_file(file.path)
        if value is not None:
            definition.renew(flight.key, value, now)
            keys.ring.definition.renew(flight.key, value, now)


def _carried(call: CallState) -> Credentials | None:
    """The definition from which the call's attempts carry their credential: that of its own policy. The state that
    calls share may have an equal one, of the configuration before a reload which changed nothing about this policy.
    """
    keys, own = call.next_attempt.keys, call.policy.credentials
    if keys is None or own == keys.ring.definition:
        return own
    return keys.ring.definition


def is_outdated(call: CallState, flight: Flight) -> bool:
    """Whether the attempt carried an earlier value of its credential: the credential's file was found to have a new one
    since the attempt was sent.
    """
    definition = _carried(call)
    if definition is None or flight.key is None or not definition.files:
        return False
    file = definition.files[flight.key]
    return file is not None and file.renewed_at > flight.since


def goes_with_new_value(call: CallState, failure: Failure, flight: Flight, *, disabled: bool) -> bool:
    """Whether an attempt that was answered 401 is made once more, with the new value of its credential. `disabled`:
    retries are ruled out by the policy's mode or by the request.
    """
    if failure.status != 401 or disabled or call.committed or not is_outdated(call, flight):
        return False
    keys = call.next_attempt.keys
    return keys is not None and not keys.bound and all(each.status is None for each in call.history)
