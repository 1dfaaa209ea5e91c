"""A call's JSON written by compiled code: json_line.pyx."""

from collections.abc import Sequence

from proxy.observe.call_record import CallRecord
from proxy.retry.attempt_record import AttemptRecord

def call_lines(calls: Sequence[CallRecord]) -> str: ...
def call_json(call: CallRecord) -> str: ...
def attempt_json(record: AttemptRecord, started: float) -> str: ...
