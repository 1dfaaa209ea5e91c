from proxy.wire.http2.flow cimport StreamLane


cdef int NO_ERROR


cdef class StreamOutbox:
    cpdef block(self, Stream stream, bytes block, bint end)
    cpdef data(self, Stream stream, bytes data, bint end)
    cpdef end(self, Stream stream, bytes trailers)
    cpdef message(self, Stream stream, bytes block, bytes data, bytes trailers)
    cpdef resumed(self, Stream stream)


cdef class StreamSession:
    cdef public bint client
    cdef public StreamOutbox outbox

    cpdef sent(self, Stream stream)
    cpdef reset(self, Stream stream, long long code)
    cpdef taken(self, Stream stream, Py_ssize_t size)


cdef class SessionOwner:
    cpdef Stream accept(self)
    cpdef opened(self)
    cpdef changed(self)


cdef class Stream:
    cdef public bint answered, blocked, bodiless, ending, head_reported, over, received_all, sent_all, unwanted
    cdef public list begun
    cdef public long long expected, received, left, owed, window
    cdef public Py_ssize_t interim
    cdef public unsigned int id
    cdef public StreamLane lane
    cdef public StreamSession session
    cdef public object held_trailers
    cdef public bytes trailers_queued
    cdef list _held
    cdef bint _left, _paused, _whole_held

    cpdef on_info(self, head)
    cpdef on_head(self, head, bytes data, bint end, trailers)
    cpdef on_data(self, bytes data)
    cpdef on_end(self, trailers)
    cpdef on_writable(self)
    cpdef send_info(self, bytes block)
    cpdef send_head(self, bytes block, bint end)
    cpdef send_data(self, bytes data)
    cpdef send_end(self, bytes data=*, bytes trailers=*)
    cpdef send_message(self, bytes block, bytes data, bytes trailers)
    cpdef reset(self, code)
    cpdef refuse_rest(self)
    cpdef pause(self)
    cpdef resume(self)
    cpdef hold(self, bytes data)
    cpdef report_info(self, head)
    cpdef report_head(self, head, bytes data, bint end, trailers)
    cpdef report_writable(self)
    cpdef report_data(self, bytes data)
    cpdef report_end(self, trailers)
    cpdef drop_held(self)
    cpdef report_held(self)
