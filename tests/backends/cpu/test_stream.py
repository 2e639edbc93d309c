"""The driver and its pool of threads."""

from __future__ import annotations

import _thread
import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from isthmus.backends.cpu import compile as compiler
from isthmus.backends.cpu import stream

ROOT = Path(stream.__file__).parents[3]

# count: p[0][i] += 1, p[1][i] = worker, for each unit i. spin: turns p[0] times, then adds one to where p[1] points.
# where: writes begin and end to p[0][2 * (begin / p[1])]. next: p[0][i] = p[0][i + p[1]] + 1, so needs what came before.
ENTRIES = """
define void @count(ptr %p, i64 %begin, i64 %end, i64 %worker) ATTRIBUTES {
entry:
  %out = load ptr, ptr %p
  %who_at = getelementptr i64, ptr %p, i64 1
  %who = load ptr, ptr %who_at
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %i2, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %i2 = add i64 %i, 1
  %at = getelementptr i64, ptr %out, i64 %i
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  %who_i = getelementptr i64, ptr %who, i64 %i
  store i64 %worker, ptr %who_i
  br label %head
done:
  ret void
}

define void @spin(ptr %p, i64 %begin, i64 %end, i64 %worker) ATTRIBUTES {
entry:
  %turns = load i64, ptr %p
  %to_at = getelementptr i64, ptr %p, i64 1
  %to = load ptr, ptr %to_at
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i2, %head ]
  %i2 = add i64 %i, 1
  %seen = load volatile i64, ptr %to
  %more = icmp slt i64 %i2, %turns
  br i1 %more, label %head, label %done
done:
  %old = atomicrmw add ptr %to, i64 1 seq_cst
  ret void
}

define void @where(ptr %p, i64 %begin, i64 %end, i64 %worker) ATTRIBUTES {
  %out = load ptr, ptr %p
  %grain_at = getelementptr i64, ptr %p, i64 1
  %grain = load i64, ptr %grain_at
  %piece = sdiv i64 %begin, %grain
  %at = getelementptr [2 x i64], ptr %out, i64 %piece
  store i64 %begin, ptr %at
  %at2 = getelementptr i64, ptr %at, i64 1
  store i64 %end, ptr %at2
  ret void
}

define void @next(ptr %p, i64 %begin, i64 %end, i64 %worker) ATTRIBUTES {
entry:
  %out = load ptr, ptr %p
  %from_at = getelementptr i64, ptr %p, i64 1
  %from = load ptr, ptr %from_at
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %i2, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %i2 = add i64 %i, 1
  %read = getelementptr i64, ptr %from, i64 %i
  %old = load i64, ptr %read
  %new = add i64 %old, 1
  %write = getelementptr i64, ptr %out, i64 %i
  store i64 %new, ptr %write
  br label %head
done:
  ret void
}
""".replace("ATTRIBUTES", compiler.FUNCTION_ATTRIBUTES)


def entry(name: str) -> int:
    return compiler.compile_module(ENTRIES, ["count", "spin", "where", "next"])[name]


def words(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def run(block, program, table=(), patches=()) -> None:
    """`program` is rows of (address, slot, units, grain)."""
    arrays = [np.ascontiguousarray(a, np.int64) for a in (block, table, patches, program)]
    b, t, p, q = arrays
    stream.run(b.ctypes.data, t.ctypes.data, p.ctypes.data, p.size // 3, q.ctypes.data, q.size // 4)


def count_once(units: int, grain: int) -> np.ndarray:
    out, who = np.zeros(units, np.int64), np.full(units, -1, np.int64)
    run([out.ctypes.data, who.ctypes.data], [[entry("count"), 0, units, grain]])
    assert ((who >= 0) & (who < stream.threads())).all()
    return out


def in_process(code: str, **environ: str) -> str:
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], env={**os.environ, "PYTHONPATH": path, **environ},
                            capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_nothing_to_run():
    run([], [])


def test_arguments_of_another_type_raise():
    with pytest.raises((TypeError, ctypes.ArgumentError)):
        stream.run("block", 0, 0, 0, 0, 0)
    run([], [])                              # the lock is free again


@pytest.mark.parametrize("units", [0, 1, 2, 7, 64, 1000, 100_003])
@pytest.mark.parametrize("grain", [1, 3, 64, 1 << 40])
def test_every_unit_is_done_once(units, grain):
    assert (count_once(units, grain) == 1).all()


def test_grain_of_nothing_is_one_piece():
    assert (count_once(10, 0) == 1).all()


def test_pieces_start_at_multiples_of_grain():
    units, grain = 1000, 7
    if stream.threads() == 1:
        pytest.skip("one thread has one piece")
    out = np.full((143, 2), -1, np.int64)
    run([out.ctypes.data, grain], [[entry("where"), 0, units, grain]])
    starts = np.arange(0, units, grain)
    assert out.tolist() == np.stack([starts, np.minimum(starts + grain, units)], 1).tolist()


def test_small_entries_run_on_the_caller():
    out, who = np.zeros(100, np.int64), np.full(100, -1, np.int64)
    run([out.ctypes.data, who.ctypes.data], [[entry("count"), 0, 100, 100]])
    assert (who == 0).all()


def test_patches_fill_slots_from_the_table():
    out, who = np.zeros(20, np.int64), np.zeros(20, np.int64)
    run([-1, 0, 0], [[entry("count"), 1, 10, 100]], table=[0, who.ctypes.data, out.ctypes.data],
        patches=[[1, 2, 80], [2, 1, 0]])
    assert out.tolist() == [0] * 10 + [1] * 10


def test_each_entry_sees_what_those_before_wrote():
    a, b, units = np.zeros(5000, np.int64), np.zeros(5000, np.int64), 5000
    block = [a.ctypes.data, b.ctypes.data, b.ctypes.data, a.ctypes.data]
    program = [[entry("next"), 2 * (n % 2), units, 100 if n % 3 else units] for n in range(400)]
    run(block, program)
    assert (np.maximum(a, b) == 400).all()


def test_many_short_jobs_lose_and_repeat_nothing():
    units = 37
    out, who = np.zeros(units, np.int64), np.zeros(units, np.int64)
    program = words(entry("count"), 0, units, 2).reshape(1, 4).repeat(500, 0)
    for _ in range(200):
        run([out.ctypes.data, who.ctypes.data], program)
    assert (out == 100_000).all()


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_any_number_of_threads(count):
    printed = in_process(
        "import test_stream as t\nfrom isthmus.backends.cpu import stream\nimport numpy as np\n"
        "out, who = np.zeros(997, np.int64), np.zeros(997, np.int64)\n"
        "seen = set()\n"
        "for _ in range(300):\n"
        "    t.run([out.ctypes.data, who.ctypes.data], [[t.entry('count'), 0, 997, 10]] * 5)\n"
        "    seen |= set(who.tolist())\n"
        "assert (out == 1500).all() and seen <= set(range(stream.threads()))\n"
        "print(stream.threads())", ISTHMUS_NUM_THREADS=str(count))
    assert int(printed) == (count if stream._futex_syscall() else 1)


@pytest.mark.skipif(not stream._futex_syscall(), reason="no pool here")
def test_workers_take_part():
    """Each piece waits until another thread has begun one, so one thread alone would never end."""
    in_process(
        "import test_stream as t\nfrom isthmus.backends.cpu import compile as c\nimport numpy as np\n"
        "text = '''define void @meet(ptr %p, i64 %b, i64 %e, i64 %w) {\nentry:\n"
        "  %at = load ptr, ptr %p\n  %old = atomicrmw add ptr %at, i64 1 seq_cst\n  br label %head\nhead:\n"
        "  %n = load atomic i64, ptr %at seq_cst, align 8\n  %all = icmp sge i64 %n, 4\n"
        "  br i1 %all, label %done, label %head\ndone:\n  ret void\n}\n'''\n"
        "meet = c.compile_module(text, ['meet'])['meet']\n"
        "for _ in range(20):\n"
        "    count = np.zeros(1, np.int64)\n    t.run([count.ctypes.data], [[meet, 0, 4, 1]])\n", ISTHMUS_NUM_THREADS="4")


@pytest.mark.parametrize("setting", ["0", "two", "-1"])
def test_unreasonable_number_of_threads_raises(setting, monkeypatch):
    if not stream._futex_syscall():
        pytest.skip("no pool here")
    stream.threads.cache_clear()
    monkeypatch.setenv("ISTHMUS_NUM_THREADS", setting)
    with pytest.raises(ValueError, match="ISTHMUS_NUM_THREADS"):
        stream.threads()
    stream.threads.cache_clear()


def test_threads_of_python_take_turns():
    wrong: list[object] = []

    def work() -> None:
        try:
            for _ in range(100):
                if not (count_once(200, 5) == 1).all():
                    wrong.append("a unit was lost")
        except BaseException as error:
            wrong.append(error)

    callers = [threading.Thread(target=work) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_serial_driver_runs_plans(monkeypatch):
    monkeypatch.setattr(stream, "_futex_syscall", lambda: 0)
    monkeypatch.setattr(stream, "_run_plan", None)
    monkeypatch.setattr(stream, "_lock", threading.Lock())
    stream.threads.cache_clear()
    stream._module.cache_clear()
    try:
        out, who = np.zeros(50, np.int64), np.zeros(50, np.int64)
        run([0, who.ctypes.data], [[entry("count"), 0, 50, 3]] * 21, table=[out.ctypes.data], patches=[[0, 0, 0]])
        assert (out == 21).all() and (who == 0).all() and stream.threads() == 1
    finally:
        stream.threads.cache_clear()
        stream._module.cache_clear()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_of_a_fork_has_its_own_pool():
    count_once(1000, 10)
    children = []
    for _ in range(4):
        child = os.fork()
        if not child:
            try:
                ok = all((count_once(1000, 10) == 1).all() for _ in range(50))
                inner = os.fork()            # and its child again
                if not inner:
                    os._exit(0 if (count_once(1000, 10) == 1).all() else 1)
                ok = ok and os.waitpid(inner, 0)[1] == 0
            except BaseException:
                ok = False
            os._exit(0 if ok else 1)
        children.append(child)
    assert (count_once(1000, 10) == 1).all()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert (count_once(1000, 10) == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_while_another_thread_runs_a_plan():
    stop = words(0)
    running = threading.Event()

    def work() -> None:
        while not stop[0]:
            count_once(2000, 10)
            running.set()

    caller = threading.Thread(target=work)
    caller.start()
    running.wait()
    for _ in range(5):
        child = os.fork()
        if not child:
            os._exit(0 if (count_once(1000, 10) == 1).all() else 1)
        assert os.waitpid(child, 0)[1] == 0
    stop[0] = 1
    caller.join()


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
@pytest.mark.parametrize("grain", [1, 100])
def test_interrupt_leaves_the_pool_usable(grain):
    progress = words(0)
    program = words(entry("spin"), 0, 4, grain).reshape(1, 4).repeat(1_000_000, 0)
    finished = threading.Event()

    def interrupt() -> None:
        while not progress[0] and not finished.is_set():
            pass
        _thread.interrupt_main()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    watcher = threading.Thread(target=interrupt)
    watcher.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run([1_000_000, progress.ctypes.data], program)
    finally:
        finished.set()
        watcher.join()
        signal.signal(signal.SIGINT, before)
    assert 0 < progress[0] < 1_000_000
    assert (count_once(1000, 10) == 1).all()


def test_interpreter_ends_while_workers_look_for_work():
    for _ in range(5):
        in_process("import test_stream as t\nassert (t.count_once(1000, 1) == 1).all()", ISTHMUS_NUM_THREADS="4")


def test_interpreter_ends_while_a_daemon_runs_a_plan():
    in_process("import test_stream as t, threading\nready = threading.Event()\n"
               "def work():\n    while True:\n        t.count_once(1000, 1)\n        ready.set()\n"
               "threading.Thread(target=work, daemon=True).start()\nready.wait()")


@pytest.mark.parametrize("nbytes", [0, 1, 7, 8, 63, 64, 65, 1000, 300_001])
@pytest.mark.parametrize("grain", [1 << 40, 96, 1001])
def test_copy(nbytes, grain):
    source = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    target = np.zeros(nbytes + 64, np.uint8)
    run([target.ctypes.data, source.ctypes.data], [[stream.entry("copy"), 0, nbytes, grain]])
    assert (target[:nbytes] == source).all() and not target[nbytes:].any()


@pytest.mark.parametrize("nbytes", [0, 1, 7, 8, 63, 64, 65, 1000, 300_001])
@pytest.mark.parametrize("grain", [1 << 40, 96, 1001])
def test_fill(nbytes, grain):
    pattern = np.arange(0xF1, 0xF9, dtype=np.uint8)
    target = np.zeros(nbytes + 64, np.uint8)
    run([target.ctypes.data, int(pattern.view(np.int64)[0])], [[stream.entry("fill"), 0, nbytes, grain]])
    assert (target[:nbytes] == np.resize(pattern, nbytes)).all() and not target[nbytes:].any()
