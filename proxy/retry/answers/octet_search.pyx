# cython: language_level=3, boundscheck=False, wraparound=False, nonecheck=True, binding=False
"""Compiled search for short texts in the bytes of a stream: `bytes.find` spends more on each call than on the search, and
`memmem` of the C library prepares a table for each text. Here sixteen places are compared at a time with a text's first
and last octet, and with all of it where both are found. Without SSE2, the C library searches.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp


cdef extern from *:
    """
    #include <string.h>
    #if defined(__GNUC__) && defined(__SSE2__)
    #include <emmintrin.h>
    static const char *find_text(const char *at, const char *end, const char *text, Py_ssize_t size)
    {
        const char *last = end - size;  /* the last place where the text may begin */
        if (size < 2) return size ? memchr(at, text[0], (size_t)(end - at)) : at;
        if (last - at >= 15) {
            const __m128i first = _mm_set1_epi8(text[0]), behind = _mm_set1_epi8(text[size - 1]);
            for (;;) {
                const __m128i begins = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)at), first);
                const __m128i ends = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(at + size - 1)), behind);
                unsigned int both = (unsigned int)_mm_movemask_epi8(_mm_and_si128(begins, ends));
                for (; both; both &= both - 1) {
                    const char *place = at + __builtin_ctz(both);
                    if (!memcmp(place + 1, text + 1, (size_t)size - 2)) return place;
                }
                at += 16;
                if (at > last) return NULL;
                if (last - at < 15) at = last - 15;  /* some places are compared again, and hold nothing */
            }
        }
        for (; at <= last; at++)
            if (at[0] == text[0] && at[size - 1] == text[size - 1] && !memcmp(at, text, (size_t)size)) return at;
        return NULL;
    }
    #else
    static const char *find_text(const char *at, const char *end, const char *text, Py_ssize_t size)
    {
        return memmem(at, (size_t)(end - at), text, (size_t)size);
    }
    #endif
    """
    const char *find_text(const char *at, const char *end, const char *text, Py_ssize_t size) nogil


cpdef bint holds_any(bytes data, tuple texts) except -1:
    """Return whether any of the texts occurs in `data`."""
    cdef bytes text
    cdef const char *begin
    if data is None:
        raise TypeError("a search needs bytes")
    begin = PyBytes_AS_STRING(data)
    for text in texts:
        if text is None:
            raise TypeError("a search needs bytes")
        if find_text(begin, begin + PyBytes_GET_SIZE(data), PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)) != NULL:
            return True
    return False


cpdef bint holds_member(bytes data, tuple names) except -1:
    """Return whether any of the names, with their quotes, occurs in `data` in a place where a JSON member of the value
    null does not begin.
    """
    cdef bytes name
    cdef const char *at
    cdef const char *end
    cdef const char *text
    cdef Py_ssize_t size
    if data is None:
        raise TypeError("a search needs bytes")
    end = PyBytes_AS_STRING(data) + PyBytes_GET_SIZE(data)
    for name in names:
        if name is None:
            raise TypeError("a search needs bytes")
        text, size = PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
        at = find_text(PyBytes_AS_STRING(data), end, text, size)
        while at != NULL:
            at = past_null(at + size, end)
            if at == NULL:
                return True
            at = find_text(at, end, text, size)
    return False


cdef inline bint is_blank(char octet) noexcept nogil:
    return octet == 32 or octet == 9 or octet == 10 or octet == 13


cdef const char *past_null(const char *at, const char *end) noexcept nogil:
    """The place behind a colon and null that stand at `at`, and behind which nothing continues the word; else NULL."""
    while at < end and is_blank(at[0]):
        at += 1
    if at == end or at[0] != 58:
        return NULL
    at += 1
    while at < end and is_blank(at[0]):
        at += 1
    if end - at < 5 or memcmp(at, b"null", 4):
        return NULL
    if at[4] == 44 or at[4] == 93 or at[4] == 125 or is_blank(at[4]):  # a comma or a closing bracket
        return at + 4
    return NULL
