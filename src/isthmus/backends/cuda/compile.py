"""CUDA C++ text to machine code for one chip, by NVRTC, kept on disk (backends/disk_cache.py).

NVRTC is called through ctypes on the library of NVIDIA's wheel (which releases the interpreter's lock), so one way serves
NVRTC 13 and, for chips that it has dropped (sm_70), NVRTC 12. It needs no GPU and, as the texts include nothing, no headers.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import hashlib
import importlib.util
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

from isthmus.backends import disk_cache

OPTIONS = ("--fmad=false", "--std=c++17", "-w")
MOST_THREADS = 8  # 16 softmax kernels: 1412 ms with one thread, 382 with 4, 352 with 8
SHOWN_WHOLE = 60  # lines of a text that is shown whole beside its errors; of a longer one
AROUND = 10  # lines before and after each error

stats: dict[str, float] = {"kernels_compiled": 0, "kernels_loaded": 0, "compile_seconds": 0.0}


class CompileError(RuntimeError):
    """NVRTC refused a kernel: its words, and the source's numbered lines that they are about."""


def compile_sources(sources: list[str], arch: int, options: tuple[str, ...] = ()) -> list[bytes]:
    """Machine code of each source for `sm_<arch>`: from disk, or compiled now, all that are missing at once.

    Args:
        sources: CUDA C++ without includes.
        arch: The chip's compute capability, 90 for 9.0.
        options: NVRTC's, besides `OPTIONS`.

    Returns:
        Cubins; for a chip newer than NVRTC, PTX of the newest one it knows, which the driver compiles. Either goes to
        `cuModuleLoadData`.

    Raises:
        CompileError: A source does not compile; the others have been kept on disk.
        RuntimeError: No NVRTC is installed, or none that knows so old a chip.
    """
    compiler = nvrtc(arch)
    digests = [_digest(source, arch, options, compiler.version) for source in sources]
    codes = {digest: disk_cache.read(digest) for digest in digests}
    missing = {digest: source for digest, source in zip(digests, sources) if codes[digest] is None}
    stats["kernels_loaded"] += len(codes) - len(missing)

    def make(digest: bytes, source: str) -> bytes:
        code = compiler.compile(source, arch, options)
        disk_cache.write(digest, code)
        return code

    if missing:
        start = time.perf_counter()
        with ThreadPoolExecutor(min(len(missing), MOST_THREADS, os.cpu_count() or 1)) as pool:
            tasks = {digest: pool.submit(make, digest, source) for digest, source in missing.items()}
        stats["compile_seconds"] += time.perf_counter() - start
        stats["kernels_compiled"] += sum(task.exception() is None for task in tasks.values())
        codes |= {digest: task.result() for digest, task in tasks.items()}
    return [code for digest in digests if (code := codes[digest]) is not None]


def _digest(source: str, arch: int, options: tuple[str, ...], version: tuple[int, int]) -> bytes:
    return hashlib.sha256(repr(("cuda", arch, version, OPTIONS, options, source)).encode()).digest()


# The library

class Nvrtc:
    """An NVRTC library; `version` is (13, 0), and `archs` are the chips that it knows, ascending.

    Raises:
        OSError: There is no such library.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.library = ctypes.CDLL(path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        self._call("GetNumSupportedArchs", ctypes.byref(count))
        archs = (ctypes.c_int * count.value)()
        self._call("GetSupportedArchs", archs)
        self.version = (major.value, minor.value)
        self.archs = sorted(archs)

    def compile(self, source: str, arch: int, options: tuple[str, ...] = ()) -> bytes:
        """A cubin for `sm_<arch>`, or PTX where `arch` is not among `archs` (it must not be older than all of them)."""
        real = arch in self.archs
        target = f"sm_{arch}" if real else f"compute_{max(a for a in self.archs if a < arch)}"
        words = [word.encode() for word in (f"--gpu-architecture={target}", *OPTIONS, *options)]
        program = ctypes.c_void_p()
        self._call("CreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        try:
            status = self.library.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
            if status:
                log = self._bytes("ProgramLog", program).rstrip(b"\0").decode(errors="replace").strip()
                raise CompileError(f"[nvrtc] a kernel does not compile for {target}: {log or self._words(status)}\n{numbered(source, log)}")
            return self._bytes("CUBIN" if real else "PTX", program)
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, buffer)
        return buffer.raw                    # of PTX with its final 0, by which the driver finds its end

    def _call(self, name: str, *args: object) -> None:
        status = getattr(self.library, f"nvrtc{name}")(*args)
        if status:
            raise RuntimeError(f"[nvrtc] nvrtc{name} of {self.path} fails: {self._words(status)}.")

    def _words(self, status: int) -> str:
        return str(self.library.nvrtcGetErrorString(status).decode())


@functools.cache
def nvrtc(arch: int) -> Nvrtc:
    """The newest NVRTC that makes code for a chip.

    Raises:
        RuntimeError: There is none.
    """
    oldest = None
    for path in libraries():
        try:
            found = _library(path)
        except OSError:
            continue
        if found.archs[0] <= arch:
            return found
        oldest = found
    if oldest is None:
        raise RuntimeError("[nvrtc] NVRTC, which compiles kernels for the GPU, is not installed; pip install isthmus[cuda13] brings it.")
    version = ".".join(map(str, oldest.version))
    raise RuntimeError(f"[nvrtc] NVRTC {version} has no code for a chip as old as sm_{arch} (sm_{oldest.archs[0]} and newer); pip install isthmus[cuda12] brings one that may.")


_library = functools.cache(Nvrtc)


def libraries() -> list[str]:
    """Paths of the NVRTC libraries that are installed as wheels, the newest first; then names that the loader may know."""
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations or () if spec else ()
    found = [path for root in roots for path in glob.glob(os.path.join(root, "*", "lib", "libnvrtc.so.[0-9][0-9]"))]
    return sorted(found, key=lambda path: -int(path.rpartition(".")[2])) + ["libnvrtc.so.13", "libnvrtc.so.12"]


def numbered(source: str, log: str) -> str:
    """The text with line numbers; if it is long, the lines around those that NVRTC's `log` names, or its last ones."""
    lines = source.splitlines()
    wrong = {int(n) for n in re.findall(r"\bkernel\.cu\((\d+)\)", log)}
    if len(lines) <= SHOWN_WHOLE or not wrong:
        shown = list(range(max(1, len(lines) - SHOWN_WHOLE + 1), len(lines) + 1))
    else:
        shown = sorted({k for at in wrong for k in range(max(1, at - AROUND), min(len(lines), at + AROUND) + 1)})
    return "\n".join(f"{'>' if k in wrong else ' '}{k:5d}  {lines[k - 1]}" for k in shown)
