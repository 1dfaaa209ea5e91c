cimport cython

from proxy.forward.context cimport Context
from proxy.forward.delivery cimport Delivery
from proxy.forward.request_plan cimport Plan
from proxy.forward.streams cimport ConnectionStream
from proxy.observe.call_record cimport CallRecord, Course
from proxy.retry.facts cimport Request
from proxy.retry.call.call_state cimport CallState
from proxy.retry.call.states cimport Flight


cdef dict _AGENTS


@cython.locals(request=Request, record=CallRecord)
cpdef CallRecord report_of(Plan plan, Delivery delivery, double started, double ended)
@cython.locals(request=Request, record=CallRecord, course=Course, agent=bytes, delivered=Flight)
cpdef CallRecord report_of_decided(Plan plan, Delivery delivery, CallState call, outcome, double started, double ended)
cdef str _agent(bytes user_agent)
@cython.locals(context=Context, direct=ConnectionStream, connected=double)
cpdef look_for_repeat(Delivery delivery, Plan plan, CallRecord record, body, bint given_up, bytes agent=*)
