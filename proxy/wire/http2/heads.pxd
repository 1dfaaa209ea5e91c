from proxy.wire.fields cimport Trailers
from proxy.wire.http1.request cimport RequestHead
from proxy.wire.http1.response cimport ResponseHead
from proxy.wire.http2.request cimport Request2
from proxy.wire.http2.response cimport Response2


cpdef bytes request_block(RequestHead head, bytes scheme, bytes authority, bytes target, frozenset drop=*, bytes add=*)
cpdef bytes answer_block(ResponseHead head, frozenset drop=*, bytes add=*)
cpdef bytes trailers_block(Trailers trailers)
