/* What precedes the C of each compiled module (tools/one_library.py): what most processes never read stays out of their
   memory, and texts are compared in few steps. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

/* No docstrings: they were a third of the constants, and whoever asks for one reads the source. */
#undef PyDoc_STR
#define PyDoc_STR(text) ""

/* What leads to a traceback is cold: the compiler puts it apart from what calls run, and compiles it for its size. It
   does so with a block that calls a cold function before any other function, and with the blocks that only lead to and
   from it: so each error begins with a call (tools/one_library.py puts it there), and what makes exceptions is cold. That
   Cython expects a condition to be false is not enough for that. */
#if defined(__GNUC__)
#define REDRIVE_COLD __attribute__((cold, unused))
static void __attribute__((cold, noinline, unused)) redrive_error(void) { __asm__ volatile(""); }
static void __Pyx_AddTraceback(const char *, int, int, const char *) REDRIVE_COLD;
PyAPI_FUNC(PyObject *) PyErr_Format(PyObject *, const char *, ...) __attribute__((cold));
PyAPI_FUNC(PyObject *) PyErr_NoMemory(void) __attribute__((cold));
PyAPI_FUNC(void) PyErr_SetNone(PyObject *) __attribute__((cold));
PyAPI_FUNC(void) PyErr_SetString(PyObject *, const char *) __attribute__((cold));
/* Until Python 3.11: asked only where an object's class is one in Python, which may have a method of its own. */
#if PY_VERSION_HEX < 0x030C0000
static int __Pyx_object_dict_version_matches(PyObject *, uint64_t, uint64_t) REDRIVE_COLD;
#endif
#else
#define redrive_error() (void)0
#endif

/* Whether two texts are equal. Cython 3.3 asks PyUnicode_Compare, which compares texts character by character to know
   which comes first: some 95 instructions where the texts differ in their length alone. Its functions are defined once
   by name, so these stand in their place; a Cython that names them otherwise does not use them. None, and what is no
   text, never come here. Equal texts have the same kind; a hash of -1 is not computed yet. */
static inline int redrive_equal_texts(PyObject *one, PyObject *other) {
    Py_ssize_t length = PyUnicode_GET_LENGTH(one);
    Py_hash_t hash = ((PyASCIIObject *)one)->hash, hashed = ((PyASCIIObject *)other)->hash;
    int kind = (int)PyUnicode_KIND(one);
    if (length != PyUnicode_GET_LENGTH(other) || kind != (int)PyUnicode_KIND(other)) {
        return 0;
    }
    if (hash != hashed && hash != -1 && hashed != -1) {
        return 0;
    }
    return memcmp(PyUnicode_DATA(one), PyUnicode_DATA(other), (size_t)length * (size_t)kind) == 0;
}

#define __Pyx_DEFINED_PyObject_CompareStrStrBoolEq
static inline int __Pyx_PyObject_CompareStrStrBoolEq(PyObject *one, PyObject *other) {
    return redrive_equal_texts(one, other);
}

#define __Pyx_DEFINED_PyObject_CompareStrStrBoolNe
static inline int __Pyx_PyObject_CompareStrStrBoolNe(PyObject *one, PyObject *other) {
    return !redrive_equal_texts(one, other);
}
