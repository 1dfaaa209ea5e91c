# cython: language_level=3, binding=False
"""Memory that the process has freed, given back to the system: only glibc keeps it."""

cdef extern from *:
    """
    #ifdef __GLIBC__
    #include <malloc.h>
    static void give_back(void) { malloc_trim(0); }
    #else
    static void give_back(void) {}
    #endif
    """
    void give_back() nogil


def trim():
    """Give back every page that no object is in."""
    with nogil:
        give_back()
