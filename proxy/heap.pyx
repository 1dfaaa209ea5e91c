# cython: language_level=3, binding=False
"""Memory that the process has freed: what of it is kept for the next use, and what is given back to the system. Only
glibc keeps any.
"""

cdef extern from *:
    """
    #ifdef __GLIBC__
    #include <malloc.h>
    static void give_back(void) { malloc_trim(0); }
    static void set_thresholds(int trim, int map)
    {
        mallopt(M_TRIM_THRESHOLD, trim);
        mallopt(M_MMAP_THRESHOLD, map);
    }
    #else
    static void give_back(void) {}
    static void set_thresholds(int trim, int map) {}
    #endif
    """
    void give_back() nogil
    void set_thresholds(int trim, int map) nogil


def trim():
    """Give back every page that no object is in."""
    with nogil:
        give_back()


def keep(int most, int alone):
    """Keep up to `most` free bytes at the end of the heap, and map only blocks of `alone` bytes and more by
    themselves.
    """
    set_thresholds(most, alone)
