from proxy.retry.attempt_record cimport AttemptRecord
from proxy.retry.facts cimport Failure, Reply
from proxy.retry.states cimport Flight


cpdef AttemptRecord note(list history, Flight flight, double now, decision, Failure failure=*, Reply reply=*)
