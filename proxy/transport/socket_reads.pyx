# cython: language_level=3, binding=False
"""Reads that bypass transports: the connections of one loop on which events of streams come are watched by an epoll of
our own, and all that is there is read in one callback of the loop, for `proxy.transport.direct_read`.

What that saves is most of uvloop's part of an event: a callback, a buffer, a context.

Law: no descriptor is read that uvloop has closed. The socket of `socket_of` is asked for its number before each read, as
`socket_calls.pyx` says; a closed descriptor has left the epoll by itself, and only one with this number is removed.

Law: uvloop reads all but events. It reads nothing while a connection is here (`pause_reading`). It gets the connection
back as soon as anything else is seen: an end, an error, or more bytes than an event has; it finds that in the socket, and
reports it as ever. Only an error that a read has already taken from the kernel is reported from here.

Law: no byte waits unseen. The kernel tells what comes once (EPOLLET): a read takes all of it, or is so large that uvloop
reads on; an end that came with it is handed to uvloop.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno

from proxy.transport.event_source cimport EventSource
from proxy.transport.socket_calls cimport descriptor_of

import asyncio
import os

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        unsigned int u32
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL
    unsigned int EPOLLIN, EPOLLERR, EPOLLET, EPOLLHUP, EPOLLRDHUP
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int descriptor, epoll_event *event)
    int epoll_wait(int epoll, epoll_event *events, int most, int milliseconds)

cdef extern from "sys/socket.h" nogil:
    Py_ssize_t recv(int descriptor, void *buffer, size_t size, int flags)
    int MSG_DONTWAIT

cdef extern from "unistd.h" nogil:
    int close(int descriptor)

cdef enum:
    #: Bytes that are read at once: a connection on which so many wait carries more than events.
    SIZE = 16384
    #: Connections that are read in one callback at most; what is left is read in the next turn.
    MOST = 64

cdef char buffer[SIZE]
cdef Reads current = None  # those of the loop in which a connection was last taken
cdef object loop_of_current = None


cdef class Reads:
    """The connections of one loop that are read past their transports."""

    cdef int _epoll
    cdef list _connections  # by their places; None: a free place
    cdef list _sockets
    cdef list _free

    def __cinit__(self, loop):
        self._epoll = epoll_create1(EPOLL_CLOEXEC)
        if self._epoll < 0:
            raise OSError(errno, os.strerror(errno))
        self._connections, self._sockets, self._free = [], [], []
        loop.add_reader(self._epoll, self.ready)

    def __dealloc__(self):
        if self._epoll >= 0:
            close(self._epoll)

    cdef bint take(self, EventSource connection, object transport, object socket) except -1:
        cdef epoll_event asked
        cdef Py_ssize_t place
        cdef int descriptor = descriptor_of(transport, socket)
        if descriptor < 0:
            return False
        if self._free:
            place = self._free.pop()
        else:
            place = len(self._connections)
            self._connections.append(None)
            self._sockets.append(None)
        asked.events = EPOLLIN | EPOLLRDHUP | EPOLLET
        asked.data.u32 = <unsigned int>place
        if epoll_ctl(self._epoll, EPOLL_CTL_ADD, descriptor, &asked) < 0:  # the kernel watches no more of them
            self._free.append(place)
            return False
        transport.pause_reading()
        self._connections[place], self._sockets[place] = connection, socket
        connection.reads, connection.place = self, place
        return True

    cdef leave(self, EventSource connection):
        cdef Py_ssize_t place = connection.place
        cdef epoll_event unused
        cdef int descriptor = descriptor_of(None, self._sockets[place])
        if descriptor >= 0:
            epoll_ctl(self._epoll, EPOLL_CTL_DEL, descriptor, &unused)
        self._connections[place] = self._sockets[place] = connection.reads = None
        self._free.append(place)

    def ready(self):
        """Read what waits on the connections."""
        cdef epoll_event events[MOST]
        cdef EventSource connection
        cdef int each, count = epoll_wait(self._epoll, events, MOST, 0)
        for each in range(count):
            connection = self._connections[events[each].data.u32]
            if connection is not None:  # else an earlier one of this turn has ended it
                try:
                    self._read(connection, events[each].events)
                except Exception as error:
                    loop = asyncio.get_running_loop()
                    loop.call_exception_handler({"message": "reading a connection failed", "exception": error})
                    connection.read_failed(error)

    cdef _read(self, EventSource connection, unsigned int seen):
        cdef int descriptor = descriptor_of(None, self._sockets[connection.place])
        cdef Py_ssize_t size
        cdef bytes data
        if descriptor < 0:  # closed by uvloop, which calls `connection_lost`
            return
        size = 0 if seen & (EPOLLERR | EPOLLHUP) else recv(descriptor, buffer, SIZE, MSG_DONTWAIT)
        if size > 0:
            data = PyBytes_FromStringAndSize(buffer, size)
            if not connection.take_event(data):
                if size == SIZE:
                    connection.read_by_transport()
                connection.data_received(data)
            if seen & EPOLLRDHUP and connection.reads is self:  # the end after these bytes is not told again
                connection.read_by_transport()
        elif size == 0:
            connection.read_by_transport()
        elif errno != EAGAIN and errno != EINTR:
            connection.read_failed(OSError(errno, os.strerror(errno)))


cpdef bint read_directly(EventSource connection, object transport, object socket) except -1:
    """Read a connection here from now on, until `leave_to_transport`; False if its transport has to read. `socket`: the
    transport's `socket_of`.
    """
    global current, loop_of_current
    if socket is None:
        return False
    loop = asyncio.get_running_loop()
    if loop_of_current is not loop:
        try:
            reads = Reads(loop)
        except OSError:  # no descriptor is left: the transport reads on
            return False
        current, loop_of_current = reads, loop
    return current.take(connection, transport, socket)


cpdef leave_to_transport(EventSource connection):
    """Read a connection here no more. The caller resumes the transport if it is to read on."""
    if connection.reads is not None:
        (<Reads>connection.reads).leave(connection)
