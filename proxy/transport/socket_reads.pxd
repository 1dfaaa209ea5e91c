from proxy.transport.event_source cimport EventSource


cpdef bint read_directly(EventSource connection, object transport, object socket) except -1
cpdef leave_to_transport(EventSource connection)
