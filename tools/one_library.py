"""The one shared object that holds all compiled modules, and the commands of setuptools that build it.

A shared object of its own for each module has its own tables of symbols and relocations, and begins each of its parts
on a page of its own: 124 of them took 3 MiB more in every process than one does (docs/decisions/0006-memory.md). What
the compiler takes for unlikely is also in one place then, so that the pages of it that no process runs are never read.

Cython's C has a function `PyInit_NAME` for each module, with the last part of its name. Here such a function has the
whole name, so that they can stand side by side, and `proxy._core` calls them (`proxy/compiled_modules.py`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import LinkError

#: The module that holds all others.
LIBRARY = "proxy._core"
#: The header that precedes each C file, and the order in which GNU ld links their functions.
FIRST, ORDER = (Path(__file__).parent / name for name in ("compiled.h", "order.ld"))
#: What Cython's C does where an error is found, and what is called before (tools/compiled.h).
ERROR = "{ __PYX_MARK_ERR_POS(f_index, lineno) goto Ln_error; }"
MARKED = ERROR.replace("{ ", "{ redrive_error(); ")

_C = r"""
#include <Python.h>
#include <string.h>

@declarations@
static const struct { const char *name; PyObject *(*init)(void); } modules[] = {
@table@
    {NULL, NULL},
};

static PyObject *create(PyObject *self, PyObject *spec)
{
    PyObject *found = PyObject_GetAttrString(spec, "name"), *made = NULL;
    const char *name = found == NULL ? NULL : PyUnicode_AsUTF8(found);
    if (name != NULL) {
        int i = 0;
        while (modules[i].name != NULL && strcmp(modules[i].name, name) != 0)
            i++;
        if (modules[i].name == NULL)
            PyErr_Format(PyExc_ImportError, "%s is not compiled", name);
        else {
            PyObject *definition = modules[i].init();
            if (definition != NULL)
                made = PyModule_FromDefAndSpec((PyModuleDef *)definition, spec);
        }
    }
    Py_XDECREF(found);
    return made;
}

static PyObject *execute(PyObject *self, PyObject *module)
{
    PyModuleDef *definition = PyModule_GetDef(module);
    if (definition == NULL || PyModule_ExecDef(module, definition) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *names(PyObject *self, PyObject *nothing)
{
    PyObject *all = PyList_New(0);
    for (int i = 0; all != NULL && modules[i].name != NULL; i++) {
        PyObject *name = PyUnicode_FromString(modules[i].name);
        if (name == NULL || PyList_Append(all, name) < 0)
            Py_CLEAR(all);
        Py_XDECREF(name);
    }
    return all;
}

static PyMethodDef methods[] = {
    {"create", create, METH_O, "Make the module that a spec names."},
    {"execute", execute, METH_O, "Run the code of a module that was made."},
    {"names", names, METH_NOARGS, "The names of all modules."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_core", "All compiled modules.", 0, methods, slots};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
"""


def _function(module: str) -> str:
    """The name of the C function that initializes a module in this library."""
    return "PyInit_" + module.replace(".", "_dot_")


def one_library(parts: Iterable[Extension], folder: Path) -> Extension:
    """One extension out of those of all modules; the C file of its table is written to `folder`."""
    parts = list(parts)
    text = _C.replace("@declarations@", "\n".join(f"PyObject *{_function(part.name)}(void);" for part in parts))
    text = text.replace("@table@", "\n".join(f'    {{"{part.name}", {_function(part.name)}}},' for part in parts))
    table = folder / "_core.c"
    folder.mkdir(parents=True, exist_ok=True)
    if not table.exists() or table.read_text() != text:
        table.write_text(text)
    made = Extension(LIBRARY, [str(table)], extra_link_args=parts[0].extra_link_args)
    made.parts = parts  # type: ignore[attr-defined]
    return made


class BuildLibrary(build_ext):
    """Compiles what has changed of the modules, side by side, and links the library; or installs nothing compiled."""

    def build_extensions(self) -> None:
        """Build; if something fails, the package goes without it."""
        try:
            super().build_extensions()
        except Exception as error:  # of the compiler, of the linker, or that there is none
            self.warn(f"nothing is compiled, redrive will run in Python alone: {error}")
            for each in self.extensions:
                Path(self.get_ext_fullpath(each.name)).unlink(missing_ok=True)
                each.optional = True  # what is not there is not copied

    def build_extension(self, ext: Extension) -> None:
        """Build the library."""
        flags = ext.parts[0].extra_compile_args
        sources = [(ext.sources[0], [*flags], [])]
        for part in ext.parts:
            function = f"PyInit_{part.name.rpartition('.')[2]}"
            names = [(function, _function(part.name)), ("CYTHON_NO_PYINIT_EXPORT", "1")]
            sources.append(
                (part.sources[0], [*part.extra_compile_args, "-include", str(FIRST), "-fvisibility=hidden"], names)
            )
        with ThreadPoolExecutor(os.cpu_count() or 1) as several:
            objects = list(several.map(lambda each: self._compiled(*each), sources))
        library = Path(self.get_ext_fullpath(ext.name))
        parts = [*objects, str(ORDER)]
        if library.exists() and all(Path(each).stat().st_mtime <= library.stat().st_mtime for each in parts):
            return
        try:
            self._link(ext, objects, library, [f"-Wl,-T,{ORDER}"] if sys.platform == "linux" else [])
        except LinkError:  # another linker, which does not know such orders
            self._link(ext, objects, library, [])

    def _link(self, ext: Extension, objects: list[str], library: Path, flags: list[str]) -> None:
        """Link the library out of its objects."""
        library.unlink(missing_ok=True)  # setuptools would keep it if only the order has changed
        self.compiler.link_shared_object(
            objects,
            str(library),
            libraries=self.get_libraries(ext),
            extra_postargs=[*ext.extra_link_args, *flags],
            build_temp=self.build_temp,
            target_lang="c",
        )

    def _compiled(self, source: str, flags: list[str], names: list[tuple[str, str]]) -> str:
        """The object file of a C file, made again if the file has changed or would be compiled in another way."""
        text = Path(source).read_text()
        if ERROR in text:
            Path(source).write_text(text.replace(ERROR, MARKED))
        made = Path(self.compiler.object_filenames([source], output_dir=self.build_temp)[0])
        way, written = repr((flags, names, self.include_dirs, FIRST.read_text())), made.with_suffix(".way")
        if not (
            made.exists()
            and written.exists()
            and written.read_text() == way
            and made.stat().st_mtime >= Path(source).stat().st_mtime
        ):
            written.unlink(missing_ok=True)
            self.compiler.compile(
                [source], output_dir=self.build_temp, macros=names, include_dirs=self.include_dirs, extra_postargs=flags
            )
            written.write_text(way)
        return str(made)

    def copy_extensions_to_source(self) -> None:
        """Put the library into the checkout, and remove what an earlier release has built there, also of modules that
        are not compiled any more: Python would import it in place of their source.
        """
        super().copy_extensions_to_source()
        package, _, library = LIBRARY.partition(".")
        for old in Path(package).rglob("*.so"):
            if not old.name.startswith(f"{library}."):
                old.unlink()
