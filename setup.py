"""The one thing pyproject.toml cannot say: compile the hot files with mypyc where that is possible.

Which files those are stands in pyproject.toml, `[tool.isthmus.mypyc]`. Needed are a C compiler with Python's headers, and
mypy. Where something is missing or fails, the same files run as they are; `isthmus doctor` says which is so.
`ISTHMUS_MYPYC=0` turns compiling off.

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

from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent


def say(reason: str) -> None:
    print(f"isthmus: the hot files are not compiled, and run as plain Python: {reason}.", file=sys.stderr)


def wanted() -> bool:
    """Whether compiling is wanted and there is a C compiler with Python's headers."""
    if os.environ.get("ISTHMUS_MYPYC", "1") == "0":
        say("ISTHMUS_MYPYC is 0")
        return False
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        say(f"there is no C compiler ({compiler}; on Debian and Ubuntu: apt install gcc)")
        return False
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        say(f"there is no Python.h in {include} (on Debian and Ubuntu: apt install python3-dev)")
        return False
    return True


def hot_files() -> list[str]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["isthmus"]["mypyc"]
    found = {path for pattern in table["files"] for path in ROOT.glob(pattern)}
    left_out = {path for pattern in table["except"] for path in ROOT.glob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in found - left_out)


def extensions() -> list:
    """The extension modules that mypyc makes of the hot files; none where it cannot."""
    try:
        from mypyc.build import mypycify
    except ImportError:
        say("mypy is not installed")
        return []
    words = io.StringIO()
    try:
        with contextlib.redirect_stdout(words):
            return mypycify(["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", *hot_files()], opt_level="3")
    except (Exception, SystemExit) as e:  # mypycify leaves by sys.exit when mypy finds an error
        print(words.getvalue(), e, file=sys.stderr)
        say("mypyc refuses them; its words stand above")
        if os.environ.get("ISTHMUS_MYPYC") == "1":
            raise
        return []


class BuildOrDoWithout(build_ext):
    """Builds all extension modules or none: a part of them would not import."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as e:
            if os.environ.get("ISTHMUS_MYPYC") == "1":
                raise
            self.announce(str(e), level=3)
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []
            say("the C compiler failed; its words stand above")


compiling = wanted()
os.environ.setdefault("MYPYPATH", str(ROOT / "src"))
setup(
    # Asked for by pip before the build; the build itself then finds mypy.
    setup_requires=["mypy>=1.15"] if compiling else [],
    ext_modules=extensions() if compiling else [],
    cmdclass={"build_ext": BuildOrDoWithout},
)
