cimport cython

from proxy.retry.budgets.app_parts cimport AppParts
from proxy.retry.budgets.buckets cimport Bucket, BudgetBucket, QuotaBucket
from proxy.retry.value_bases cimport NamedAppBase


cdef class AppQuota(Bucket):
    cdef public Bucket whole
    cdef public str name
    cdef public Py_ssize_t index
    cdef public bint _low


cdef class PartedQuota(QuotaBucket):
    cdef public AppParts parts
    cdef public dict _views

    cpdef available(self, Py_ssize_t index, bint low, double now)
    cpdef affords_for(self, Py_ssize_t index, bint low, price, double now)
    cpdef bint take_for(self, Py_ssize_t index, bint low, price, double now) except -1
    cpdef earn_for(self, Py_ssize_t index, tokens, double now)
    cpdef charge_for(self, Py_ssize_t index, bint low, double now)
    @cython.locals(view=AppQuota)
    cdef _note_calls(self, bint ends_rest=*)
    cdef _end_rest(self)


cpdef AppQuota app_view(dict views, whole, NamedAppBase app)


cdef class PartedBudget(BudgetBucket):
    cdef public dict _views


cdef class AppBudget(Bucket):
    cdef public Bucket own
    cdef public Bucket whole
