"""The `isthmus` command: `isthmus doctor`, `isthmus cache`, `isthmus cache clear`, `isthmus --version`.

`doctor` must also run where isthmus itself does not, so nothing of it is imported before it is asked about.
"""

import argparse
import ctypes
import importlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from isthmus import __version__

NEEDED = ("numpy", "scipy", "llvmlite", "ml_dtypes", "opt_einsum")
OPTIONAL = {"examples": ("sklearn", "matplotlib", "tqdm")}
DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # where the name to install differs from the name to import


class Finding(NamedTuple):
    """A line of the doctor's report."""

    what: str
    says: str
    mend: str = ""  # the command that would mend it
    fatal: bool = False  # isthmus does not work without it


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="isthmus", description="Look after an installation of isthmus.")
    parser.add_argument("--version", action="version", version=f"isthmus {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what is installed, what is missing, and the command that mends it")
    cache = commands.add_parser("cache", help="where compiled kernels are kept, and how much there is")
    cache.add_argument("action", nargs="?", choices=["info", "clear"], default="info")
    args = parser.parse_args(argv)
    if args.command == "doctor":
        return doctor()
    return cache_command(clear=args.action == "clear")


def cache_command(clear: bool) -> int:
    """Show the kernels kept on disk, or remove them."""
    from isthmus.backends import disk_cache

    before = disk_cache.cache_info()
    if before.path is None:
        print("kernels are not kept on disk: no directory to be written to, or ISTHMUS_CACHE_LIMIT_MB is 0")
        return 0
    if clear:
        disk_cache.clear_cache()
        after = disk_cache.cache_info()
        print(f"removed {before.files - after.files} kernels, {_megabytes(before.bytes - after.bytes)}, from {before.path}")
        return 0 if after.files == 0 else 1
    print(f"{before.files} kernels, {_megabytes(before.bytes)}, in {before.path}")
    return 0


def doctor() -> int:
    """Print the report; 0 if isthmus works, else 1."""
    findings = [finding for check in CHECKS for finding in _checked(check)]
    width = max(len(finding.what) for finding in findings)
    for what, says, mend, fatal in findings:
        print(f"{'!!' if fatal else '--' if mend else 'ok'}  {what:{width}}  {says}")
        if mend:
            print(f"    {'':{width}}  -> {mend}")
    broken = [finding.what for finding in findings if finding.fatal]
    print(f"\nisthmus does not work: see {', '.join(broken)}." if broken else "\nisthmus works.")
    return 1 if broken else 0


def _checked(check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What a check finds; one that fails itself is a finding, too."""
    try:
        yield from check()
    except Exception as e:
        yield Finding(check.__name__.strip("_").replace("_", " "), f"{type(e).__name__}: {e}", fatal=True)


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    old = sys.version_info < (3, 11)
    yield Finding("isthmus", f"{__version__} in {os.path.dirname(os.path.dirname(__file__))}")
    yield Finding("Python", f"{version} at {sys.executable}", "install Python 3.11 or newer" if old else "", old)


def _dependencies() -> Iterator[Finding]:
    for name in NEEDED:
        try:
            module = importlib.import_module(name)
        except ImportError as e:
            yield Finding(name, str(e), f"{sys.executable} -m pip install --force-reinstall {name}", fatal=True)
        else:
            yield Finding(name, str(getattr(module, "__version__", "installed")))
    for extra, names in OPTIONAL.items():
        missing = [name for name in names if importlib.util.find_spec(name) is None]
        if missing:
            packages = " ".join(DISTRIBUTIONS.get(name, name) for name in missing)
            yield Finding(f"[{extra}]", f"without {', '.join(missing)}", f"{sys.executable} -m pip install {packages}")
        else:
            yield Finding(f"[{extra}]", "installed")


def _hot_files() -> Iterator[Finding]:
    module = importlib.import_module("isthmus.graph.array")
    if str(module.__file__).endswith(".py"):
        yield Finding(
            "hot files",
            "plain Python (a step of a small model takes about twice as long as compiled by mypyc)",
            "apt install gcc python3-dev, then build isthmus anew: pip install --force-reinstall --no-deps <its sources>",
        )
    else:
        yield Finding("hot files", "compiled by mypyc")


def _cpu() -> Iterator[Finding]:
    from isthmus.backends.cpu import compile, stream

    host = compile.host()
    known = {
        "avx2": "AVX2",
        "f16c": "F16C",
        "avx512f": "AVX-512",
        "avx512bf16": "AVX512-BF16",
        "avx512fp16": "AVX512-FP16",
        "amx-bf16": "AMX",
        "neon": "NEON",
        "sve": "SVE",
    }
    features = ", ".join(label for feature, label in known.items() if host.has(feature)) or "none of those used"
    yield Finding("CPU", f"{_cpu_name()} ({host.name}); {features}; vectors of {8 * host.simd_bytes} bits")
    yield Finding("threads", f"{stream.threads()} of {os.cpu_count()} CPUs (ISTHMUS_NUM_THREADS sets it)")


def _cache() -> Iterator[Finding]:
    from isthmus.backends import disk_cache

    info = disk_cache.cache_info()
    if info.path is None:
        yield Finding("kernel cache", "none: each process compiles its kernels", "export ISTHMUS_CACHE_DIR=<a directory of yours>")
    else:
        yield Finding("kernel cache", f"{info.files} kernels, {_megabytes(info.bytes)}, in {info.path}")


def _a_kernel() -> Iterator[Finding]:
    import isthmus.core as mx

    start = time.perf_counter()
    value = (mx.array([1.0, 2.0]) * 3 + 1).tolist()
    elapsed_ms = 1e3 * (time.perf_counter() - start)
    right = value == [4.0, 7.0]
    yield Finding("a kernel", f"runs, {elapsed_ms:.0f} ms" if right else f"gives {value} for [4.0, 7.0]", fatal=not right)


def _gpu() -> Iterator[Finding]:
    driver = None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    names = _cards()
    if driver is None and not names:
        yield Finding("GPU", "none found (no libcuda.so.1, no nvidia-smi): the CPU is used")
        return
    if driver is None:
        yield Finding("GPU", f"{'; '.join(names)}; but no libcuda.so.1", "install the NVIDIA driver's libraries in this system or container")
        return
    from isthmus.backends.cuda.find import MAJOR, MINOR, OLDEST

    version = ctypes.c_int(0)
    driver.cuDriverGetVersion(ctypes.byref(version))
    supports = f"{version.value // 1000}.{version.value % 1000 // 10}"
    extra = "cuda13" if version.value >= 13000 else "cuda12"
    mend = f"{sys.executable} -m pip install 'isthmus[{extra}]'"
    if version.value < 12000:
        yield Finding("GPU driver", f"for CUDA {supports}, which is too old: the CPU is used", "install an NVIDIA driver of version 525 or newer")
        return
    yield Finding("GPU driver", f"for CUDA {supports}")
    status = driver.cuInit(0)
    if status != 0:
        yield Finding("GPU", f"{'; '.join(names) or 'a driver'}; but it cannot be started (cuInit gives error {status}): the CPU is used", "nvidia-smi says more")
        return
    count, major, minor = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    chips = []
    for k in range(count.value):
        driver.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, k)
        driver.cuDeviceGetAttribute(ctypes.byref(minor), MINOR, k)
        chips.append(10 * major.value + minor.value)
        name = names[k] if k < len(names) else f"GPU {k}"
        old = chips[-1] < OLDEST
        yield Finding(f"GPU {k}", f"{name}, compute capability {major.value}.{minor.value}{'; too old (7.0 is needed)' if old else ''}")
    yield from _gpu_packages(chips, mend)


def _gpu_packages(chips: list[int], mend: str) -> Iterator[Finding]:
    """The packages that run, compile and multiply, for these chips."""
    from isthmus.backends.cuda import compile, find

    if find.has_packages():
        yield Finding("cuda-bindings", importlib.metadata.version("cuda-bindings"))
    else:
        yield Finding("cuda-bindings", "missing: the CPU is used", mend)
    for chip in sorted(set(chips)):
        if chip < 70:
            continue
        try:
            compiler = compile.nvrtc(chip)
            yield Finding("NVRTC", f"{'.'.join(map(str, compiler.version))}, compiles for sm_{chip}")
        except RuntimeError as error:
            yield Finding("NVRTC", str(error), mend if chip >= 75 else f"{sys.executable} -m pip install 'isthmus[cuda12]'")
    if find.has_cublaslt():
        yield Finding("cuBLASLt", f"through nvmath-python {importlib.metadata.version('nvmath-python')}")
    else:
        yield Finding("cuBLASLt", "missing: matrix products by kernels of our own, which are up to 20 times slower where they are large", mend)


def _cards() -> list[str]:
    """What nvidia-smi calls the GPUs: name, driver, memory."""
    names: list[str] = []
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        run = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
        names = run.stdout.strip().splitlines() if run.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired):
        pass
    return names


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (_python, _dependencies, _hot_files, _cpu, _cache, _a_kernel, _gpu)


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            found = re.search(r"^model name\s*:\s*(.+)$", f.read(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
