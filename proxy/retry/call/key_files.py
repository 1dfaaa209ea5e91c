"""Credentials whose values are in files, and change there while calls run (contract, section 16, "Key files").

A file that has changed is read when the configuration is next checked for changes. If a 401 comes sooner, the file is
read at once, but at most once a second. If its value is not the one that the attempt carried, the attempt is made once
more with the new value.

Law: a call makes such an attempt only once, and only if the 401 was the first answer to the call, and no attempt of the
call may have been carried out. A credential whose file has a new value is not put aside because of a 401 to its old
value. A call that waits carries the value that the file had when the latest configuration was loaded, though all else
of its policy is from the configuration in which it began.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import ref

from proxy.retry.call.call_state import CallState
from proxy.retry.call.states import Flight
from proxy.retry.facts import Failure
from proxy.retry.policies.policy import Credentials

#: The decision on an attempt after which its call goes on with the new value of its credential.
RENEWED = "key renewed"


class KeysInUse:
    """The definitions of all credentials whose values are in files, as long as they are used: those in force, and those
    of earlier configurations, which calls may still have.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: list[ref[Credentials]] = []

    def use(self, definitions: Iterable[Credentials], now: float) -> None:
        """Take the definitions of a new configuration, and let earlier ones use the values that it has read from the
        same files.
        """
        new = {id(each): each for each in definitions if each.files}.values()
        values = {
            (file.path, file.format): value
            for each in new
            for file, value in zip(each.files, each.values, strict=True)
            if file is not None
        }
        old = [each for known in self._known if (each := known()) is not None]
        for definition in old:
            for number, file in enumerate(definition.files):
                if file is not None and (value := values.get((file.path, file.format))) is not None:
                    definition.replace(number, value, now)
        self._known = [*map(ref, old), *map(ref, new)]


def read_again(call: CallState, flight: Flight, now: float) -> None:
    """Read the file that has the credential of the attempt `flight` again, because the upstream answered 401, and use
    its content for further attempts. Nothing is done if the file was read within the last second, or can't be read.
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
    """The definition of the credentials from which the call's attempts carry one: the definition in the call's own
    policy. The state that calls share may have another object that equals it, from the configuration before a reload
    which changed nothing about this policy.
    """
    keys, own = call.next_attempt.keys, call.policy.credentials
    if keys is None or own == keys.ring.definition:
        return own
    return keys.ring.definition


def is_outdated(call: CallState, flight: Flight) -> bool:
    """Whether the attempt carried an old value of its credential: the credential's file turned out to have a new value
    after the attempt was sent.
    """
    definition = _carried(call)
    if definition is None or flight.key is None or not definition.files:
        return False
    file = definition.files[flight.key]
    return file is not None and file.renewed_at > flight.since


def goes_with_new_value(call: CallState, failure: Failure, flight: Flight, *, disabled: bool) -> bool:
    """Whether an attempt that was answered 401 is made once more, with the new value of its credential. `disabled`: the
    policy's mode or the request rules retries out.
    """
    if failure.status != 401 or disabled or call.committed or not is_outdated(call, flight):
        return False
    keys = call.next_attempt.keys
    return keys is not None and not keys.bound and all(each.status is None for each in call.history)
