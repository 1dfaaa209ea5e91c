/* What precedes the C of each compiled module (setup.py): what most processes never read stays out of their memory. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* No docstrings: they were a third of the constants, and whoever asks for one reads the source. */
#undef PyDoc_STR
#define PyDoc_STR(text) ""

/* What leads to a traceback is cold: the compiler puts it apart from what calls run, and compiles it for its size. */
#if defined(__GNUC__)
static void __Pyx_AddTraceback(const char *, int, int, const char *) __attribute__((cold, unused));
#endif
