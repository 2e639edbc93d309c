"""What the GPU's runtime promises, on GPUs that are not there: where copies are, replay, memory running out, faults, forks, threads."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isthmus
import isthmus.core as mx
from isthmus.backends.cuda import device
from isthmus.backends.cuda import functions as kernel_functions
from isthmus.backends.cuda.compile import CompileError
from isthmus.backends.cuda.driver import DriverError
from isthmus.backends.cuda.library.calls import Call
from isthmus.backends.cuda.simulate import POISON
from isthmus.ops.elementwise import EXP
from isthmus.schedule.run import plans

MB = 1 << 20


def buffer_of(x: mx.array) -> Any:
    mx.eval(x)
    return x._node.buffer


def places(x: mx.array) -> tuple[bool, bool]:
    """Whether there is a current copy on the host, and on a GPU."""
    buffer = buffer_of(x)
    return bool(buffer.ptr), bool(buffer.gpu)


def here() -> str:
    """The line that calls this, as errors name it."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno}"


def plan_of(place: int = 1) -> Any:
    """The plan that has replayed most."""
    return max((plan for plan in plans() if plan.place == place and plan.on_device), key=lambda plan: plan.on_device.written)


# -- where copies are


def test_results_are_on_the_gpu_until_the_host_asks(simulated):
    x = mx.ones((1000,)) * 3
    assert places(x) == (False, True)
    assert x.tolist() == [3.0] * 1000
    assert places(x) == (True, True)


def test_what_came_from_the_host_is_copied_once(simulated):
    x = mx.array(np.arange(10, dtype=np.float32))
    assert (x + 1).tolist() == list(range(1, 11))
    there = buffer_of(x).gpu
    assert there
    assert (x * 2).tolist() == list(range(0, 20, 2))
    assert buffer_of(x).gpu == there


def test_what_one_place_writes_is_let_go_of_at_the_other(simulated):
    x = mx.array([1.0, 2.0])
    mx.eval(x * 1)
    assert places(x + 0) == (False, True)
    x += 1
    mx.eval(x)
    assert places(x) == (False, True)
    assert x.tolist() == [2.0, 3.0]
    x = mx.add(x, 1, stream=mx.cpu)
    mx.eval(x)
    assert places(x) == (True, False)
    assert x.tolist() == [3.0, 4.0]
    x = x * 2
    assert x.tolist() == [6.0, 8.0]


def test_a_view_of_the_host_may_be_written_at_any_time(simulated):
    x = mx.arange(4).astype(mx.float32)
    view = np.array(x, copy=False)
    for k in range(4):
        view[1] = 10 * k
        assert (x + 1).tolist() == [1.0, 10 * k + 1, 3.0, 4.0]
        assert places(x) == (True, False)
    y = x * 1
    mx.eval(y)
    view[1] = -1
    assert y.tolist() == [0.0, 30.0, 2.0, 3.0]
    del view
    gc.collect()
    x = x + 1
    assert x.tolist() == [1.0, 0.0, 3.0, 4.0]


def test_a_view_keeps_its_values_where_the_gpu_goes_on(simulated):
    x = mx.ones((8,)) * 2
    mx.eval(x)
    view = np.array(x, copy=False)
    x = x + 1
    mx.eval(x)
    assert view.tolist() == [2.0] * 8 and x.tolist() == [3.0] * 8


def test_a_number_does_not_drag_its_array(simulated):
    x = mx.arange(100_000) * 2
    assert x[31].item() == 62
    assert int(x.max()) == 199_998
    assert places(x) == (False, True)


def test_views_share_what_is_on_the_gpu(simulated):
    x = mx.arange(6) + 0
    y = x.reshape(2, 3).T
    mx.eval(x, y)
    assert y.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert (y * 2).tolist() == [[0, 6], [2, 8], [4, 10]]


def test_a_missing_copy_shows(simulated, monkeypatch):
    """The simulated memory is poisoned: what was never written is not by chance what was wanted."""
    pool = simulated[0].memory
    buffer = pool.allocate(100)
    assert (simulated[0].driver.memory.view(buffer.gpu, 100) == POISON).all()
    x = mx.array(np.zeros(5000, np.uint8))
    monkeypatch.setattr(pool, "bring", pool.give)
    assert set((x + 0).tolist()) == {POISON}


def test_work_is_done_late(simulated):
    x = mx.ones((4,)) + 1
    mx.async_eval(x)
    assert (simulated[0].driver.memory.view(x._node.buffer.gpu, 16) == POISON).all()
    assert x.tolist() == [2.0] * 4


# -- in place


def test_a_step_writes_over_what_dies_with_it(simulated):
    x = mx.zeros((64,)) + 1
    mx.eval(x)
    address = buffer_of(x).gpu
    for _ in range(5):
        x = x * 2
        mx.eval(x)
        assert buffer_of(x).gpu == address
    kept = x
    x = x + 1
    mx.eval(x)
    assert buffer_of(x).gpu != address
    assert kept.tolist() == [32.0] * 64 and x.tolist() == [33.0] * 64


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + x.T,
        lambda x: x[::-1] + x,
        lambda x: mx.concatenate([x[1:], x[:1]]),
        lambda x: mx.softmax(x, axis=0) * x,
        lambda x: x - x.mean(axis=1, keepdims=True),
        lambda x: mx.take(x, mx.array([1, 0, 3, 2]), axis=0) + x,
        lambda x: x @ x,
    ],
)
def test_in_place_only_where_each_place_reads_itself(simulated, f):
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    want = np.array(f(mx.array(a)))
    for _ in range(4):
        x = mx.array(a) + 0
        mx.eval(x)
        x = f(x)
        mx.eval(x)
        np.testing.assert_array_equal(np.array(x), want)


def test_a_cache_stays_where_it_is(simulated):
    cache = mx.zeros((1, 2, 64, 4)) + 0
    mx.eval(cache)
    address = buffer_of(cache).gpu
    for t in range(20):
        cache[:, :, t : t + 1] = mx.full((1, 2, 1, 4), float(t))
        scores = mx.ones((1, 2, 1, 4)) @ cache[:, :, : t + 1].swapaxes(-1, -2)
        mx.eval(scores, cache)
        np.testing.assert_array_equal(np.array(scores)[0, 0, 0], 4.0 * np.arange(t + 1))
    assert buffer_of(cache).gpu == address


# -- replay


def step(x: mx.array, w: mx.array, rate: float) -> mx.array:
    return mx.softmax((x @ w) * rate, axis=-1).sum(axis=0)


def by_numpy(x: np.ndarray, w: np.ndarray, rate: float) -> np.ndarray:
    y = np.exp(x @ w * rate)
    return (y / y.sum(-1, keepdims=True)).sum(0)


def test_what_comes_a_third_time_is_replayed(simulated):
    gpu, rng = simulated[0], np.random.default_rng(0)
    w = rng.standard_normal((4, 4), np.float32)
    weight, kept = mx.array(w), []
    for k in range(12):  # other values, numbers, sizes and addresses
        x = rng.standard_normal((30 + k, 4), np.float32)
        kept.append((step(mx.array(x), weight, 0.1 * k), by_numpy(x, w, 0.1 * k)))
        mx.eval(kept[-1][0])
        if k < 2:
            assert gpu.counters["graphs"] == 0
    for found, want in kept:
        np.testing.assert_allclose(np.array(found), want, rtol=1e-5)
    assert 1 <= gpu.counters["graphs"] <= 2  # the grid grows once at most
    assert gpu.counters["graph_launches"] >= 6
    assert gpu.driver.graphs_run == gpu.counters["graph_launches"]


def test_a_plan_has_at_most_eight_graphs(simulated, monkeypatch):
    gpu, freed = simulated[0], []
    monkeypatch.setattr(gpu.driver, "free_graph", freed.append)
    w = mx.ones((4, 4))
    sizes = [40 << k for k in range(11)]
    for size in [*sizes, sizes[0]]:
        for _ in range(4):
            x = mx.ones((size, 4))
            y = step(x, w, 0.5)
            mx.eval(y)
            np.testing.assert_allclose(np.array(y), np.full(4, size / 4), rtol=1e-5)
    state = plan_of().on_device
    assert len(state.graphs) == sum(len(sequence.graphs) for sequence in state.sequences.values()) == device.MOST_GRAPHS
    assert gpu.counters["graphs"] == len(state.graphs) + len(freed) > device.MOST_GRAPHS


def test_replay_runs_ahead_of_the_gpu(simulated):
    """More steps are enqueued than a plan's ring has places for."""
    total, w = mx.zeros((4,)), mx.ones((4, 4))
    for k in range(5 * device.PLACES):
        total = total + step(mx.full((8, 4), float(k)), w, 0.5) * k
        mx.async_eval(total)
    n = 5 * device.PLACES
    np.testing.assert_allclose(np.array(total), np.full(4, 2.0 * n * (n - 1) / 2), rtol=1e-5)
    assert simulated[0].counters["graph_launches"] > 2 * device.PLACES


def test_growing_sizes_replay(simulated):
    w = mx.ones((4, 4))
    mx.eval(w)
    for n in range(1, 200):
        x = mx.full((n, 4), float(n))
        y = step(x, w, 1.0)
        mx.eval(y)
        np.testing.assert_allclose(np.array(y), np.full(4, n / 4), rtol=1e-5)
        if n == 8:
            start = isthmus.stats()["plans"], simulated[0].counters["kernels_loaded"]
    assert isthmus.stats()["plans"] - start[0] <= 1
    assert simulated[0].counters["kernels_loaded"] - start[1] <= 6  # longer sums are other variants
    assert simulated[0].counters["graph_launches"] > 120


def test_operands_of_library_calls_are_part_of_what_is_replayed(simulated, monkeypatch):
    """A graph holds the addresses of a library call, so it serves those operands alone."""
    gpu = simulated[0]
    gpu._library = True

    def run(self: Call, at: Any, addresses: tuple[int, ...], alpha: float, beta: float, arguments: Any) -> None:
        spec, memory = self.spec, at.driver.memory

        def work() -> None:
            a, b = (memory.view(address, 4 * r * c).view(np.float32).reshape(r, c) for address, r, c in ((addresses[1], spec.m, spec.k), (addresses[2], spec.k, spec.n)))
            memory.view(addresses[0], 4 * spec.m * spec.n).view(np.float32)[:] = (a @ b).ravel()

        at.driver.put(work)

    monkeypatch.setattr(Call, "run", run)
    rng = np.random.default_rng(0)
    some = [rng.standard_normal((128, 128), np.float32) for _ in range(3)]
    leaves = [mx.array(a) for a in some]
    results = []
    for k in range(24):
        x, w = k % 3, k // 3 % 3
        results.append((mx.exp((leaves[x] @ leaves[w]) * 0.01), np.exp(some[x] @ some[w] * 0.01)))
        mx.eval(results[-1][0])
    for found, want in results:
        np.testing.assert_allclose(np.array(found), want, rtol=1e-4)
    x = leaves[0]
    for _ in range(8):  # the result of a step dies, and the next one finds its memory
        y = mx.exp((x @ leaves[1]) * 0.01)
        mx.eval(y)
        np.testing.assert_allclose(np.array(y), np.exp(some[0] @ some[1] * 0.01), rtol=1e-4)
        del y
    assert gpu.counters["graph_launches"] >= 1


# -- several places in one program


def test_cpu_and_gpu_in_one_program(simulated):
    a = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    x = mx.array(a)
    for k in range(5):
        y = mx.exp(x, stream=mx.gpu)
        z = mx.multiply(y, k, stream=mx.cpu)
        u = mx.add(z.T, 1, stream=mx.gpu)
        v = mx.subtract(u.sum(axis=0, stream=mx.cpu), y[:, 0], stream=mx.gpu)
        mx.eval(v, z)
        np.testing.assert_allclose(np.array(z), np.exp(a) * k, rtol=1e-5)
        np.testing.assert_allclose(np.array(v), (np.exp(a) * k).T.sum(0) + 6 - np.exp(a[:, 0]), rtol=1e-4)


def test_places_take_turns_in_place(simulated):
    x = mx.zeros((100,))
    for k in range(20):
        x = mx.add(x, 1, stream=mx.cpu if k % 3 else mx.gpu)
        mx.eval(x)
        assert places(x) == ((True, False) if k % 3 else (False, True))
    assert x.tolist() == [20.0] * 100


def test_arrays_go_from_gpu_to_gpu(simulated):
    second = mx.Device(mx.gpu, 1)
    x = mx.arange(10) * 2
    mx.eval(x)
    y = mx.add(x, 1, stream=second)
    assert y.tolist() == [2 * k + 1 for k in range(10)]
    assert buffer_of(y).place is simulated[1].memory
    z = x + y  # both come back
    assert z.tolist() == [4 * k + 1 for k in range(10)]
    with mx.stream(second):
        total = (x * y).sum()
        u = mx.random.normal((100,), key=mx.random.key(1))
        assert total.item() == sum(2 * k * (2 * k + 1) for k in range(10))
        assert mx.default_device() == second
    assert np.array_equal(np.array(u), np.array(mx.random.normal((100,), key=mx.random.key(1))))
    del u, total, z
    x = mx.add(x, 1, stream=second)
    assert x.tolist() == [2 * k + 1 for k in range(10)]
    assert buffer_of(x).place is simulated[1].memory


def test_a_gpu_that_is_not_there_is_refused(simulated):
    with pytest.raises(ValueError, match="Device\\(gpu, 2\\) is not there"):
        mx.add(mx.ones((2,)), 1, stream=mx.Device(mx.gpu, 2))


def test_an_op_without_a_gpu_form_runs_on_the_host_and_comes_back(simulated, monkeypatch, capfd):
    monkeypatch.setattr(EXP, "host_only", True)
    monkeypatch.setenv("ISTHMUS_SHOW", "fuse")
    stream = mx.new_stream(mx.gpu)  # whose signatures are made now
    with mx.stream(stream):
        x = mx.arange(5).astype(mx.float32)
        y = mx.exp(x * 2) + 1
        z = mx.exp(x)
        mx.eval(y, z)
        assert places(z) == (True, False)
        assert places(y) == (False, True)
    np.testing.assert_allclose(np.array(y), np.exp(2.0 * np.arange(5)) + 1, rtol=1e-5)
    assert "on the host, as the GPU has no form of it: exp" in capfd.readouterr().err


# -- indices


def test_indices_out_of_range_stay_inside(simulated):
    x = mx.arange(5) + 0
    far = mx.array([0, 4, 1_000_000, -1_000_000, 2**31 - 1]) * 1
    mx.eval(x, far)
    assert set(mx.take(x, far).tolist()) <= set(range(5))
    assert mx.take(x, far).tolist()[:3] == [0, 4, 4]
    y = x.at[far].add(1)
    assert set(y.tolist()) <= set(range(11)) and len(y.tolist()) == 5
    assert set(mx.take_along_axis(x, far, axis=0).tolist()) <= set(range(5))
    assert places(far) == (False, True)  # to make an op is no reason to wait for its indices
    with isthmus.checked(), pytest.raises(IndexError, match=r"index \d+ is out of range for axis 0 of size 5.*test_simulated\.py"):
        mx.eval(mx.take(x, mx.abs(far)))
    with isthmus.checked(), pytest.raises(IndexError, match="test_simulated"):
        mx.eval(x.at[far * 1].add(1))


# -- memory runs out


@pytest.mark.parametrize("full", ["limit", "device"])
def test_out_of_memory_is_one_error_and_nothing_is_lost(simulated, full):
    if full == "limit":
        gpu = simulated[0]
        mx.set_memory_limit(48 * MB)
        assert mx.get_memory_limit() == 48 * MB
    else:
        gpu = simulated.start(0, 50 * MB)
    small, line = mx.ones((1000,)) * 2, here()
    mx.eval(small)
    kept = []
    for k in range(100):
        large, large_line = mx.full(((1 + k % 3) * MB // 4,), k) + 1, here()
        try:
            mx.eval(large)
        except MemoryError as error:
            text = str(error)
            break
        kept.append((large, k + 1))
    assert 15 <= len(kept) <= 26
    assert text.startswith("[allocate] no room for ") and "Simulated GPU" in text
    assert f"int32({3 * MB // 4},) made at {large_line}" in text
    assert len(text.splitlines()) <= 9  # the largest of them
    assert line not in text
    for x, value in kept:  # what is there is right
        assert x[0].item() == value and x.max().item() == x.min().item() == value
    assert small.tolist() == [2.0] * 1000
    kept = kept[:1]
    gc.collect()
    mx.eval(large)  # what failed is done now
    assert large.max().item() == large.min().item()
    assert gpu.memory.active <= 16 * MB


def test_freed_memory_of_another_size_is_found(simulated):
    simulated.start(0, 40 * MB)
    small = [mx.full((MB // 64,), k) + 0 for k in range(400)]  # 25 MB
    mx.eval(small)
    del small
    gc.collect()
    x = mx.ones((8 * MB,)) + 1
    mx.eval(x)
    assert x.min().item() == x.max().item() == 2.0


def test_a_failed_allocation_is_tried_again(simulated):
    gpu = simulated[0]
    gpu.driver.fail = {"allocate": 1}
    x = mx.ones((100,)) + 1
    assert x.tolist() == [2.0] * 100
    assert not gpu.driver.fail


def test_allocations_fail_and_are_possible_again(simulated, monkeypatch):
    x = mx.arange(10) + 0
    mx.eval(x)
    with monkeypatch.context() as m:
        m.setattr(simulated[0].driver, "allocate", lambda nbytes: 0)
        m.setattr(simulated[0].driver, "allocate_pinned", lambda nbytes: 0)
        y = mx.zeros((64 * MB,)) + x[0]
        for _ in range(3):
            with pytest.raises(MemoryError, match="the device has no more"):
                mx.eval(y)
    assert y.max().item() == 0
    assert (x + 1).tolist() == list(range(1, 11))


def test_a_graph_for_which_there_is_no_pinned_memory(simulated, monkeypatch):
    w = mx.ones((4, 4))
    mx.eval(w)
    with monkeypatch.context() as m:
        m.setattr(simulated[0].driver, "allocate_pinned", lambda nbytes: 0)
        for _ in range(2):
            mx.eval(step(mx.ones((8, 4)), w, 0.5))
        for _ in range(2):
            y = step(mx.ones((8, 4)), w, 0.5)
            with pytest.raises(MemoryError, match="pinned"):
                mx.eval(y)
    for _ in range(5):
        y = step(mx.ones((8, 4)), w, 0.5)
        np.testing.assert_allclose(np.array(y), np.full(4, 2.0), rtol=1e-6)


def test_limits_of_the_cache_are_kept(simulated):
    pool = simulated[0].memory
    x = mx.ones((4 * MB,)) + 1
    mx.eval(x)
    del x
    gc.collect()
    assert mx.get_cache_memory() >= 16 * MB
    mx.clear_cache()
    assert pool.cached == 0 and pool.held <= pool.active + (64 << 20)
    before = mx.set_cache_limit(MB)
    assert mx.set_cache_limit(before) == MB


# -- launches fail


def test_a_launch_that_fails_names_its_line_and_is_done_again(simulated):
    x = mx.ones((4, 4)) + 0
    mx.eval(x)
    for number in (1, 2):
        y, line = mx.softmax(x @ x, axis=-1).sum(axis=0), here()
        simulated[0].driver.fail = {"launch": number}
        with pytest.raises(RuntimeError) as caught:
            mx.eval(y)
        assert "too many resources requested" in str(caught.value) and line in str(caught.value)
        np.testing.assert_allclose(np.array(y), np.ones(4), rtol=1e-6)
    assert not simulated[0].lost


def test_an_array_that_was_being_overwritten_when_a_launch_failed_is_gone(simulated):
    """Its readers are told; what the host has, and all else, stays."""
    a, count, both = mx.ones((4, 4)) + 0, mx.zeros((50,)) + 0, mx.zeros((50,)) + 0
    mx.eval(a, count, both)
    for on_host in (False, True):
        count = mx.zeros((50,)) + 0
        mx.eval(count)
        if on_host:
            count.tolist()
        count, y = count + 1, a @ a @ a
        simulated[0].driver.fail = {"launch": 3}
        with pytest.raises(RuntimeError, match="too many resources"):
            mx.eval(count, y)
        assert y.tolist() == [[16.0] * 4] * 4
        if on_host:
            assert count.tolist() == [1.0] * 50
        else:
            for use in (lambda: count.tolist(), lambda: mx.eval(count * 2)):
                with pytest.raises(RuntimeError, match="overwritten in place when a launch"):
                    use()
    assert (both + 1).tolist() == [1.0] * 50


def test_a_launch_without_memory_is_out_of_memory(simulated, monkeypatch):
    x, line = mx.ones((1000,)) + 1, here()
    mx.eval(x)

    def launch(*args: Any) -> None:
        raise DriverError("cuLaunchKernel", 2, "out of memory")

    y = x * 2
    with monkeypatch.context() as m:
        m.setattr(simulated[0].driver, "launch", launch)
        with pytest.raises(MemoryError, match="out of memory") as caught:
            mx.eval(y)
    assert line in str(caught.value)
    assert y.tolist() == [4.0] * 1000


def test_a_launch_that_fails_while_it_is_captured(simulated):
    w = mx.ones((4, 4))
    for k in range(8):
        y = step(mx.ones((8, 4)), w, 0.5)
        if k == 2:
            simulated[0].driver.fail = {"launch": 2}
            with pytest.raises(RuntimeError, match="too many resources"):
                mx.eval(y)
        np.testing.assert_allclose(np.array(y), np.full(4, 2.0), rtol=1e-6)
    assert simulated[0].counters["graph_launches"] >= 4


def test_a_kernel_that_does_not_compile_is_shown(simulated, monkeypatch):
    x = mx.arange(7) + 0
    mx.eval(x)
    with monkeypatch.context() as m:
        m.setattr(simulated[0].driver, "simulated", False)  # so that texts are compiled
        m.setattr(kernel_functions, "PRELUDE", "#define RELEASE nowhere;\n" + kernel_functions.PRELUDE.replace("#define RELEASE", "#define UNUSED"))
        y = (x * 3 + 1) // 2
        with pytest.raises(CompileError) as caught:
            mx.eval(y)
    text = str(caught.value)
    assert 'identifier "nowhere" is undefined' in text
    assert "__global__ void" in text and any(line.startswith(">") and "RELEASE" in line for line in text.splitlines())
    assert y.tolist() == [(k * 3 + 1) // 2 for k in range(7)]


# -- faults


def lose(simulated: Any) -> tuple[mx.array, str]:
    """A kernel that reads at an address that is nowhere; the line of its op."""
    bad = mx.ones((4,)) + 0
    mx.eval(bad)
    bad._node.buffer.gpu_bytes = 0
    bad._node.buffer.gpu = 4096
    y, line = bad * 2, here()
    return y, line


def test_a_fault_is_raised_by_what_waits_and_names_the_line(simulated):
    on_host = mx.arange(3) + 0
    on_host.tolist()
    on_gpu = mx.arange(3) + 1
    mx.eval(on_gpu)
    y, line = lose(simulated)
    mx.async_eval(y)
    with pytest.raises(RuntimeError) as caught:
        mx.synchronize()
    assert line in str(caught.value) and "is lost" in str(caught.value) and "0x1000" in str(caught.value)
    for call in (lambda: mx.eval(on_host + 1), lambda: on_gpu.tolist(), lambda: y.tolist(), lambda: mx.eval(mx.ones((3,)) * 2)):
        with pytest.raises(RuntimeError, match="is lost"):
            call()
    # The host goes on.
    assert on_host.tolist() == [0, 1, 2]
    assert mx.add(on_host, 1, stream=mx.cpu).tolist() == [1, 2, 3]
    with mx.stream(mx.cpu):
        z = mx.ones((3,)) + on_host
        mx.eval(z)
        mx.async_eval(z * 2)
        mx.synchronize()
        assert z.tolist() == [1.0, 2.0, 3.0]
    mx.clear_cache()
    mx.synchronize()
    gc.collect()
    # So does another GPU.
    assert mx.add(on_host, 1, stream=mx.Device(mx.gpu, 1)).tolist() == [1, 2, 3]


@pytest.mark.parametrize("wait", [lambda y: y.tolist(), lambda y: mx.eval(y), lambda y: np.array(y), lambda y: y.sum().item(), lambda y: print(y)])
def test_every_call_that_waits_names_the_line(simulated, wait):
    y, line = lose(simulated)
    mx.async_eval(y)
    mx.async_eval(mx.ones((2,)) * 3)
    with pytest.raises(RuntimeError) as caught:
        wait(y)
    if "enqueued by arrays made at" not in str(caught.value):
        raise caught.value
    assert line in str(caught.value)
    assert simulated[0].lost


def test_a_fault_is_also_named_by_what_only_allocates(simulated, monkeypatch):
    """A context that is lost says so at every call of the driver."""
    y, line = lose(simulated)
    mx.async_eval(y)

    def allocate(nbytes: int) -> int:
        simulated[0].driver.synchronize()
        return 0

    monkeypatch.setattr(simulated[0].driver, "allocate", allocate)
    with pytest.raises(RuntimeError, match="is lost") as caught:
        mx.eval(mx.zeros((40 * MB,)) + 1)
    assert line in str(caught.value)
    mx.eval(mx.add(1, 2, stream=mx.cpu))


def test_a_fault_in_a_replayed_graph(simulated):
    w = mx.ones((4, 4))
    x = mx.ones((8, 4)) + 0
    for _ in range(6):
        mx.eval(step(x, w, 0.5))
    x._node.buffer.gpu_bytes = 0
    x._node.buffer.gpu = 4096
    mx.async_eval(step(x, w, 0.5))
    for _ in range(20):
        mx.async_eval(step(x, w, 0.5))
    with pytest.raises(RuntimeError, match="is lost"):
        mx.synchronize()
    assert simulated[0].lost


# -- errors of async_eval


def test_errors_of_async_eval_wait_for_the_next_wait(simulated):
    x = mx.ones((4, 4)) + 0
    mx.eval(x)
    for wait in (lambda y: mx.synchronize(), lambda y: mx.eval(y), lambda y: y.tolist(), lambda y: mx.eval(mx.add(1, 2, stream=mx.cpu))):
        simulated[0].driver.fail = {"launch": 1}
        y, line = (x * 2).sum(), here()
        mx.async_eval(y)
        mx.async_eval(x * 3)
        with pytest.raises(RuntimeError, match="too many resources") as caught:
            wait(y)
        assert any(line in note for note in caught.value.__notes__)
        assert y.item() == 32.0
        mx.synchronize()


def test_async_eval_of_what_the_cpu_is_still_at(simulated):
    """A part for the GPU that hangs on a part for the CPU keeps its order."""
    x = mx.add(mx.arange(1000), 1, stream=mx.cpu)
    for k in range(20):
        x = mx.add(x, 1, stream=mx.cpu if k % 2 else mx.gpu)
        mx.async_eval(x)
    assert x.tolist() == list(range(21, 1021))


# -- forks, threads, Ctrl-C


def in_child(check: Callable[[], bool]) -> int:
    """What `check` ends with in a fork: 0 if it is true."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        except BaseException as error:
            print(f"in the child: {error!r}", flush=True)
            os._exit(2)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child of a fork hangs")


def test_a_fork_says_that_the_gpu_is_its_parents(simulated):
    on_host, on_gpu, pending = mx.arange(4) + 0, mx.arange(4) + 1, mx.arange(4) + 2
    on_host.tolist()
    mx.eval(on_gpu)
    mx.async_eval(pending)

    def check() -> bool:
        mx.synchronize()
        for use in (lambda: mx.eval(on_host + 1), lambda: on_gpu.tolist(), lambda: pending.tolist(), lambda: mx.eval(mx.ones((2,)) * 2)):
            with pytest.raises(RuntimeError, match=r"forked.*spawn"):
                use()
        mx.set_default_device(mx.cpu)
        mx.clear_cache()
        y = on_host * 2
        mx.eval(y)
        mx.async_eval(y + 1)
        mx.synchronize()
        return on_host.tolist() == [0, 1, 2, 3] and y.tolist() == [0, 2, 4, 6] and mx.ones((300, 300)).sum().item() == 90000

    assert in_child(check) == 0
    assert pending.tolist() == [2, 3, 4, 5] and (on_gpu + on_host).tolist() == [1, 3, 5, 7]


def test_a_fork_while_other_threads_use_the_gpu(simulated):
    stop = threading.Event()
    wrong: list[BaseException] = []

    def work() -> None:
        x = mx.arange(100)
        try:
            while not stop.is_set():
                assert (x + 1).sum().item() == 5050
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()

    def check() -> bool:
        with pytest.raises(RuntimeError, match="forked"):
            mx.eval(mx.ones((2,)) * 2)
        with mx.stream(mx.cpu):
            return mx.add(mx.arange(10), 1, stream=mx.cpu).sum().item() == 55

    try:
        assert [in_child(check) for _ in range(5)] == [0] * 5
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_threads_share_arrays(simulated):
    x = mx.random.normal((32, 32), key=mx.random.key(0))
    lazy = (x @ x).sum()
    want = float(np.array(x @ x, dtype=np.float64).sum())
    found: list[float] = []
    wrong: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for i in range(20):
                y = mx.sum(x * (k + i) - x * (k + i) + lazy / 1, stream=mx.cpu if i % 5 == 4 else mx.gpu)
                found.append(y.item() / 1024)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == [] and len(found) == 120
    np.testing.assert_allclose(found, want, rtol=1e-3)


@pytest.mark.parametrize("rounds", [1, 2, 3, 6])  # launched, captured, replayed
@pytest.mark.parametrize("late", [False, True])
def test_an_interrupt_while_a_plan_is_enqueued(simulated, monkeypatch, rounds, late):
    """Leaves that the plan overwrites are in between then: it is enqueued to its end before the interrupt goes on."""
    driver, a = simulated[0].driver, mx.ones((8, 8)) + 0

    def run(count: mx.array) -> tuple[mx.array, mx.array]:
        y = a
        for _ in range(3):
            y = (y @ a) * 0.5
        return count + 1.0, y

    for at in range(1, 8):
        count, left = mx.zeros((50,)) + 0, at
        mx.eval(count, a)

        def interrupted(call: Callable[..., None], *args: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0 and not late:
                signal.raise_signal(signal.SIGINT)
            call(*args)
            if left == 0 and late:
                signal.raise_signal(signal.SIGINT)

        for k in range(rounds):
            count, y = run(count)
            if k < rounds - 1:
                mx.eval(count, y)
        with monkeypatch.context() as m:
            for name in ("launch", "run_graph"):
                m.setattr(driver, name, functools.partial(interrupted, getattr(driver, name)))
            try:
                mx.eval(count, y)
            except KeyboardInterrupt:
                assert left <= 0
        mx.eval(count, y)
        assert count.tolist() == [float(rounds)] * 50
        assert y.tolist() == [[64.0] * 8] * 8


def test_numbers_of_every_kind_reach_the_gpu(simulated):
    """The table holds integers beyond int64 and floats by their bits."""
    x = mx.array([1, 2], mx.uint64) + 0
    mx.eval(x)
    for value in (0, 5, 2**63, 2**64 - 4):
        assert (x + value).tolist() == [(1 + value) % 2**64, (2 + value) % 2**64]
    y = mx.array([1.0, -2.0]) + 0
    for value in (0.5, -0.0, 1e30, struct.unpack("f", struct.pack("f", 1e-40))[0]):
        np.testing.assert_array_equal(np.array(y * value), np.array([1.0, -2.0], np.float32) * np.float32(value))


def test_what_outlives_the_interpreter_is_silent():
    code = (
        "import builtins\nimport isthmus.core as mx\nw = mx.ones((4, 4))\n"
        "for k in range(6):\n    x = mx.softmax(mx.ones((8, 4)) @ w, axis=-1).sum(axis=0)\n    mx.eval(x)\n"
        "builtins.kept = [x, w, mx.ones((1000,)) + 1]\nmx.eval(builtins.kept)\ncycle = [mx.ones((5,)) * 2]\ncycle.append(cycle)\nmx.async_eval(cycle[0])"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(isthmus.__file__).parents[1]), "ISTHMUS_GPU": "simulated"}
    result = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True, timeout=60)
    assert result.stderr == ""
