"""LLVM IR text to the addresses of native functions, with an object cache on disk.

`compile_module` parses and verifies the text, runs a light pass pipeline (kernels hold explicit vectors, so there is
nothing to vectorize), emits an object for this very CPU and links it. Code is never unloaded, so addresses stay valid
until the process ends, also in its forks.

Objects are kept on disk (backends/disk_cache.py) by the hash of all they depend on: text, LLVM, CPU, pipeline.

Text must be free of addresses, or it would never be found again: what lies at run time in another place each time
(buffers, BLAS functions, tables) reaches an entry through its parameter slots: `%f = load ptr, ptr %slot`, then
`call void %f(...)`. Functions of the process (`memcpy`, `clock_gettime`) may be declared and called by name.

An error inside LLVM's code generator ends the process, so what is known to lead there is refused first: inline
assembly, scalable vectors, and intrinsics that this CPU does not have.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from isthmus.backends import disk_cache

if TYPE_CHECKING:
    import llvmlite.binding as llvm

# To be put on every function. LLVM keeps to 256 bits on many CPUs that have 512, where it has not been told otherwise.
FUNCTION_ATTRIBUTES = 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'

# A change of passes or of how objects are made takes a new number, so that old objects are not found.
PIPELINE_VERSION = 2

stats: dict[str, float] = {"kernels_compiled": 0, "kernels_loaded": 0, "compile_seconds": 0.0}


class CompileError(RuntimeError):
    """A kernel that LLVM refuses: its numbered source and LLVM's own words."""


class Host(NamedTuple):
    """The CPU that code is made for; `simd_bytes` is the vector width that kernels should be written with."""

    name: str
    features: str
    simd_bytes: int

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")


def compile_module(ir_text: str, symbols: Sequence[str]) -> dict[str, int]:
    """Addresses of the functions `symbols`, defined in `ir_text`.

    Raises:
        CompileError: The text does not parse or verify, lacks one of the symbols, or calls what does not exist.
    """
    digest = _digest(ir_text)
    with _lock:
        found = _linked.get(digest)
        if found is None or not found.keys() >= set(symbols):
            found = _linked[digest] = (found or {}) | _load_or_compile(ir_text, symbols, digest)
    return {name: found[name] for name in symbols}


@functools.cache
def host() -> Host:
    """The CPU of this machine."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512vl") and features.get("avx512bw") and features.get("avx512dq"):
        simd_bytes = 64
    elif features.get("avx2") and features.get("fma"):
        simd_bytes = 32
    else:
        simd_bytes = 16
    return Host(llvm.get_host_cpu_name(), features.flatten(), simd_bytes)


def assembly(ir_text: str) -> str:
    """The machine code of `ir_text` as text, for people to read."""
    with _lock:
        return str(_machine().emit_assembly(_optimized(ir_text)))


# Compiling and linking

_linked: dict[bytes, dict[str, int]] = {}
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A fork waits for the compilation in progress, or LLVM would be half done in the child for ever.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def _load_or_compile(ir_text: str, symbols: Sequence[str], digest: bytes) -> dict[str, int]:
    code = disk_cache.read(digest)
    if code is not None:
        try:
            addresses = _link(code, symbols)
        except RuntimeError:
            pass                             # compiled again below, which says what is wrong
        else:
            stats["kernels_loaded"] += 1
            return addresses
    start = time.perf_counter()
    module = _optimized(ir_text)
    code = _machine().emit_object(module)
    try:
        addresses = _link(code, symbols)
    except RuntimeError as error:
        raise CompileError(f"{_missing(module, symbols) or error}\n{_numbered(ir_text)}") from None
    stats["kernels_compiled"] += 1
    stats["compile_seconds"] += time.perf_counter() - start
    disk_cache.write(digest, code)
    return addresses


def _optimized(ir_text: str) -> llvm.ModuleRef:
    import llvmlite.binding as llvm

    _refuse_fatal(ir_text)
    machine = _machine()
    try:
        module = llvm.parse_assembly(ir_text)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"{error}\n{_numbered(ir_text, str(error))}") from None
    # The code generator removes and hoists what is redundant itself. GVN, loop rotation, O1 and O2 gave the same speed on
    # gelu, a row kernel and matrix products, for 10, 10, 200 and 270 ms more on the largest of them (110 ms as it is).
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.run(module, builder)
    return module


@functools.cache
def _machine() -> llvm.TargetMachine:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    cpu = host()
    return target.create_target_machine(cpu.name, cpu.features, opt=2, reloc="pic", codemodel="small")


@functools.cache
def _linker() -> llvm.LLJIT:
    import atexit

    import llvmlite.binding as llvm

    _machine()
    # Errors come back as exceptions (MCJIT would end the process), and each module has its own names.
    linker = llvm.create_lljit_compiler(use_jit_link=sys.platform != "win32", suppress_errors=True)
    atexit.register(linker.detach)           # never disposed: threads of the pool may still be in its code
    return linker


def _link(code: bytes, symbols: Sequence[str]) -> dict[str, int]:
    import llvmlite.binding as llvm

    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in symbols:
        library.export_symbol(name)
    tracker = library.link(_linker(), f"kernel{next(_numbers)}")
    addresses = {name: tracker[name] for name in symbols}
    tracker.detach()                         # unloads nothing
    return addresses


_numbers: Iterator[int] = iter(range(1 << 62))


# What is wrong with a text

_FEATURE_OF_INTRINSIC = {
    "llvm.x86.tile": "amx-tile", "llvm.x86.ldtilecfg": "amx-tile", "llvm.x86.sttilecfg": "amx-tile",
    "llvm.x86.tdpb": "amx-int8", "llvm.x86.tdpbf16": "amx-bf16", "llvm.x86.tdpfp16": "amx-fp16",
    "llvm.x86.avx512bf16": "avx512bf16", "llvm.x86.avx512fp16": "avx512fp16",
    "llvm.x86.avx512.vpdp": "avx512vnni", "llvm.x86.avx512": "avx512f",
    "llvm.x86.vcvtps2ph": "f16c", "llvm.x86.fma": "fma", "llvm.x86.avx2": "avx2", "llvm.x86.avx": "avx",
    "llvm.x86": "sse2", "llvm.aarch64": "neon",
}
_FATAL = re.compile(r'(?P<asm>\basm\s+(?:sideeffect|alignstack|inteldialect|unwind|"))|(?P<scalable>\bvscale\s+x\b)'
                    r"|(?P<intrinsic>llvm\.(?:x86|aarch64|arm|amdgcn|nvvm|riscv|ppc|s390|wasm)[\w.]*)")


def _refuse_fatal(ir_text: str) -> None:
    """Raise for what would make LLVM's code generator end the process."""
    for match in _FATAL.finditer(ir_text):
        if match["asm"]:
            reason = "inline assembly: LLVM ends the process when it cannot assemble it; use an intrinsic"
        elif match["scalable"]:
            reason = "a scalable vector; use a fixed length"
        else:
            name = match["intrinsic"]
            features = [f for prefix, f in _FEATURE_OF_INTRINSIC.items() if name.startswith(prefix)]
            feature = next((f for f in features[:1] if not host().has(f)), None) if features else "another CPU"
            if feature is None:
                continue
            reason = f"{name}, which needs {feature}; this CPU ({host().name}) has not"
        line = ir_text.count("\n", 0, match.start()) + 1
        raise CompileError(f"line {line} has {reason}.\n{_numbered(ir_text, f':{line}:')}")


def _missing(module: llvm.ModuleRef, symbols: Sequence[str]) -> str:
    """Which symbols could not be linked, as a sentence; empty when none is known."""
    import llvmlite.binding as llvm

    functions = {f.name: f.is_declaration for f in module.functions}
    for name in symbols:
        if functions.get(name, True):
            return f"the module does not define {name!r}; it defines {[n for n, d in functions.items() if not d]}."
    unknown = [n for n, declared in functions.items() if declared and not llvm.address_of_symbol(n)]
    unknown = [n for n in unknown if not n.startswith("llvm.")] or unknown
    return f"called but nowhere defined: {', '.join(unknown)}." if unknown else ""


def _numbered(ir_text: str, error: str = "", around: int = 20) -> str:
    """The text with line numbers; only the lines near the one that `error` names (`:12:`), if it names one."""
    lines = ir_text.splitlines()
    named = re.search(r":(\d+):", error)
    at = int(named[1]) if named else 0
    first, last = (max(at - around, 1), min(at + around, len(lines))) if at else (1, len(lines))
    return "\n".join(f"{'>' if i == at else ' '}{i:4d}  {lines[i - 1]}" for i in range(first, last + 1))


# What an object is kept under


@functools.cache
def _environment() -> bytes:
    """All that an object depends on besides its text."""
    import llvmlite
    import llvmlite.binding as llvm

    return repr((llvmlite.__version__, llvm.llvm_version_info, llvm.get_process_triple(), host(),
                 PIPELINE_VERSION)).encode()


def _digest(ir_text: str) -> bytes:
    digest = hashlib.sha256(_environment())
    digest.update(ir_text.encode())
    return digest.digest()
