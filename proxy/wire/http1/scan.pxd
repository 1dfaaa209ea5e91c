from proxy.wire.http1.request cimport RequestHead
from proxy.wire.http1.response cimport ResponseHead


cpdef int same_naming(RequestHead head, RequestHead other, long reading) except -2
cpdef RequestHead scan_request(bytes data, RequestHead last, Py_ssize_t header_bytes, Py_ssize_t headers)
cpdef ResponseHead scan_answer(bytes data, ResponseHead last, Py_ssize_t header_bytes, Py_ssize_t headers)
