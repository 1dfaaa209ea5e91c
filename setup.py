"""What of the package is compiled, where a C compiler is; all else about it is in pyproject.toml.

Without one, or without Cython, the package is Python alone and does the same (docs/decisions/0011-compiled-heads.md).
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = [Extension("proxy.wire.http1.scan", ["proxy/wire/http1/scan.pyx"], optional=True)]

setup(ext_modules=cythonize(MODULES, build_dir="build/cython", language_level=3))
