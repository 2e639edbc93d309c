"""CUDA C++ text to machine code for one chip, by NVRTC, with the object cache on disk.

NVRTC is called through ctypes on the library of NVIDIA's wheel (which releases the interpreter's lock), so one way serves
NVRTC 13 and, for chips that it has dropped (sm_70), NVRTC 12.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import hashlib
import importlib.util
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from isthmus.backends.cpu.compile import _path, _read, _write

OPTIONS = ("--fmad=false", "--std=c++17", "-w")
MOST_THREADS = 16
AROUND = 8  # lines shown about each error

stats: dict[str, float] = {"kernels_compiled": 0, "kernels_loaded": 0, "compile_seconds": 0.0}
_lock = threading.Lock()


class CompileError(RuntimeError):
    """NVRTC refused a kernel: its words, and the source's numbered lines that they are about."""


class Nvrtc:
    """One NVRTC library."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.library = ctypes.CDLL(path)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        count = ctypes.c_int()
        self.library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        archs = (ctypes.c_int * count.value)()
        self.library.nvrtcGetSupportedArchs(archs)
        self.archs = sorted(archs)

    def compile(self, source: str, arch: int) -> bytes:
        """A cubin for `sm_<arch>`; for a chip newer than this NVRTC, PTX of the newest one it knows.

        Raises:
            CompileError: the source is refused, or the chip is older than any that this NVRTC knows.
        """
        if arch < self.archs[0]:
            raise CompileError(f"[nvrtc] NVRTC {self.version[0]}.{self.version[1]} does not know sm_{arch} any more; isthmus[cuda12] brings one that does.")
        real = arch in self.archs
        target = f"--gpu-architecture=sm_{arch}" if real else f"--gpu-architecture=compute_{max(a for a in self.archs if a <= arch)}"
        options = [option.encode() for option in (target, *OPTIONS)]
        program = ctypes.c_void_p()
        self.library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        try:
            if self.library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
                raise CompileError(f"[nvrtc] a kernel does not compile for sm_{arch}:\n{self.text(program, 'ProgramLog').decode()}\n" + numbered(source, self.text(program, "ProgramLog").decode()))
            return self.text(program, "CUBIN" if real else "PTX")
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw if what != "ProgramLog" else buffer.value


def numbered(source: str, log: str) -> str:
    lines = source.splitlines()
    wrong = {int(n) for n in re.findall(r"kernel\.cu\((\d+)\)", log)} or {len(lines)}
    shown = sorted({k for at in wrong for k in range(max(1, at - AROUND), min(len(lines), at + AROUND) + 1)})
    return "\n".join(f"{'>' if k in wrong else ' '}{k:5d}  {lines[k - 1]}" for k in shown)


def libraries() -> list[str]:
    """Paths of the NVRTC libraries that are installed as wheels, the newest first; then the loader's names."""
    spec = importlib.util.find_spec("nvidia")
    found = [path for root in (spec.submodule_search_locations or [] if spec else []) for path in glob.glob(os.path.join(root, "*", "lib", "libnvrtc.so.*"))]
    found = [path for path in found if re.search(r"libnvrtc\.so\.\d+$", path)]
    return sorted(found, key=lambda path: -int(path.rpartition(".")[2])) + ["libnvrtc.so.13", "libnvrtc.so.12"]


@functools.cache
def nvrtc() -> Nvrtc:
    """The NVRTC to use.

    Raises:
        RuntimeError: there is none.
    """
    for path in libraries():
        try:
            return Nvrtc(path)
        except OSError:
            continue
    raise RuntimeError("[nvrtc] no NVRTC library was found, so no kernel can be compiled for the GPU; pip install isthmus[cuda13] (or [cuda12]) brings it.")


def compile_sources(sources: list[str], arch: int) -> list[bytes]:
    """Machine code of each source for `sm_<arch>`: from disk, or compiled now, all that are missing at once.

    Raises:
        CompileError: a source does not compile.
    """
    compiler = nvrtc()
    paths = [_path(digest(source, arch, compiler.version)) for source in sources]
    codes = [_read(path) if path else None for path in paths]
    missing = [k for k, code in enumerate(codes) if code is None]
    stats["kernels_loaded"] += len(codes) - len(missing)
    if missing:
        start = time.perf_counter()
        with ThreadPoolExecutor(min(len(missing), MOST_THREADS, os.cpu_count() or 1)) as pool:
            made = list(pool.map(lambda k: compiler.compile(sources[k], arch), missing))
        for k, code in zip(missing, made, strict=True):
            codes[k] = code
            path = paths[k]
            if path:
                _write(path, code)
        stats["kernels_compiled"] += len(missing)
        stats["compile_seconds"] += time.perf_counter() - start
    return [code for code in codes if code is not None]


def digest(source: str, arch: int, version: tuple[int, int]) -> bytes:
    return hashlib.sha256(repr(("cuda", arch, version, OPTIONS, source)).encode()).digest()
