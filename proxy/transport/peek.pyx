# cython: language_level=3, binding=False
"""What `proxy.transport.unread` asks the kernel, without the objects that Python's `poll` is made of."""

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    short POLLIN
    int poll(pollfd *asked, unsigned long count, int milliseconds)


cpdef bint has_said(int descriptor) except -1:
    """Whether a peer has sent something that was not read yet, or its end."""
    cdef pollfd asked
    if descriptor < 0:
        raise ValueError("file descriptor cannot be a negative integer (%d)" % descriptor)
    asked.fd = descriptor
    asked.events = POLLIN
    asked.revents = 0
    return poll(&asked, 1, 0) != 0
