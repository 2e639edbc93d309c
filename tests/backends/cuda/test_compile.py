"""Compiling CUDA C++ for chips that need not be there: machine code, errors, and what is kept on disk."""

from __future__ import annotations

import re
import struct
import threading
import time

import pytest

from isthmus.backends import disk_cache
from isthmus.backends.cuda import compile as compiler

SCALE = """extern "C" __global__ void scale(float* x, float a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = a * x[i] + NUMBER.0f;
}
"""
CHIPS = [75, 80, 86, 89, 90, 100, 120]


def text(number: int) -> str:
    return SCALE.replace("NUMBER", str(number))


def chip_of(cubin: bytes) -> int:
    """The chip that an ELF file of NVIDIA's is for: a byte of its flags, the second one in newer files."""
    assert cubin[:4] == b"\x7fELF"
    (flags,) = struct.unpack_from("<I", cubin, 48)
    return flags >> 8 & 255 if cubin[8] >= 8 else flags & 255


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and counters at 0."""
    monkeypatch.setenv("ISTHMUS_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("ISTHMUS_CACHE_LIMIT_MB", raising=False)
    monkeypatch.setattr(compiler, "stats", {"kernels_compiled": 0, "kernels_loaded": 0, "compile_seconds": 0.0})
    return tmp_path / "kernels"


def counts() -> tuple[float, float]:
    return compiler.stats["kernels_compiled"], compiler.stats["kernels_loaded"]


@pytest.mark.parametrize("arch", CHIPS)
def test_cubin_is_for_the_chip(cache, arch):
    (code,) = compiler.compile_sources([text(1)], arch)
    assert chip_of(code) == arch
    assert b"scale" in code


def test_a_chip_that_nvrtc_13_dropped_is_compiled_for_by_nvrtc_12(cache):
    assert compiler.nvrtc(75).version[0] == 13
    assert compiler.nvrtc(70).version[0] == 12
    (code,) = compiler.compile_sources([text(1)], 70)
    assert chip_of(code) == 70


def test_a_chip_newer_than_nvrtc_gets_ptx_of_the_newest_one_it_knows(cache):
    newest = compiler.nvrtc(999).archs[-1]
    for _ in range(2):                       # compiled, then loaded
        (code,) = compiler.compile_sources([text(1)], 999)
        assert f".target sm_{newest}".encode() in code
        assert code.endswith(b"\0")
    assert counts() == (1, 1)


def test_products_and_sums_are_not_contracted():
    ptx = compiler.nvrtc(999).compile(text(1), 999)
    assert b"mul.rn.f32" in ptx and b"add.rn.f32" in ptx and b"fma" not in ptx


def test_what_was_compiled_is_loaded(cache):
    first = compiler.compile_sources([text(1), text(2)], 90)
    assert counts() == (2, 0)
    seconds = compiler.stats["compile_seconds"]
    assert seconds > 0
    assert compiler.compile_sources([text(2), text(1)], 90) == first[::-1]
    assert counts() == (2, 2)
    assert compiler.stats["compile_seconds"] == seconds
    assert disk_cache.cache_info().files == 2


def test_only_what_is_missing_is_compiled(cache):
    compiler.compile_sources([text(1)], 90)
    codes = compiler.compile_sources([text(n) for n in range(4)], 90)
    assert counts() == (4, 1)
    assert len(set(codes)) == 4


def test_a_text_that_comes_twice_is_compiled_once(cache):
    first, second = compiler.compile_sources([text(1), text(1)], 90)
    assert first == second
    assert counts() == (1, 0)


def test_nothing_to_compile(cache):
    assert compiler.compile_sources([], 90) == []


def test_chip_options_and_version_make_other_code(cache, monkeypatch):
    compiler.compile_sources([text(1)], 90)
    compiler.compile_sources([text(1)], 80)
    compiler.compile_sources([text(1)], 90, ("--ftz=true",))
    assert counts() == (3, 0)
    monkeypatch.setattr(compiler.nvrtc(90), "version", (13, 99))
    compiler.compile_sources([text(1)], 90)
    assert counts() == (4, 0)


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d[:100] + bytes([d[100] ^ 1]) + d[101:], lambda d: b""])
def test_a_damaged_file_is_made_again(cache, damage):
    code = compiler.compile_sources([text(1)], 90)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert compiler.compile_sources([text(1)], 90) == code
    assert counts() == (2, 0)
    assert file.read_bytes() == whole


def test_a_file_is_there_whole_or_not_at_all(cache):
    """A reader beside writers of one digest never meets a part of a file."""
    digest, code = b"d" * 32, bytes(range(256)) * 4000
    disk_cache.write(digest, code)
    until = time.monotonic() + 0.5
    read: list[bytes | None] = []

    def write() -> None:
        while time.monotonic() < until:
            disk_cache.write(digest, code)

    def watch() -> None:
        while time.monotonic() < until:
            read.append(disk_cache.read(digest))

    threads = [threading.Thread(target=f) for f in (write, write, watch)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read) == {code}
    assert [file.name for file in cache.iterdir()] == [digest.hex()]


def test_without_a_cache_kernels_compile(cache, monkeypatch):
    monkeypatch.setenv("ISTHMUS_CACHE_LIMIT_MB", "0")
    for _ in range(2):
        assert chip_of(compiler.compile_sources([text(1)], 90)[0]) == 90
    assert counts() == (2, 0)
    assert not cache.exists()


def test_a_broken_text_is_shown_with_numbers(cache):
    broken = text(1).replace("a * x[i]", "nowhere * x[i]")
    with pytest.raises(compiler.CompileError) as caught:
        compiler.compile_sources([broken], 90)
    assert 'identifier "nowhere" is undefined' in str(caught.value)
    assert re.search(r"^>    3      if \(i < n\) x\[i\] = nowhere", str(caught.value), re.MULTILINE)
    assert re.search(r'^     1  extern "C"', str(caught.value), re.MULTILINE)


def test_of_a_long_text_the_lines_around_errors_are_shown(cache):
    lines = [f"__device__ int f{n}() {{ return {n}; }}" for n in range(1, 501)]
    lines[99] = "int a = oops;"
    lines[399] = "int b = oops;"
    with pytest.raises(compiler.CompileError) as caught:
        compiler.compile_sources(["\n".join(lines)], 90)
    shown = [int(n) for n in re.findall(r"^[> ] *(\d+)  ", str(caught.value), re.MULTILINE)]
    assert shown == [*range(90, 111), *range(390, 411)]
    assert ">  100  int a = oops;\n" in str(caught.value)


def test_what_ptxas_refuses_is_an_error(cache):
    large = 'extern "C" __global__ void f(int* x) { __shared__ int s[1 << 20]; s[threadIdx.x] = *x; __syncthreads(); *x = s[*x]; }'
    with pytest.raises(compiler.CompileError, match="too much shared data"):
        compiler.compile_sources([large], 90)


def test_an_unknown_option_is_an_error(cache):
    with pytest.raises(compiler.CompileError, match="--nonsense"):
        compiler.compile_sources([text(1)], 90, ("--nonsense",))


def test_what_compiled_beside_a_broken_text_is_kept(cache):
    with pytest.raises(compiler.CompileError):
        compiler.compile_sources([text(1), "broken", text(2)], 90)
    assert counts() == (2, 0)
    compiler.compile_sources([text(1), text(2)], 90)
    assert counts() == (2, 2)


def test_a_chip_older_than_any_nvrtc_is_refused():
    with pytest.raises(RuntimeError, match=r"as old as sm_20.*isthmus\[cuda12\]"):
        compiler.nvrtc(20)


def test_without_nvrtc_the_package_to_install_is_named(monkeypatch):
    monkeypatch.setattr(compiler, "libraries", lambda: ["libnvrtc.so.0"])
    compiler.nvrtc.cache_clear()
    with pytest.raises(RuntimeError, match=r"pip install isthmus\[cuda13\]"):
        compiler.nvrtc(90)
    compiler.nvrtc.cache_clear()
