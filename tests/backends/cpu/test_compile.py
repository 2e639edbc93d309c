"""Compiling IR text: addresses, errors, and the object cache."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from isthmus.backends import disk_cache
from isthmus.backends.cpu import compile as compiler

ADD = """define i64 @add(i64 %a, i64 %b) ATTRIBUTES {
  %c = add i64 %a, %b
  %d = add i64 %c, NUMBER
  ret i64 %d
}
"""


def add_text(number: int) -> str:
    return ADD.replace("NUMBER", str(number)).replace("ATTRIBUTES", compiler.FUNCTION_ATTRIBUTES)


def call_add(text: str) -> int:
    address = compiler.compile_module(text, ["add"])["add"]
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)(2, 3)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a process that has linked nothing yet."""
    monkeypatch.setenv("ISTHMUS_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("ISTHMUS_CACHE_LIMIT_MB", raising=False)
    forget(monkeypatch)
    return tmp_path / "kernels"


def forget(monkeypatch) -> None:
    monkeypatch.setattr(compiler, "_linked", {})
    monkeypatch.setattr(compiler, "stats", {"kernels_compiled": 0, "kernels_loaded": 0, "compile_seconds": 0.0})


def counts() -> tuple[float, float]:
    return compiler.stats["kernels_compiled"], compiler.stats["kernels_loaded"]


def test_compiled_function_computes(cache):
    assert call_add(add_text(10)) == 15
    assert counts() == (1, 0)
    assert compiler.stats["compile_seconds"] > 0


def test_same_text_is_linked_once(cache):
    assert compiler.compile_module(add_text(1), ["add"]) == compiler.compile_module(add_text(1), ["add"])
    assert counts() == (1, 0)


def test_modules_may_use_the_same_names(cache):
    assert [call_add(add_text(n)) for n in (1, 2, 3)] == [6, 7, 8]


def test_another_process_loads_what_one_compiled(cache, monkeypatch):
    call_add(add_text(7))
    forget(monkeypatch)
    assert call_add(add_text(7)) == 12
    assert counts() == (0, 1)


def test_functions_of_the_process_are_found_by_name(cache, monkeypatch):
    text = "declare i64 @labs(i64)\ndefine i64 @f(i64 %a) {\n  %b = call i64 @labs(i64 %a)\n  ret i64 %b\n}\n"
    for _ in range(2):                       # compiled, then loaded
        address = compiler.compile_module(text, ["f"])["f"]
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(-4) == 4
        forget(monkeypatch)


def test_vectors_keep_their_width(cache):
    width = compiler.host().simd_bytes // 4
    vector = f"<{width} x float>"
    text = (f"define void @f(ptr %p) {compiler.FUNCTION_ATTRIBUTES} {{\n  %x = load {vector}, ptr %p, align 4\n"
            f"  %y = fadd {vector} %x, %x\n  store {vector} %y, ptr %p, align 4\n  ret void\n}}\n")
    register = {64: "zmm", 32: "ymm"}.get(compiler.host().simd_bytes)
    if register:
        assert register in compiler.assembly(text)


def test_products_and_sums_are_not_contracted(cache):
    text = ("define float @f(float %a, float %b, float %c) {\n  %x = fmul float %a, %b\n  %y = fadd float %x, %c\n"
            "  ret float %y\n}\n")
    assert not re.search(r"fm(add|la)", compiler.assembly(text))


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d[:40] + bytes([d[40] ^ 1]) + d[41:],
                                    lambda d: b"", lambda d: b"not an object"])
def test_damaged_object_is_made_again(cache, monkeypatch, damage):
    call_add(add_text(7))
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    forget(monkeypatch)
    assert call_add(add_text(7)) == 12
    assert counts() == (1, 0)
    assert file.read_bytes() == whole


def test_cache_info_and_clear(cache):
    assert disk_cache.cache_info() == (str(cache), 0, 0)
    call_add(add_text(1))
    call_add(add_text(2))
    path, files, size = disk_cache.cache_info()
    assert (path, files) == (str(cache), 2) and size > 500
    disk_cache.clear_cache()
    assert disk_cache.cache_info() == (str(cache), 0, 0)
    assert call_add(add_text(1)) == 6


def test_longest_unused_objects_leave_first(cache, monkeypatch):
    for n in range(8):
        call_add(add_text(n))
    files = sorted(cache.iterdir())
    for age, file in enumerate(files):
        os.utime(file, (1000 - age, 1000 - age))
    size = files[0].stat().st_size
    disk_cache._shrink(str(cache), 8 * size + 100)
    assert sorted(cache.iterdir()) == files                       # within the limit: nothing leaves
    disk_cache._shrink(str(cache), 4 * size)
    assert sorted(cache.iterdir()) == files[:3]                   # three quarters of it are left


def test_objects_loaded_count_as_used(cache, monkeypatch):
    call_add(add_text(1))
    (file,) = cache.iterdir()
    os.utime(file, (1, 1))
    forget(monkeypatch)
    call_add(add_text(1))
    assert file.stat().st_mtime > 1


def test_limit_of_zero_keeps_nothing(cache, monkeypatch):
    monkeypatch.setenv("ISTHMUS_CACHE_LIMIT_MB", "0")
    assert call_add(add_text(1)) == 6
    assert not cache.exists()
    assert disk_cache.cache_info() == (None, 0, 0)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="modes of files")
def test_directory_that_others_may_write_is_not_used(cache, monkeypatch, tmp_path):
    monkeypatch.setattr(disk_cache.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    cache.mkdir()
    cache.chmod(0o777)
    assert call_add(add_text(1)) == 6
    assert not list(cache.iterdir())
    assert disk_cache.cache_info().path == str(tmp_path / "tmp" / f"isthmus-{os.getuid()}")


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners of files")
def test_directory_of_another_user_is_not_used(cache, monkeypatch, tmp_path):
    cache.mkdir(mode=0o700)
    monkeypatch.setattr(disk_cache.tempfile, "gettempdir", lambda: str(cache.parent))
    monkeypatch.setattr(disk_cache.os, "getuid", lambda: 12345)
    assert disk_cache.cache_info().path is None
    assert call_add(add_text(1)) == 6
    assert not list(cache.iterdir())


def test_no_directory_at_all_is_no_error(cache, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ISTHMUS_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(disk_cache.tempfile, "gettempdir", lambda: str(tmp_path / "file"))
    assert call_add(add_text(1)) == 6
    assert disk_cache.cache_info() == (None, 0, 0)
    disk_cache.clear_cache()


def test_threads_compile_at_once(cache):
    results: list[int] = []
    threads = [threading.Thread(target=lambda n=n: results.append(call_add(add_text(n % 4)))) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(5 + n % 4 for n in range(16))
    assert counts() == (4, 0)


def _compile_many(start: int) -> list[int]:
    compiler._linked.clear()
    return [call_add(add_text((start + n) % 6)) for n in range(6)]


def test_processes_share_the_cache(cache):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        results = pool.map(_compile_many, [0, 0, 3])
    assert [sorted(r) for r in results] == [[5, 6, 7, 8, 9, 10]] * 3
    assert not [f for f in cache.iterdir() if f.suffix == ".tmp"]
    assert disk_cache.cache_info().files == 6


@pytest.mark.parametrize(("text", "words"), [
    ("define i64 @f( {\n", ["expected type", "   1  define i64 @f( {"]),
    ("define i64 @f(i64 %x) {\n  %y = add i32 %x, 1\n  ret i64 %y\n}\n", ["'%x' defined with type 'i64'", ">   2"]),
    ("define i64 @f(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %y = add i64 1, 1\n  br label %b\nb:\n"
     "  ret i64 %y\n}\n", ["does not dominate"]),
    ("declare i64 @f(i64)\n", ["does not define 'f'"]),
    ("define i64 @g() {\n  ret i64 0\n}\n", ["does not define 'f'", "'g'"]),
    ("declare float @nowhere(float)\ndefine float @f(float %x) {\n  %y = call float @nowhere(float %x)\n"
     "  ret float %y\n}\n", ["nowhere defined: nowhere"]),
    ("declare float @llvm.nonsense.f32(float)\ndefine float @f(float %x) {\n"
     "  %y = call float @llvm.nonsense.f32(float %x)\n  ret float %y\n}\n", ["llvm.nonsense.f32"]),
    ('define i64 @f(i64 %x) {\n  %y = call i64 asm "nonsense $0, $1", "=r,r"(i64 %x)\n  ret i64 %y\n}\n',
     ["line 2", "inline assembly"]),
    ("define <vscale x 4 x float> @f(<vscale x 4 x float> %x) {\n  ret <vscale x 4 x float> %x\n}\n", ["scalable"]),
    ("declare void @llvm.nvvm.barrier0()\ndefine void @f() {\n  call void @llvm.nvvm.barrier0()\n  ret void\n}\n",
     ["llvm.nvvm.barrier0", "another CPU"]),
    ("", ["does not define 'f'"]),
    ("define i64 @f() {\n  ret i64 0 \0\n}\n", ["end of file"]),
])
def test_malformed_text_raises(cache, text, words):
    with pytest.raises(compiler.CompileError) as caught:
        compiler.compile_module(text, ["f"])
    for word in words:
        assert word in str(caught.value)


def test_long_source_is_shown_near_the_error(cache):
    lines = [f"  %x{n} = add i64 {n}, 1" for n in range(500)]
    text = "\n".join(["define i64 @f() {", *lines, "  oops", "}"])
    with pytest.raises(compiler.CompileError) as caught:
        compiler.compile_module(text, ["f"])
    assert "> 502    oops" in str(caught.value)
    assert "%x3 " not in str(caught.value)


def test_intrinsics_of_a_missing_feature_are_refused(cache, monkeypatch):
    monkeypatch.setattr(compiler, "host", lambda: compiler.Host("some", "+sse2,-amx-tile", 16))
    monkeypatch.setattr(compiler, "_environment", lambda: b"test")
    text = ("declare void @llvm.x86.tilezero(i8)\ndefine void @f() {\n  call void @llvm.x86.tilezero(i8 0)\n"
            "  ret void\n}\n")
    with pytest.raises(compiler.CompileError, match="amx-tile"):
        compiler.compile_module(text, ["f"])


def test_importing_does_not_import_llvmlite():
    root = Path(compiler.__file__).parents[3]
    code = ("import sys, importlib\nimport isthmus.backends.cpu.compile\nimport isthmus.backends.cpu.stream\n"
            "print('llvmlite' in sys.modules)")
    environ = {**os.environ, "PYTHONPATH": str(root)}
    result = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
