from proxy.wire.http1.response cimport ResponseHead as Answer


cdef class DialQueue:
    cdef public object waiting
    cdef public object _order
    cdef public int _dialling
    cdef public double _reached

    cpdef bint offer(self, connection)
    cpdef take(self)
    cpdef leave(self, bint reached=*, bint timed_out=*)
    cdef _serve(self)


cdef class Origin:
    cdef public object endpoint
    cdef public object way
    cdef public bint http2
    cdef public bint http1
    cdef public str label
    cdef public bytes host
    cdef public bytes path
    cdef public list idle
    cdef public DialQueue dials
    cdef public list shared
    cdef public object dialled
    cdef public dict awaiting
    cdef public bint selected_http1
    cdef public int open
    cdef Answer _usual
    cdef public object penalty
    cdef public bint absolute
    cdef public bytes credentials

    cdef Answer as_usual(self, Answer head)


cdef class Destination:
    cdef public tuple origins
    cdef public Origin only
    cdef public Py_ssize_t _turn

    cpdef Origin choose(self, avoid, double now)
    cpdef Origin next_origin(self, avoid, double now)
    cpdef took(self, Origin origin)
