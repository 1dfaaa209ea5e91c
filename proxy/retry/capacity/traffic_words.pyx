# cython: language_level=3, binding=False
"""The word of shared memory in which an endpoint's `Traffic` counts the attempts that have ended. The compiled class
writes there through a pointer, since an item of a memoryview costs as much as forty of its other instructions.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

from proxy.retry.capacity.traffic cimport Traffic


def count_in(Traffic traffic, words, Py_ssize_t at):
    """Have `traffic` count in the item `at` of `words`, a memoryview of whole numbers of eight bytes, which must live
    as long as `traffic` does.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(words, &view, PyBUF_WRITABLE)
    is_there = 0 <= at < view.len // <Py_ssize_t> sizeof(long long)  # also if the items of `words` are smaller
    if is_there:
        traffic._word = <long long*> view.buf + at
    PyBuffer_Release(&view)
    if not is_there:
        raise IndexError(at)
