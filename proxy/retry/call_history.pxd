from proxy.retry.attempt_record cimport AttemptRecord
from proxy.retry.facts cimport Failure, Reply
from proxy.retry.states cimport Flight


cpdef AttemptRecord record_of(Flight flight, double now, decision, Failure failure=*, Reply reply=*)
