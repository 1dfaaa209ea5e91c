cimport cython

from proxy.forward.request_plan cimport Plan
from proxy.retry.answers.classification cimport classify
from proxy.retry.answers.event_stream cimport is_event_stream
from proxy.retry.facts cimport Reply
from proxy.wire.http1.response cimport ResponseHead as Answer


@cython.locals(reply=Reply)
cpdef int look_at(Plan plan, Answer head, bytes data, bint end, trailers) except -1
