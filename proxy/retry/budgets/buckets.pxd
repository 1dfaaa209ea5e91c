cdef double _INFINITE
cdef double _ROUNDING


cdef class Bucket:
    cdef public object spec
    cdef public object capacity
    cdef public bint rests
    cdef public double called_at
    cdef public bint charges_failures

    cpdef level(self, double now)
    cpdef begin(self, double now)
    cpdef price(self, cls)
    cpdef affords(self, price, double now)
    cpdef offer(self, cls, double now)
    cpdef bint take(self, price, double now) except -1
    cpdef failed(self, double now)
    cpdef succeeded(self, last_price, double now)
    cpdef charge_app_retry(self, double now)
    cpdef app_succeeded(self, charged, double now)
    cpdef share(self, double now)
    cpdef Bucket of_app(self, app)
    cpdef came(self, Py_ssize_t place, double now)
    cpdef affords_for(self, Py_ssize_t place, bint low, price, double now)
    cpdef bint take_for(self, Py_ssize_t place, bint low, price, double now) except -1
    cpdef succeeded_for(self, Py_ssize_t place, last_price, double now)


cdef class QuotaBucket(Bucket):
    cdef public double _at
    cdef public object _cost
    cdef public object _throttling_cost
    cdef public object _timeout_cost
    cdef public bint _flat_refund
    cdef public object _level
    cdef public object _low
    cdef public object _refill
    cdef public object _refund
    cdef public double _trusted

    cpdef _advance(self, double now)
    cpdef bint _is_rounding(self, price) except -1
    cpdef _note_call(self, double now)
    cpdef _note_payment(self, double now)
    cpdef _put_back(self, price, double now)


cdef class ThrottleBucket(Bucket):
    cdef public object _level
    cdef public object _most
    cdef public object _ratio


cdef class BudgetBucket(Bucket):
    cdef public object _calls
    cdef public object _last_second
    cdef public object _retries

    cpdef bint _has_room(self, double now) except -1
    cpdef _uncount(self, taken_at)
