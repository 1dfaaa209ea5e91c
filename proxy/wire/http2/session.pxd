cimport cython

from proxy.wire.http2.credit cimport Credit
from proxy.wire.http2.graceful_shutdown cimport GracefulShutdown
from proxy.wire.http2.head_reader cimport HeadReader
from proxy.wire.http2.octets cimport FrameHeader, Slicer
from proxy.wire.http2.outbox cimport Outbox
from proxy.wire.http2.peer_limits cimport FrameBudget, PeerLimits
from proxy.wire.http2.peer_settings cimport PeerSettings
from proxy.wire.http2.stream cimport SessionOwner, Stream, StreamSession
from proxy.wire.http2.stream_ids cimport StreamIds
from proxy.wire.http2.unfinished_frame cimport UnfinishedFrame


cdef int ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, PRIORITIZED, SETTINGS
cdef int GOAWAY, PING, PUSH_PROMISE, RST_STREAM, WINDOW_UPDATE
cdef int HEADER_SIZE, INTERNAL_ERROR, NO_ERROR, KNOWN, SMALLEST_LIMIT, STREAM_CLOSED
cdef int _SHAPE, _INTERIM, _LIGHT
cdef long long MOST
cdef FrameHeader HEADER
cdef Slicer SLICER


cdef class Session(StreamSession):
    cdef public bint draining, ended, has_unread
    cdef public PeerLimits limits
    cdef public SessionOwner owner
    cdef public dict streams
    cdef public Credit credit
    cdef public StreamIds ids
    cdef Outbox _outbox
    cdef dict _begun
    cdef FrameBudget _budget
    cdef PeerSettings _peer
    cdef GracefulShutdown _shutdown
    cdef double _started
    cdef bint _has_changed, _preface, _reading
    cdef object _errors
    cdef readonly HeadReader _heads
    cdef readonly UnfinishedFrame _unfinished

    cpdef open(self, Stream stream)
    cdef _enter(self, Stream stream, long long number)
    cdef _received(self, Stream stream)
    @cython.locals(number=object)
    cdef _close(self, Stream stream, bint was_reset)
    cdef _notify_changed(self)
    cdef _refuse(self, number, long long code)
    cdef _count(self, long long code)
    cdef _break(self, Stream stream, long long code, detail, double now)
    @cython.locals(at=Py_ssize_t, unfinished=UnfinishedFrame)
    cpdef feed(self, bytes data, double now, long long turn=*)
    @cython.locals(heads=HeadReader, peer=PeerSettings, at=Py_ssize_t, size=Py_ssize_t, length=Py_ssize_t, end=Py_ssize_t, kind=int, flags=int, payload=bytes, high=int, low=int, number=cython.longlong)
    cdef Py_ssize_t _read(self, bytes data, double now, long long turn) except -1
    cdef Py_ssize_t _read_preface(self, bytes data) except -1
    cdef _check_order(self, int kind, int flags, number)
    cdef _report_begun(self)
    @cython.locals(body=list, data=bytes)
    cdef _report_head(self, Stream stream, trailers)
    @cython.locals(size=Py_ssize_t, stream=Stream, end=bint)
    cdef _data(self, int flags, number, bytes payload, double now)
    cdef _stray_data(self, number, Py_ssize_t size, double now)
    cdef _break_for_data(self, Stream stream, Py_ssize_t size, double now)
    cdef _hold(self, Stream stream, bytes payload, Py_ssize_t size, bint end)
    @cython.locals(start=int)
    cdef _headers(self, int flags, number, bytes payload, double now)
    @cython.locals(stream=Stream)
    cdef _head(self, number, bytes block, bint end, double now)
    cdef _stray_head(self, number, bytes block, double now)
    @cython.locals(stream=Stream)
    cdef _request(self, number, bytes block, bint end, double now)
    cdef _too_large(self, size)
    cdef _answer(self, Stream stream, bytes block, bint end, double now)
    cdef _trailers(self, Stream stream, bytes block, bint end, double now)
    @cython.locals(increment=cython.longlong, stream=Stream)
    cdef _window_update(self, number, bytes payload, double now)
    cdef _other(self, int kind, int flags, number, bytes payload, double now)
    @cython.locals(stream=Stream)
    cdef _rst_stream(self, number, bytes payload, double now)
    cdef _settings(self, int flags, bytes payload, double now)
    cdef _ping(self, int flags, bytes payload, double now)
    cdef _continuation(self, int flags, bytes payload, double now)
    cdef _goaway(self, bytes payload)
    @cython.locals(stream=Stream)
    cdef _grow(self, long long increment)
    cdef _name_last(self)
    cpdef fail(self, long long code, str detail)


cdef bytes _unpadded(bytes payload, int start)
cdef bint _fits(Stream stream, Py_ssize_t size, bint end) except -1
