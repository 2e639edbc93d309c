"""What an eval promises beside its values: errors, threads, forks, interruptions, memory, and how many plans it makes."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

import isthmus
import isthmus.core as mx


def test_checked_names_the_index_and_the_line():
    x, index = mx.arange(5), mx.arange(100)[::25]
    assert mx.take(x, index).tolist() == [0, 4, 4, 4]  # held inside, never foreign memory
    with isthmus.checked(), pytest.raises(IndexError, match=r"index 75 .* size 5 .*test_run\.py"):
        mx.eval(mx.take(x, mx.arange(100)[::25]))
    with isthmus.checked():
        assert mx.take(x, mx.array([-5, 4])).tolist() == [0, 4]


def test_checked_looks_at_scatters():
    x = mx.zeros((3,))
    with isthmus.checked(), pytest.raises(IndexError, match="index 7"):
        mx.eval(x.at[mx.arange(8) * 1].add(1.0))


def test_interrupted_eval_leaves_values_right():
    a = mx.ones((1200, 1200))
    mx.eval(a)
    for delay in (0.03, 0.08):
        count = mx.zeros((500, 500))
        mx.eval(count)
        y = a
        for _ in range(16):
            y = (y @ a) * 0.001
        count = count + 1.0  # in place of the old one
        timer = threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        try:
            mx.eval(count, y)
            timer.join()
        except KeyboardInterrupt:
            pass
        mx.eval(count, y)
        assert count.min().item() == count.max().item() == 1.0


def test_fork_evaluates_in_the_child():
    x = mx.arange(10)
    mx.eval(x + 1)
    on_gpu = mx.default_device().type == mx.gpu
    child = os.fork()
    if child == 0:
        try:
            if on_gpu:  # which is the parent's
                with pytest.raises(RuntimeError, match="forked"):
                    mx.eval(x * 2)
                mx.set_default_device(mx.cpu)
            ok = (mx.arange(10) * 2).sum().item() == 90 and mx.ones((300, 300)).sum().item() == 90000
            os._exit(0 if ok and (on_gpu or (x * 2).sum().item() == 90) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert (x * 3).sum().item() == 135


def test_threads_share_arrays():
    x = mx.random.normal((64, 64), key=mx.random.key(0))
    lazy = (x @ x).sum()
    want = float(np.array(x @ x, dtype=np.float64).sum())
    found: list[float] = []

    def work(k: int) -> None:
        for i in range(20):
            found.append(mx.sum(x * (k + i) - x * (k + i) + lazy / 1).item() / 4096)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 120
    np.testing.assert_allclose(found, want, rtol=1e-3)


def test_async_eval_raises_at_the_next_wait():
    limit = mx.set_memory_limit(1 << 24)
    try:
        mx.async_eval(mx.ones((1 << 23,)) + mx.arange(1 << 23))
        with pytest.raises(MemoryError) as caught:
            mx.synchronize()
        assert "test_run.py" in caught.value.__notes__[0]
    finally:
        mx.set_memory_limit(limit)
    assert mx.ones((3,)).sum().item() == 3


def test_out_of_memory_leaves_everything_usable():
    x = mx.ones((1000,))
    mx.eval(x)
    limit = mx.set_memory_limit(mx.get_active_memory() + (1 << 20))
    try:
        y = mx.zeros((1 << 20,)) + x[0]
        with pytest.raises(MemoryError, match="memory limit"):
            mx.eval(y)
    finally:
        mx.set_memory_limit(limit)
    assert y.sum().item() == 1 << 20


def counters(*names: str) -> list[int]:
    stats = isthmus.stats()
    return [stats[n] for n in names]


def test_growing_size_makes_few_plans():
    w = mx.random.normal((8, 8), key=mx.random.key(1))
    mx.eval(w)
    start = counters("plans")[0]
    compiled = None
    for n in range(1, 120):
        x = mx.full((n, 8), float(n))
        y = mx.softmax(x @ w, axis=-1)
        z = mx.concatenate([y, x]).sum(axis=0)
        mx.eval(z)
        if n == 8:
            compiled = counters("kernels_compiled", "kernels_loaded")
    assert counters("plans")[0] - start <= 8
    assert counters("kernels_compiled", "kernels_loaded") == compiled


def test_training_loop_replays():
    w, x = mx.zeros((4, 3)), mx.ones((5, 3))
    rates = [0.1 / (i + 1) for i in range(20)]
    before = None
    for i, rate in enumerate(rates):
        batch = x if i != 19 else x[:2]
        grad = mx.grad(lambda w: ((batch @ w.T - 1.0) ** 2).mean())(w)
        w = w - rate * grad
        mx.eval(w)
        if i == 2:
            before = counters("plans")[0]
    assert counters("plans")[0] - before <= 1  # the short last batch is a slice


def test_cache_is_written_in_place():
    cache = mx.zeros((1, 2, 256, 16))
    mx.eval(cache)
    address = np.asarray(memoryview(cache)).ctypes.data
    plans = None
    for t in range(40):
        cache[:, :, t : t + 1, :] = mx.full((1, 2, 1, 16), float(t))
        keys = cache[:, :, : t + 1, :]
        scores = mx.ones((1, 2, 1, 16)) @ keys.swapaxes(-1, -2)
        mx.eval(scores, cache)
        assert scores.shape == (1, 2, 1, t + 1)
        if t == 3:
            plans = counters("plans")[0]
    assert counters("plans")[0] == plans
    assert np.asarray(memoryview(cache)).ctypes.data == address
    np.testing.assert_array_equal(np.array(cache)[0, 1, :40, 3], np.arange(40))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + x.T,
        lambda x: x[::-1] + x,
        lambda x: x[::-1],
        lambda x: mx.concatenate([x[1:], x[:1]]),
        lambda x: mx.softmax(x, axis=0) * x,
        lambda x: x - x.mean(axis=1, keepdims=True),
        lambda x: mx.take(x, mx.array([1, 0, 3, 2]), axis=0) + x,
    ],
)
def test_in_place_only_where_each_place_reads_itself(f):
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    x = mx.array(a)
    mx.eval(x)
    want = np.array(f(mx.array(a)))
    x = f(x)  # nobody else holds the old x now
    mx.eval(x)
    np.testing.assert_array_equal(np.array(x), want)


def test_exported_memory_is_not_overwritten():
    x = mx.ones((8,))
    mx.eval(x)
    view = np.array(x, copy=False)
    x = x + 1
    mx.eval(x)
    assert view.tolist() == [1.0] * 8 and x.tolist() == [2.0] * 8


def test_update_overlapping_itself():
    x = mx.arange(10)
    mx.eval(x)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_flickering_handles_make_few_plans():
    x = mx.ones((4,))
    mx.eval(x)
    start = counters("plans")[0]
    for i in range(64):
        parts = [x + 1, x * 2, x - 3, x / 4, x * x, x * 5]
        total = sum(parts[1:], parts[0])
        parts = [p for k, p in enumerate(parts) if i >> k & 1]  # another subset is held each time
        mx.eval(total)
        assert total.tolist() == [8.25] * 4
    assert counters("plans")[0] - start <= 12


def test_buffer_size_counts_each_buffer_once():
    x, y = mx.ones((100,)), mx.ones((32,))
    mx.eval(x, y)
    one = mx.get_array_buffer_size(x)
    assert 400 <= one <= 512
    assert mx.get_array_buffer_size({"a": [x, x.T]}, x) == one
    assert mx.get_array_buffer_size(x, y) == one + mx.get_array_buffer_size(y)
    with pytest.raises(RuntimeError, match="evaluated"):
        mx.get_array_buffer_size(x + 1)


def test_what_is_read_at_many_places_is_stored_in_time():
    """Each step reads the one before at two places: written out in full that would be 2**40 reads, of constants too."""
    for x in (mx.arange(200).astype(mx.float32), mx.random.uniform(shape=(200,), key=mx.random.key(0))):
        want = np.array(x, dtype=np.float64)
        for _ in range(40):
            x = (x[1:] + x[:-1]) * 0.5
            want = (want[1:] + want[:-1]) * 0.5
        np.testing.assert_allclose(np.array(x), want, rtol=1e-4)
