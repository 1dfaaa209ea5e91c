# cython: language_level=3, binding=False
"""System calls on the sockets of transports, without the work of Python and uvloop around them: `has_said` for
`proxy.transport.unread`, `socket_of` and `write_at_once` for `proxy.transport.direct_write`, the rest for
`proxy.transport.socket_reads`.

Law: no byte is written to a descriptor that uvloop has closed, which another connection may have by then. uvloop (0.21
to 0.23) closes the descriptor of a TCP transport in one place, `uv_close` in `UVHandle._close`. This is reached through
`UVSocketHandle._close`, which sets the number of the socket that `get_extra_info("socket")` returned to -1 just before,
with no Python between them: after `close()`, `abort()`, errors, a cancelled `create_connection`, and the end of the loop
alike. (The other `uv_close`, in `UVHandle.__dealloc__`, needs a transport without any reference to it.) So each write
asks that socket for its number. `is_closing()` would not be enough: a cancelled `create_connection` closes the
descriptor and leaves it False. For a version of uvloop whose source was not read for this, the transport writes.

Law: order is kept. In `transport.write`, uvloop writes at once if its buffers are empty, and `write_at_once` does the
same under the same condition; if they are not empty, the kernel takes only a part, or it reports an error,
`transport.write` gets the data. uvloop's buffers, flow control and errors are the same as without this module.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

import sys

cdef extern from "Python.h":
    object PyObject_CallOneArg(object function, object argument)

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    short POLLIN
    int poll(pollfd *asked, unsigned long count, int milliseconds)

cdef extern from *:
    """
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0  /* Python ignores SIGPIPE */
    #endif
    """
    Py_ssize_t send(int descriptor, const void *data, size_t size, int flags) nogil
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

#: Versions of uvloop for which the laws above were read in its source.
READ = ("0.21.", "0.22.", "0.23.")

cdef object TCPTransport = None  # uvloop's classes and some of their methods, once uvloop is loaded
cdef object PseudoSocket = None
cdef object buffered = None
cdef object is_closing = None
cdef object fileno = None


cpdef bint has_said(int descriptor) except -1:
    """Whether the peer of the connection with this descriptor has sent bytes, or an end, that were not read yet."""
    cdef pollfd asked
    if descriptor < 0:
        raise ValueError("file descriptor cannot be a negative integer (%d)" % descriptor)
    asked.fd = descriptor
    asked.events = POLLIN
    asked.revents = 0
    return poll(&asked, 1, 0) != 0


cpdef object socket_of(object transport):
    """The socket that `write_at_once` needs for a transport; None if the transport itself has to write, because it is no
    TCP transport of a uvloop whose source was read for this.
    """
    global TCPTransport, PseudoSocket, buffered, is_closing, fileno
    if TCPTransport is None:
        loop = sys.modules.get("uvloop.loop")
        if loop is None or not sys.modules["uvloop"].__version__.startswith(READ):
            return None
        buffered = loop.TCPTransport.get_write_buffer_size
        is_closing = loop.TCPTransport.is_closing
        fileno = loop.PseudoSocket.fileno
        PseudoSocket = loop.PseudoSocket
        TCPTransport = loop.TCPTransport
    if type(transport) is not TCPTransport:
        return None
    socket = transport.get_extra_info("socket")
    return socket if type(socket) is PseudoSocket else None


cpdef write_at_once(object transport, object socket, bytes data):
    """Write data to a transport, at once if the kernel takes it. `socket` is the transport's `socket_of`."""
    cdef Py_ssize_t size, sent
    cdef int descriptor
    if data is None:
        raise TypeError("only bytes are written")
    if (
        socket is not None
        and type(transport) is TCPTransport
        and type(socket) is PseudoSocket
        and not PyObject_CallOneArg(buffered, transport)
        and not PyObject_CallOneArg(is_closing, transport)
    ):
        descriptor = PyObject_CallOneArg(fileno, socket)
        size = PyBytes_GET_SIZE(data)
        if descriptor >= 0 and size:
            sent = send(descriptor, PyBytes_AS_STRING(data), size, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent == size:
                return
            if sent > 0:
                transport.write(memoryview(data)[sent:])
                return
    transport.write(data)


cdef int descriptor_of(object transport, object socket) except -2:
    """The descriptor of a socket of `socket_of`, -1 if uvloop has closed it, or if its `transport` is closing (None: not
    asked).
    """
    if type(socket) is not PseudoSocket:
        return -1
    if transport is not None and (type(transport) is not TCPTransport or PyObject_CallOneArg(is_closing, transport)):
        return -1
    return PyObject_CallOneArg(fileno, socket)
