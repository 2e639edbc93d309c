"""The host memory pool."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from isthmus.backends.cpu import memory

SIZES = [0, 1, 63, 64, 65, 4095, 4096, 4097, 5000, 65536, 100_001, (1 << 20) - 1, 1 << 20, (2 << 20) + 1, 9_000_000]


@pytest.fixture(autouse=True)
def pool():
    """An empty pool with generous limits; what was set before comes back."""
    gc.collect()
    limits = memory.set_cache_limit(1 << 30), memory.set_memory_limit(1 << 40)
    memory.clear_cache()
    yield
    memory.set_cache_limit(limits[0])
    memory.set_memory_limit(limits[1])


@pytest.mark.parametrize("nbytes", SIZES)
def test_blocks_are_aligned_large_enough_and_writable(nbytes):
    buffer = memory.allocate(nbytes)
    assert buffer.nbytes == nbytes
    assert buffer.ptr % 64 == 0 and buffer.ptr > 0
    assert nbytes <= buffer.block_bytes <= max(64, nbytes + 63 if nbytes <= 4096 else nbytes * 9 // 8)
    ctypes.memset(buffer.ptr, 0xAB, buffer.block_bytes)


@pytest.mark.parametrize("nbytes", SIZES)
def test_size_is_its_own_class(nbytes):
    size = memory.block_size(nbytes)
    assert size % 64 == 0 and memory.block_size(size) == size


def test_live_blocks_do_not_overlap():
    buffers = sorted((memory.allocate(n) for n in SIZES * 4), key=lambda b: b.ptr)
    for left, right in itertools.pairwise(buffers):
        assert left.ptr + left.block_bytes <= right.ptr


def test_freed_block_is_handed_out_again():
    buffer = memory.allocate(1000)
    ptr = buffer.ptr
    del buffer
    assert memory.cache_bytes() == 1024
    assert memory.allocate(1024).ptr == ptr


def test_counts_follow_blocks():
    start = memory.active_bytes()
    memory.reset_peak()
    first = memory.allocate(1000)
    second = memory.allocate(4096)
    assert memory.active_bytes() - start == 1024 + 4096
    assert memory.cache_bytes() == 0
    del first
    assert memory.active_bytes() - start == 4096
    assert memory.cache_bytes() == 1024
    assert memory.peak_bytes() - start == 1024 + 4096
    memory.reset_peak()
    assert memory.peak_bytes() == 0
    del second
    memory.clear_cache()
    assert (memory.active_bytes(), memory.cache_bytes()) == (start, 0)


def test_cache_stays_within_its_limit():
    assert memory.set_cache_limit(10_000) == 1 << 30
    buffers = [memory.allocate(n) for n in (64, 4096, 4096, 4096, 65536, 2 << 20)]
    while buffers:
        buffers.pop()
        assert memory.cache_bytes() <= 10_000
    assert memory.set_cache_limit(0) == 10_000
    assert memory.cache_bytes() == 0
    buffer = memory.allocate(4096)
    del buffer
    assert memory.cache_bytes() == 0


def test_cache_makes_room_before_the_memory_limit_is_passed():
    buffer = memory.allocate(2 << 20)
    del buffer
    memory.set_memory_limit(memory.active_bytes() + (2 << 20))
    kept = memory.allocate(1 << 20)
    assert kept.nbytes == 1 << 20
    assert memory.active_bytes() + memory.cache_bytes() <= memory.get_memory_limit()


def test_memory_limit_is_honoured():
    assert memory.set_memory_limit(memory.active_bytes() + 8192) == 1 << 40
    kept = memory.allocate(8000)
    with pytest.raises(MemoryError, match=r"no room for 100 bytes: \d+ are in use, and the memory limit is \d+"):
        memory.allocate(100)
    del kept
    memory.allocate(100)


def test_what_the_system_has_not_raises(monkeypatch):
    memory.set_memory_limit(1 << 62)
    start = memory.active_bytes()
    with pytest.raises(MemoryError, match="the system has no"):
        memory.allocate(1 << 60)
    assert memory.active_bytes() == start
    memory.allocate(100)


def test_negative_size_raises():
    with pytest.raises(ValueError, match="nbytes is -1"):
        memory.allocate(-1)


def test_view_reads_and_writes_the_block():
    buffer = memory.allocate(400)
    array = np.frombuffer(memory.buffer_view(buffer, 0, 400), np.float32)
    array[:] = np.arange(100)
    part = np.frombuffer(memory.buffer_view(buffer, 40, 8), np.float32)
    assert part.tolist() == [10.0, 11.0]
    assert array.ctypes.data == buffer.ptr and array.flags.writeable


def test_view_keeps_the_block():
    start = memory.active_bytes()
    array = np.frombuffer(memory.buffer_view(memory.allocate(64), 0, 64), np.int8)
    assert memory.active_bytes() - start == 64
    del array
    assert memory.active_bytes() == start


def test_empty_view():
    assert memory.buffer_view(memory.allocate(0), 0, 0).nbytes == 0


def test_borrowed_memory_keeps_its_owner_and_is_counted_nowhere():
    start = memory.active_bytes(), memory.cache_bytes()
    array = np.arange(10, dtype=np.int32)
    references = sys.getrefcount(array)
    buffer = memory.borrow(array.ctypes.data, array.nbytes, array)
    assert sys.getrefcount(array) == references + 1
    assert np.frombuffer(memory.buffer_view(buffer, 4, 8), np.int32).tolist() == [1, 2]
    del buffer
    assert (memory.active_bytes(), memory.cache_bytes()) == start


def test_threads_allocate_at_once():
    start = memory.active_bytes()
    wrong: list[str] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        held: list[tuple[memory.Buffer, int]] = []
        for step in range(3000):
            buffer = memory.allocate(int(random.integers(8, 3000)))
            mark = seed * 10_000 + step
            ctypes.c_int64.from_address(buffer.ptr).value = mark
            held.append((buffer, mark))
            if len(held) > 20:
                old, mark = held.pop(int(random.integers(20)))
                if ctypes.c_int64.from_address(old.ptr).value != mark:
                    wrong.append(f"{old} of thread {seed}")
                del old, buffer

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    assert memory.active_bytes() == start


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_of_a_fork_goes_on():
    buffer = memory.allocate(100)
    ctypes.memset(buffer.ptr, 7, 100)
    child = os.fork()
    if not child:
        ok = memory.allocate(5000).ptr and ctypes.c_uint8.from_address(buffer.ptr).value == 7
        del buffer
        memory.clear_cache()
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ctypes.c_uint8.from_address(buffer.ptr).value == 7


def test_buffers_that_outlive_the_interpreter_are_silent():
    root = Path(memory.__file__).parents[3]
    code = ("import builtins\nfrom isthmus.backends.cpu import memory\nbuiltins.kept = memory.allocate(100)\n"
            "cycle = [memory.allocate(2 << 20)]; cycle.append(cycle)\nmemory.set_cache_limit(0)")
    environ = {**os.environ, "PYTHONPATH": str(root)}
    result = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert result.stderr == ""
