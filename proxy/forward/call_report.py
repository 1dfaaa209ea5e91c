"""The record of a call that is over, made from the call's plan, delivery, attempts and `Call`."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.forward.delivery import Delivery
from proxy.forward.request_plan import Plan
from proxy.observe.call_record import AT_ONCE, CallRecord, Course
from proxy.retry.call.call_state import CallState
from proxy.retry.call.request_hints import NO_HINTS
from proxy.retry.facts import Outcome

#: The most characters of a product's name that are kept.
AGENT = 64
#: The products of the User-Agents that came last, and how many of them are kept.
_AGENTS: dict[bytes, str] = {}
_MOST_AGENTS = 256


def report_of(plan: Plan, delivery: Delivery, started: float, ended: float) -> CallRecord:
    """Return the record of a call that is over, with the fields that describe its request and the answer that the app
    got (`delivery`). `started`, `ended`: seconds.

    The fields about attempts are those of a call whose only attempt was sent at once and succeeded; for any other call,
    the code that calls this function sets them. That code also sets the size of the request's body, and the endpoint
    and the protocol of the last attempt.
    """
    request = plan.request
    record = CallRecord.__new__(CallRecord)  # past its own constructor, which takes twice as long
    record.started = started
    record.wall_started = started + delivery.context.env.wall_offset
    record.ended = ended
    record.policy = plan.policy
    record.app = "" if request.app is None else request.app.name
    record.method = request.method
    record.authority = request.authority
    record.path = request.path
    record.protocol = plan.protocol
    record.client = delivery.client
    record.status = delivery.status
    record.grpc_status = delivery.grpc_status
    record.bytes_out = delivery.bytes_out
    record.course = AT_ONCE
    return record


def report_of_decided(
    plan: Plan, delivery: Delivery, call: CallState, outcome: Outcome, started: float, ended: float
) -> CallRecord:
    """Return the record of a call that is over and whose `Call` has the state `call`. The code that calls this function
    sets the size of the request's body, and the field that names the endpoint of the last attempt. `started`, `ended`:
    seconds.
    """
    record, request, history = report_of(plan, delivery, started, ended), plan.request, call.history
    agent = request.user_agent
    if agent is None:  # looked up once for each head
        agent = request.user_agent = plan.head.get(b"user-agent") or b""
    fallbacks = () if call.fallbacks is None else tuple(call.fallbacks.records)
    again = call.hints is not NO_HINTS and call.hints.retries_itself
    course = record.course = Course.__new__(Course)
    course.begin(outcome, call.attempts, history, delivery.detail, fallbacks, _agent(agent), again)
    delivered = call.delivered
    record.sent_by = delivered.protocol if delivered is not None and call.attempts == 1 else ""
    return record


def look_for_repeat(
    delivery: Delivery,
    plan: Plan,
    record: CallRecord,
    body: Iterable[bytes] | None,
    given_up: bool,
    agent: bytes | None = None,
) -> None:
    """Report a call that is most likely the app's own retry of a call that the proxy gave up, although no field says
    so. `record`: the call's; `body`: the request's whole body, None if it is not available; `given_up`: whether the
    proxy gave this call up; `agent`: the request's User-Agent, if it has been looked up already.
    """
    context, direct = delivery.context, delivery.direct
    connected = delivery.app.connected if direct is None else direct.connected
    repeated = context.app_repeats.ended(record, plan.request, body, given_up, connected, agent)
    if repeated and not record.course.app_retry:
        context.observer.app_repeated(plan.policy)


def _agent(user_agent: bytes) -> str:
    """Return the product that the value of a User-Agent names first, with its version (RFC 9110, 10.1.5); "" if the
    value names no product.
    """
    if not user_agent:
        return ""
    product = _AGENTS.get(user_agent)
    if product is None:
        product = user_agent.partition(b" ")[0][:AGENT].decode("latin-1")
        if not (product.isascii() and product.isprintable()):
            product = ""
        if len(_AGENTS) >= _MOST_AGENTS:
            _AGENTS.clear()
        _AGENTS[user_agent] = product
    return product
