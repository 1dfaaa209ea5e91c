cimport cython

from proxy.forward.context cimport Context
from proxy.forward.exchange cimport Exchange
from proxy.forward.request_plan cimport Plan, take_turns
from proxy.forward.streams cimport ConnectionStream
from proxy.transport.clock cimport monotonic
from proxy.transport.socket_calls cimport socket_of, write_at_once
from proxy.wire.http1.body cimport ChunkedBody
from proxy.wire.http1.parser cimport RequestParser
from proxy.wire.http1.request cimport RequestHead as Asking
from proxy.wire.http1.response cimport ResponseHead as Answer


cdef class AppConnection(ConnectionStream):
    cdef public object acceptor
    cdef Context _context
    cdef public RequestParser _parser
    cdef public bint _running
    cdef public object _first
    cdef public long long _generation
    cdef public Exchange _kept
    cdef public object inside
    cdef public dict own
    cdef public bint surplus
    cdef public str client
    cdef public object transport
    cdef public Exchange exchange
    cdef public object _body
    cdef public bint _close
    cdef public bint _informed
    cdef public bint _tunnel
    cdef public Plan plan
    cdef public list _plans
    cdef public object _ending
    cdef public object _rest
    cdef public bytes _buffer
    cdef public bint _half_closed
    cdef public int _held
    cdef public bint _broken
    cdef public object wire
    cdef public int _fd
    cdef public object _socket
    cdef public double since
    cdef public Asking head
    cdef public object exposure

    cpdef respond(self, Answer head, frozenset drop, bytes add, bytes data, bint end, trailers)
    cdef bytes _render_framed(self, Answer head, frozenset drop, bytes add, bint end)
    cpdef write(self, bytes data)
    cpdef done(self)
    @cython.locals(done=bint, chunked=ChunkedBody)
    cdef _begin(self, bytes data)
    @cython.locals(exchange=Exchange, context=Context)
    cdef _start(self, Asking head, bytes payload, bint done, trailers)
    @cython.locals(last=Plan)
    cdef Plan _plan_for(self, Asking head)
    cdef _await_head(self)
    cdef _read_body(self, bytes data, Exchange exchange)
