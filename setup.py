"""What pyproject.toml cannot say: the extension modules. How they are made stands in build_backend.py."""

from build_backend import BuildExt, extensions
from setuptools import setup

setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExt})
