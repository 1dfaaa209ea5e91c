cimport cython

from proxy.retry.answers.event_stream cimport media_type
from proxy.retry.facts cimport Reply, first


cpdef read_json(bytes text)
@cython.locals(name=bytes)
cpdef bint lacks(bytes text, tuple path) except -1
cpdef bint may_be_whole_json(Reply reply) except -1
