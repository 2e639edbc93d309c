"""Builds isthmus: setuptools, and mypyc for the hot files where that is possible.

Which files are hot stands in pyproject.toml, `[tool.isthmus.mypyc]`. Needed are a C compiler with Python's headers, and
mypy, which is asked for only where there is a compiler. Where something is missing or fails, the same files run as they
are; `isthmus doctor` says which is so. `ISTHMUS_MYPYC=0` turns compiling off, `ISTHMUS_MYPYC=1` makes a failure an error.

    python setup.py build --build-lib build/mypyc      # the whole package, compiled, beside the sources
"""

import contextlib
import io
import os
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the hooks that pip calls)
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
MUST = os.environ.get("ISTHMUS_MYPYC") == "1"


def get_requires_for_build_wheel(config_settings=None):
    return [*build_meta.get_requires_for_build_wheel(config_settings), *(["mypy>=1.15"] if obstacle() is None else [])]


def get_requires_for_build_editable(config_settings=None):
    return get_requires_for_build_wheel(config_settings)


def obstacle() -> str | None:
    """Why the hot files cannot be compiled; None where there is a C compiler with Python's headers."""
    if os.environ.get("ISTHMUS_MYPYC") == "0":
        return "ISTHMUS_MYPYC is 0"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler}; on Debian and Ubuntu: apt install gcc)"
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        return f"there is no Python.h in {include} (on Debian and Ubuntu: apt install python3-dev)"
    return None


def extensions() -> list:
    """The extension modules that mypyc makes of the hot files; none where it cannot."""
    reason = obstacle()
    if reason is None:
        try:
            from mypyc.build import mypycify
        except ImportError:
            reason = "mypy is not installed"
    if reason is not None:
        _do_without(reason)
        return []
    os.environ.setdefault("MYPYPATH", str(ROOT / "src"))
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    words = io.StringIO()
    try:
        with contextlib.redirect_stdout(words):
            return mypycify([*options, *hot_files()], opt_level="3", debug_level="0", group_name="isthmus")
    except (Exception, SystemExit) as e:  # mypycify leaves by sys.exit where mypy finds an error
        print(words.getvalue(), e, file=sys.stderr)
        _do_without("mypyc refuses them; its words stand above")
        return []


def hot_files() -> list[str]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["isthmus"]["mypyc"]
    found = {path for pattern in table["files"] for path in ROOT.glob(pattern)}
    left_out = {path for pattern in table["except"] for path in ROOT.glob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in found - left_out)


class BuildExt(build_ext):
    """Builds all extension modules or none: a part of them would not import."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as e:
            print(e, file=sys.stderr)
            _do_without("the C compiler failed; its words stand above")
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []


def _do_without(reason: str) -> None:
    message = f"isthmus: the hot files are not compiled, and run as plain Python: {reason}."
    if MUST:
        raise SystemExit(f"{message} ISTHMUS_MYPYC is 1, so this is an error.")
    print(message, file=sys.stderr)
