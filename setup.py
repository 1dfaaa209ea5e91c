"""What of the package is compiled, where a C compiler is; all else about it is in pyproject.toml.

Without one the package is Python alone and does the same (docs/decisions/0011-compiled-heads.md).
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = cythonize(
    [Extension("proxy.wire.http1.scan", ["proxy/wire/http1/scan.pyx"])], build_dir="build/cython", language_level=3
)
for module in MODULES:
    module.optional = True  # cythonize does not keep it

setup(ext_modules=MODULES)
