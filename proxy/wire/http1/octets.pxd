"""Octets of HTTP/1's grammar (`wire.http1.syntax`): where a token, a value or a request target ends, and names in any case.

There is no module of this name: its functions become part of the module that cimports them.
"""

from libc.string cimport memcpy

cdef enum:
    TOKEN = 1  # an octet of a token
    VALUE = 2  # an octet of a field's value
    TARGET = 4  # an octet of a request target


cdef extern from *:
    """
    static unsigned char KIND[256], LOWER[256];
    #if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define FIRST_FLAGGED(flags) (__builtin_ctzll(flags) >> 3)
    #else
    #define FIRST_FLAGGED(flags) 0
    #endif
    #if defined(__GNUC__) && defined(__SSE2__)
    #include <emmintrin.h>
    #define AT_ONCE 16
    #define FIRST_OF(flags) __builtin_ctz(flags)
    #define ALL(octet) _mm_set1_epi8((char)(octet))
    #define UP_TO(last, octets) _mm_cmpeq_epi8(_mm_min_epu8(octets, ALL(last)), octets)
    static inline unsigned int no_values(const unsigned char *at) {
        const __m128i octets = _mm_loadu_si128((const __m128i *)at);
        const __m128i control = _mm_andnot_si128(_mm_cmpeq_epi8(octets, ALL(0x09)), UP_TO(0x1F, octets));
        return (unsigned int)_mm_movemask_epi8(_mm_or_si128(control, _mm_cmpeq_epi8(octets, ALL(0x7F))));
    }
    static inline unsigned int no_targets(const unsigned char *at) {
        const __m128i octets = _mm_loadu_si128((const __m128i *)at);
        const __m128i other = _mm_or_si128(_mm_cmpeq_epi8(octets, ALL(0x23)), _mm_cmpeq_epi8(octets, ALL(0x7F)));
        return (unsigned int)_mm_movemask_epi8(_mm_or_si128(UP_TO(0x20, octets), other));
    }
    static inline unsigned int no_letters(const unsigned char *at) {
        const __m128i octets = _mm_loadu_si128((const __m128i *)at);
        const __m128i letters = UP_TO(25, _mm_sub_epi8(_mm_or_si128(octets, ALL(0x20)), ALL(0x61)));
        const __m128i digits = UP_TO(9, _mm_sub_epi8(octets, ALL(0x30)));
        const __m128i known = _mm_or_si128(_mm_or_si128(letters, digits), _mm_cmpeq_epi8(octets, ALL(0x2D)));
        return (unsigned int)_mm_movemask_epi8(known) ^ 0xFFFFU;
    }
    #else
    #define AT_ONCE 0  /* the loops that follow do all of the work */
    #define FIRST_OF(flags) 0
    #define no_values(at) 0U
    #define no_targets(at) 0U
    #define no_letters(at) 0U
    #endif
    """
    # By octet: what it may be part of, and the octet in lower case. A module that uses them calls `make_tables` first.
    unsigned char KIND[256]
    unsigned char LOWER[256]
    int FIRST_FLAGGED(unsigned long long flags) nogil
    # AT_ONCE: the number of octets compared together; 0 if this machine can't. The functions return a bit for each of
    # so many octets that is no octet of a value, no octet of a target, or neither letter, digit nor hyphen, of which
    # nearly all names consist.
    int AT_ONCE
    int FIRST_OF(unsigned int flags) nogil
    unsigned int no_values(const unsigned char *at) nogil
    unsigned int no_targets(const unsigned char *at) nogil
    unsigned int no_letters(const unsigned char *at) nogil


cdef inline void make_tables() noexcept:
    """Fill KIND and LOWER."""
    cdef int octet
    for octet in range(256):
        LOWER[octet] = octet + 32 if 0x41 <= octet <= 0x5A else octet
        KIND[octet] = 0
        if octet == 0x09 or 0x20 <= octet <= 0x7E or octet >= 0x80:
            KIND[octet] |= VALUE
        if octet == 0x21 or octet == 0x22 or 0x24 <= octet <= 0x7E or octet >= 0x80:
            KIND[octet] |= TARGET
        if 0x30 <= octet <= 0x39 or 0x41 <= octet <= 0x5A or 0x61 <= octet <= 0x7A or octet in b"!#$%&'*+-.^_`|~":
            KIND[octet] |= TOKEN


cdef inline Py_ssize_t value_end(const unsigned char *text, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """The offset after the octets of a value that begins at `at`; `text` has `size` octets, and then a NUL."""
    cdef unsigned long long word, deleted, flags
    cdef unsigned int others
    while AT_ONCE and at + AT_ONCE <= size:
        others = no_values(text + at)
        if others:
            return at + FIRST_OF(others)
        at += AT_ONCE
    # Eight at a time while none of them is a control octet or DEL: the sums are those of
    # https://graphics.stanford.edu/~seander/bithacks.html#HasLessInWord
    while not AT_ONCE and at + 8 <= size:
        memcpy(&word, text + at, 8)
        deleted = word ^ 0x7F7F7F7F7F7F7F7FULL
        flags = (word - 0x2020202020202020ULL) & ~word | (deleted - 0x0101010101010101ULL) & ~deleted
        flags &= 0x8080808080808080ULL
        if flags:
            at += FIRST_FLAGGED(flags)  # the first flag is right, but may be a tab's, which the loop below accepts
            break
        at += 8
    while KIND[text[at]] & VALUE:
        at += 1
    return at


cdef inline Py_ssize_t token_end(const unsigned char *text, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """The offset after the octets of a token that begins at `at`; `text` has `size` octets, and then a NUL."""
    cdef unsigned int others
    while AT_ONCE and at + AT_ONCE <= size:
        others = no_letters(text + at)
        if others:
            at += FIRST_OF(others)
            break
        at += AT_ONCE
    while KIND[text[at]] & TOKEN:
        at += 1
    return at


cdef inline Py_ssize_t target_end_at(const unsigned char *text, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """The offset after the octets of a request target that begins at `at`; `text` has `size` octets, and then a NUL."""
    cdef unsigned int others
    while AT_ONCE and at + AT_ONCE <= size:
        others = no_targets(text + at)
        if others:
            return at + FIRST_OF(others)
        at += AT_ONCE
    while KIND[text[at]] & TARGET:
        at += 1
    return at


cdef inline bint is_name(const unsigned char *at, const unsigned char *name, Py_ssize_t length) noexcept nogil:
    """Whether a token is this name, in any case. The name consists of lower-case letters, digits and hyphens: with the
    bit that distinguishes cases set, no other octet of a token equals one of these.
    """
    cdef Py_ssize_t n = 0
    cdef unsigned long long word, other
    cdef unsigned int half, other_half
    if length >= 8:
        while True:
            memcpy(&word, at + n, 8)
            memcpy(&other, name + n, 8)
            if word | 0x2020202020202020ULL != other:
                return False
            if n + 8 == length:
                return True
            n = n + 8 if n + 16 <= length else length - 8
    if length >= 4:
        memcpy(&half, at, 4)
        memcpy(&other_half, name, 4)
        if half | 0x20202020U != other_half:
            return False
        memcpy(&half, at + length - 4, 4)
        memcpy(&other_half, name + length - 4, 4)
        return half | 0x20202020U == other_half
    while n < length:
        if at[n] | 0x20 != name[n]:
            return False
        n += 1
    return True
