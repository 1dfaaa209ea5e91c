"""The decision how a call goes on when its answer breaks during delivery to the app: the rest is asked for, or the call
ends (contract, section 15, "Resume").

`proxy.forward.resume` says which answers can be resumed, and `proxy.retry.call.resumption` decides whether this one is.
"""

from __future__ import annotations

from proxy.forward.attempt import Attempt
from proxy.forward.delivery import Delivery
from proxy.forward.request_plan import Plan
from proxy.forward.resume import may_add, resumer_of
from proxy.forward.sending import Sender
from proxy.retry.call.actions import Actions
from proxy.retry.call.machine import Call
from proxy.retry.call.resumption import would_resume
from proxy.retry.facts import Fault


class BrokenAnswer:
    """An answer that broke while it was delivered. This object decides whether the call goes on with the rest of the
    answer, or ends. The exchange makes the object for one event, from the plan, sender, delivery and `Call` of the
    call, and drops it afterwards.
    """

    __slots__ = ("_call", "_delivery", "_plan", "_sender")

    def __init__(self, plan: Plan, sender: Sender, delivery: Delivery, call: Call) -> None:
        self._plan = plan
        self._sender = sender
        self._delivery = delivery
        self._call = call

    def go_on(self, attempt: Attempt, fault: Fault, moved: float, now: float) -> Actions | None:
        """Ask for the rest of the answer, which broke in this attempt with `fault`. `moved`: the time at which bytes
        last moved (seconds). Returns the call's actions; None, with nothing done, if the answer can't be resumed.
        """
        delivery, policy, call = self._delivery, self._plan.policy, self._call
        observer, sender = delivery.context.observer, self._sender
        wall = now + delivery.context.env.wall_offset
        resumer = delivery.resumer or resumer_of(self._plan, attempt, wall)
        if resumer is None or delivery.pipe is not None or not would_resume(call.so_far, fault):
            return None
        if delivery.resumer is None:
            resumer.taken, resumer.since = delivery.bytes_out, moved
        else:
            resumer.is_sent = False
            observer.resumed(policy, "broke", resumer.progress)
        if resumer.is_whole or policy.mode != "enforce" or not may_add(self._plan.request, wall):
            observer.resumed(policy, "observed" if policy.mode == "observe" else "refused", 0)
            return None
        actions = call.broke(attempt.number, fault, resumer.progress, resumer.since, now)
        if call.so_far.outcome is not None:
            observer.resumed(policy, "refused", 0)
            delivery.break_off(fault, grpc=False)
            return actions
        delivery.resumer = sender.resumer = resumer
        resumer.ask()
        sender.avoid(attempt, False)
        self._drop(attempt)
        return actions

    def take_rest(self, attempt: Attempt, now: float) -> tuple[bool, Actions]:
        """Continue the delivered answer with the body of this attempt if its head says that it is the rest; else drop
        the attempt and break the answer off. Returns whether it is the rest, and the call's actions.
        """
        delivery, policy = self._delivery, self._plan.policy
        resumer, spec = delivery.resumer, policy.resume
        accepted = resumer is not None and spec is not None and resumer.accepts(attempt.head, spec.discard)
        actions = self._call.resumed(attempt.number, accepted, now)
        if not accepted:
            delivery.context.observer.resumed(policy, "rejected", 0)
            self._drop(attempt)
            delivery.break_off(None, grpc=False)
        return accepted, actions

    def _drop(self, attempt: Attempt) -> None:
        attempt.owner.flights.pop(attempt.number, None)
        attempt.drop()
