cimport cython

from proxy.forward.attempt cimport Attempt
from proxy.forward.context cimport Context
from proxy.forward.delivery cimport Delivery
from proxy.forward.request_plan cimport Plan
from proxy.observe.call_record cimport CallRecord
from proxy.retry.facts cimport Request
from proxy.retry.call_state cimport CallState


@cython.locals(request=Request, record=CallRecord)
cpdef CallRecord report_of(Plan plan, Delivery delivery, double started, double ended)
cpdef add_success(CallRecord record, Attempt first, long long bytes_in, keys)
cpdef add_call(CallRecord record, CallState call, outcome, long long bytes_in, str endpoint)
cpdef str agent_of(user_agent)
cpdef look_for_repeat(Delivery delivery, Plan plan, CallRecord record, body, bint given_up)
