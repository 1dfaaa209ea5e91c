"""Checks across the keys of a classification rule: which of its parts never match the same answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proxy.config.problems import Mark, Path
from proxy.config.schema_language import BAD, Report, Section

#: Answers that have no body (RFC 9110, 15.3.5, 15.3.6, 15.4.5), and so no event.
_BODILESS = frozenset({204, 205, 304})
#: Keys that a rule with an event can't have, and why.
_NO_STREAM = {
    "fail": "a fault has no answer",
    "grpc_status": "a gRPC call's answer is not a stream of events",
    "xml": "a stream of events is not XML",
}


@dataclass(frozen=True)
class RuleSection(Section):
    """The form of a classification rule. Beside each key, it checks keys that exclude each other: a rule with `event`
    is about a stream, and only a successful answer can be a stream.
    """

    def read(self, tree: Any, at: Mark, path: Path, report: Report) -> Any:
        """Read the rule `tree`, which stands at `at` in the file, and check its parts against each other. Return the
        typed values of its keys, or BAD if it was refused; `report` is called for each error.
        """
        found = super().read(tree, at, path, report)
        if found is BAD:
            return found
        named = found.get("status", frozenset())
        streams = {each for some in (named if isinstance(named, tuple) else (named,)) for each in some}
        if "event" not in found:
            self._check_match(found, streams, tree, path, report)
            return found
        mark, place = tree.keys_at["event"], (*path, "event")
        for other, why in _NO_STREAM.items():
            if other in found:
                report(tree.keys_at[other], (*path, other), f"cannot be combined with event: {why}")
        if "status" not in found:
            if "status" not in tree.keys_at:  # a wrong value was reported already
                report(
                    mark, place, "needs a status below 400 next to it, such as status: 200: only a success is a stream"
                )
        elif not any(200 <= each < 400 and each not in _BODILESS for each in streams):
            said = "status " + ", ".join(map(str, sorted(streams)[:3])) + ("…" if len(streams) > 3 else "")
            report(mark, place, f"never matches: {said} is never a stream; name a status below 400 with a body, as 200")
        return found

    @staticmethod
    def _check_match(found: Any, statuses: set[int], tree: Any, path: Path, report: Report) -> None:
        """Report conditions of a rule that no answer can meet together. `found`: the rule's typed values; `statuses`:
        the HTTP statuses that the rule names; `tree`: the rule as it is written, for the places of its keys.
        """
        looked_into = [key for key in ("json", "xml") if found.get(key)]
        if "fail" in found:
            for key in ("status", "header", *looked_into):
                if found.get(key):
                    message = "cannot be combined with fail: a fault has no answer; write two rules"
                    report(tree.keys_at[key], (*path, key), message)
        elif len(looked_into) == 2:
            message = "cannot be combined with json: no body is both; write two rules"
            report(tree.keys_at["xml"], (*path, "xml"), message)
        elif looked_into and statuses:
            key, said = looked_into[0], ", ".join(map(str, sorted(statuses)[:3])) + ("…" if len(statuses) > 3 else "")
            if all(each < 200 or each in _BODILESS for each in statuses):
                report(tree.keys_at[key], (*path, key), f"never matches: an answer with the status {said} has no body")
            elif key == "xml" and max(statuses) < 400:
                message = f"never matches: below status 400 only json is looked at, not xml (status {said})"
                report(tree.keys_at[key], (*path, key), message)
