"""The driver that runs a plan's entries in order, and the threads it spreads them over, in generated LLVM IR.

`run` is `run_plan` of docs/design/cpu_abi.md, called until the plan is done. The pool serves one plan at a time: `run`
holds a lock, so threads of Python that call it at once take turns. The calling thread is worker 0; workers 1.. are
threads that never touch Python (they hold no interpreter state and block all signals, so nothing is to be done with
them when the interpreter ends). A fork's child starts its own on its first run.

How a job is handed out. `word` is `total << 32 | next`: the pieces of the job and the next one to take. A worker takes
a piece with one fetch-add of 1, which tells it both; if `next < total` the piece is its own, and since the job cannot
end before that piece is done, the job's description stays as it is meanwhile. Otherwise there is nothing to do, and the
word that the next job stores wipes out the excess. Workers that find nothing spin a little, then sleep on `epoch`; the
caller spins for the last pieces of others, then sleeps on `done`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable

from isthmus.backends.cpu import compile as compiler

ENTRY_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def run(block: int, table: int, patches: int, n_patches: int, program: int, n_entries: int) -> None:
    """Run a plan to its end; all but the counts are addresses (see `run_plan` in docs/design/cpu_abi.md).

    An exception (KeyboardInterrupt) may come between two entries, about every 50 ms; the rest is then not run.
    """
    call = _run_plan or _start()
    with _lock:
        done = call(block, table, patches, n_patches, program, n_entries, 0)
        while done < n_entries:
            done = call(block, table, patches, n_patches, program, n_entries, done)


def finish(block: int, table: int, patches: int, n_patches: int, program: int, n_entries: int) -> None:
    """Run the rest of a plan that an exception interrupted, if it had begun: one that overwrites its inputs cannot begin anew.

    `run_plan` leaves the number of entries done in `table[0]`. Further interruptions wait until the end.
    """
    call = _run_plan or _start()
    done = ctypes.c_int64.from_address(table)
    again: KeyboardInterrupt | None = None
    with _lock:
        while 0 < done.value < n_entries:
            try:
                call(block, table, patches, n_patches, program, n_entries, done.value)
            except KeyboardInterrupt as error:
                again = error
    if again is not None:
        raise again


@functools.cache
def threads() -> int:
    """How many threads take part: `ISTHMUS_NUM_THREADS`, else the CPUs that this process may use."""
    if not _futex_syscall():
        return 1
    wanted = os.environ.get("ISTHMUS_NUM_THREADS", "")
    if wanted:
        if not wanted.isdigit() or int(wanted) < 1:
            raise ValueError(f"ISTHMUS_NUM_THREADS is {wanted!r}; it must be a number from 1.")
        return min(int(wanted), _MAX_THREADS)
    return min(_cpus(), _MAX_THREADS)


def entry(name: str) -> int:
    """Address of a built-in entry.

    `copy`: units are bytes; `p[0]` to, `p[1]` from (they do not overlap).
    `fill`: units are bytes; byte `i` from `p[0]` on becomes byte `i % 8` of `p[1]`, so the value's bits stand there
    repeated: `0x3f800000_3f800000` for float32 ones.
    """
    return _module()[name]


# Starting

_MAX_THREADS = 1024
_WORKER_STACK_BYTES = 2 << 20
_run_plan: Callable[[int, int, int, int, int, int, int], int] | None = None
_lock = threading.Lock()


def _start() -> Callable[[int, int, int, int, int, int, int], int]:
    """Start the threads, once in a process, and give `run_plan`."""
    global _run_plan
    with _lock:
        if _run_plan is None:
            code = _module()
            count = threads()
            if "reset" in code:
                ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(code["reset"])(count, _spin_ns(count))
            for worker in range(1, count):
                _start_thread(code["work"], worker)
            _run_plan = _callable(code)
        return _run_plan


def _callable(code: dict[str, int]) -> Callable[[int, int, int, int, int, int, int], int]:
    """`run_plan` for Python: as a built-in function where `call` stands in the code (0.14 us), else through ctypes (0.4)."""
    if "call" not in code:
        # c_void_p even for counts: ctypes converts it in half the time of an integer type.
        return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 7)(code["run_plan"])
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.restype, create.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    built_in: Callable[..., int] = create(ctypes.addressof(_definition(code["call"])), None, None)
    return built_in


class _PyMethodDef(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


@functools.cache                             # it must live as long as its functions
def _definition(function: int) -> _PyMethodDef:
    return _PyMethodDef(b"run_plan", function, 0x80, None)                  # METH_FASTCALL


def _start_thread(function: int, argument: int) -> None:
    create = ctypes.CDLL(None).pthread_create
    create.argtypes = [ctypes.c_void_p] * 4
    handle, attributes = ctypes.c_uint64(), ctypes.create_string_buffer(256)
    pthread = ctypes.CDLL(None)
    pthread.pthread_attr_init(attributes)
    pthread.pthread_attr_setdetachstate(attributes, 1)                      # PTHREAD_CREATE_DETACHED
    pthread.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_WORKER_STACK_BYTES))
    # The new thread inherits the mask, so that signals go to the threads of Python.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        error = create(ctypes.addressof(handle), ctypes.addressof(attributes), function, argument)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if error:
        raise OSError(error, f"cannot start worker {argument} of {threads()}: {os.strerror(error)}; "
                             f"a smaller ISTHMUS_NUM_THREADS may do")


def _forget() -> None:
    """In a fork's child: its parent's threads are not here, and whoever held the lock is not either."""
    global _run_plan, _lock
    _run_plan, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _cpus() -> int:
    """CPUs that this process may use: its affinity mask, and its share in a container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = period = 0
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:                        # cgroup 2: "200000 100000" or "max 100000"
            first, second = file.read().split()
        quota, period = (0 if first == "max" else int(first)), int(second)
    except (OSError, ValueError):
        try:
            with open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") as file:       # cgroup 1: -1 where there is no limit
                quota = int(file.read())
            with open("/sys/fs/cgroup/cpu/cpu.cfs_period_us") as file:
                period = int(file.read())
        except (OSError, ValueError):
            pass
    if quota > 0 and period > 0:
        count = min(count, max(1, -(-quota // period)))
    return count


def _spin_ns(count: int) -> int:
    """How long a worker looks for the next job before it sleeps.

    Waking it takes about 20 us, so it should still be looking when a loop of small steps comes with the next one: between
    the evals of an MNIST step lie 150 us of Python, or 400 where nothing is compiled.
    """
    return 500_000 if count <= _cpus() else 2_000


def _futex_syscall() -> int:
    """The number of the futex system call; 0 where there is no pool."""
    if not sys.platform.startswith("linux") or sys.maxsize < 1 << 32:
        return 0
    return {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)


# The code

@functools.cache
def _module() -> dict[str, int]:
    futex = _futex_syscall()
    built_in = futex and sys.implementation.name == "cpython"
    driver = (_POOLED_DRIVER if futex else _SERIAL_DRIVER) + (_BUILT_IN if built_in else "")
    pause = {"x86_64": "@llvm.x86.sse2.pause()", "aarch64": "@llvm.aarch64.hint(i32 1)"}.get(platform.machine(), "")
    text = driver + _ENTRIES
    text = text.replace("FUTEX", str(futex)).replace("PAUSE_DECLARATION", pause.replace("i32 1", "i32"))
    text = text.replace("PAUSE", pause).replace("ATTRIBUTES", compiler.FUNCTION_ATTRIBUTES)
    symbols = ["run_plan", "copy", "fill", *(["reset", "work"] if futex else []), *(["call"] if built_in else [])]
    return compiler.compile_module(text, symbols)


_ENTRIES = r"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.fshr.i64(i64, i64, i64)

define void @copy(ptr %p, i64 %begin, i64 %end, i64 %worker) ATTRIBUTES {
  %to0 = load ptr, ptr %p
  %slot1 = getelementptr i64, ptr %p, i64 1
  %from0 = load ptr, ptr %slot1
  %to = getelementptr i8, ptr %to0, i64 %begin
  %from = getelementptr i8, ptr %from0, i64 %begin
  %size = sub i64 %end, %begin
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  ret void
}

define void @fill(ptr %p, i64 %begin, i64 %end, i64 %worker) ATTRIBUTES {
entry:
  %to = load ptr, ptr %p
  %slot1 = getelementptr i64, ptr %p, i64 1
  %bits = load i64, ptr %slot1
  %begin8 = shl i64 %begin, 3                      ; rotated by whole bytes, modulo 64 bits
  %pattern = call i64 @llvm.fshr.i64(i64 %bits, i64 %bits, i64 %begin8)
  %one = insertelement <8 x i64> poison, i64 %pattern, i64 0
  %eight = shufflevector <8 x i64> %one, <8 x i64> poison, <8 x i32> zeroinitializer
  br label %wide
wide:
  %i = phi i64 [ %begin, %entry ], [ %i2, %wide_body ]
  %i2 = add i64 %i, 64
  %fits = icmp sle i64 %i2, %end
  br i1 %fits, label %wide_body, label %narrow
wide_body:
  %at = getelementptr i8, ptr %to, i64 %i
  store <8 x i64> %eight, ptr %at, align 1
  br label %wide
narrow:
  %j = phi i64 [ %i, %wide ], [ %j2, %narrow_body ]
  %rest = phi i64 [ %pattern, %wide ], [ %rest2, %narrow_body ]
  %more = icmp slt i64 %j, %end
  br i1 %more, label %narrow_body, label %done
narrow_body:
  %j2 = add i64 %j, 1
  %rest2 = call i64 @llvm.fshr.i64(i64 %rest, i64 %rest, i64 8)
  %byte = trunc i64 %rest to i8
  %atj = getelementptr i8, ptr %to, i64 %j
  store i8 %byte, ptr %atj
  br label %narrow
done:
  ret void
}
"""

# Patches, then entry after entry. `MANY` runs an entry of more than one piece; `BREATHE` ends in a branch to %next or %out.
_DRIVER = r"""
define i64 @run_plan(ptr %block, ptr %table, ptr %patches, i64 %n_patches, ptr %program, i64 %n_entries, i64 %start)
ATTRIBUTES {
entry:
  %whole = icmp eq i64 %start, 0
  br i1 %whole, label %patch, label %begin
patch:
  %k = phi i64 [ 0, %entry ], [ %k2, %patch_body ]
  %patching = icmp slt i64 %k, %n_patches
  br i1 %patching, label %patch_body, label %begin
patch_body:
  %k2 = add i64 %k, 1
  %triple = getelementptr [3 x i64], ptr %patches, i64 %k
  %slot = load i64, ptr %triple
  %index_at = getelementptr i64, ptr %triple, i64 1
  %index = load i64, ptr %index_at
  %offset_at = getelementptr i64, ptr %triple, i64 2
  %offset = load i64, ptr %offset_at
  %base_at = getelementptr i64, ptr %table, i64 %index
  %base = load i64, ptr %base_at
  %value = add i64 %base, %offset
  %value_at = getelementptr i64, ptr %block, i64 %slot
  store i64 %value, ptr %value_at
  br label %patch
begin:
  BEGIN
  br label %next
next:
  %i = phi i64 [ %start, %begin ], [ %i2, %breathe ]
  %going = icmp slt i64 %i, %n_entries
  br i1 %going, label %body, label %out
body:
  %i2 = add i64 %i, 1
  %quad = getelementptr [4 x i64], ptr %program, i64 %i
  %function = load ptr, ptr %quad
  %params_at = getelementptr i64, ptr %quad, i64 1
  %params_slot = load i64, ptr %params_at
  %params = getelementptr i64, ptr %block, i64 %params_slot
  %units_at = getelementptr i64, ptr %quad, i64 2
  %units = load i64, ptr %units_at
  %grain_at = getelementptr i64, ptr %quad, i64 3
  %grain = load i64, ptr %grain_at
  MANY
alone:
  call void %function(ptr %params, i64 0, i64 %units, i64 0)
  br label %after
after:
  %last = icmp sge i64 %i2, %n_entries
  br i1 %last, label %out, label %ask
ask:
  BREATHE
breathe:
  br i1 %long, label %out, label %next
out:
  %result = phi i64 [ %i, %next ], [ %i2, %after ], [ %i2, %breathe ]
  %no_table = icmp eq ptr %table, null
  br i1 %no_table, label %end, label %note
note:
  store i64 %result, ptr %table
  br label %end
end:
  ret i64 %result
}
"""

_SERIAL_DRIVER = _DRIVER.replace("BEGIN", "").replace("MANY", "br label %alone").replace("BREATHE", r"""
  %ran = sub i64 %i2, %start                       ; no clock here: Python may look around after every 8 entries
  %long = icmp sge i64 %ran, 8
  br label %breathe
""")

# State, in words of 8 bytes, each group on a cache line of its own (pairs of lines are fetched together):
#   0 word; 16 function, 17 params, 18 units, 19 grain; 32 done (i32), 33 caller sleeps on done (i32);
#   48 epoch (i32), 49 workers asleep (i32); 64 threads, 65 spin time in ns.
_POOLED_DRIVER = _DRIVER.replace("BEGIN", r"""
  %threads = load i64, ptr getelementptr (i64, ptr @state, i64 64)
  %several = icmp sgt i64 %threads, 1
  %began = call i64 @now()
""").replace("MANY", r"""
  %large = icmp sgt i64 %units, %grain
  %cuts = icmp sgt i64 %grain, 0
  %large_cuts = and i1 %large, %cuts
  %share = and i1 %large_cuts, %several
  br i1 %share, label %many, label %alone
many:
  call void @spread(ptr %function, ptr %params, i64 %units, i64 %grain, i64 %threads)
  br label %after
""").replace("BREATHE", r"""
  %time = call i64 @now()
  %elapsed = sub i64 %time, %began
  %long = icmp sgt i64 %elapsed, 50000000
  br label %breathe
""") + r"""
@state = internal global [80 x i64] zeroinitializer, align 128

declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
declare void PAUSE_DECLARATION

define internal i64 @now() alwaysinline ATTRIBUTES {
  %time = alloca [2 x i64]
  %ok = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %ns_at = getelementptr i64, ptr %time, i64 1
  %ns = load i64, ptr %ns_at
  %scaled = mul i64 %seconds, 1000000000
  %all = add i64 %scaled, %ns
  ret i64 %all
}

; futex(at, FUTEX_WAIT_PRIVATE, value, no timeout): sleeps if *at is still value
define internal void @sleep(ptr %at, i32 %value) noinline ATTRIBUTES {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %at, i32 128, i32 %value, ptr null, ptr null, i32 0)
  ret void
}

; futex(at, FUTEX_WAKE_PRIVATE, count)
define internal void @wake(ptr %at, i32 %count) noinline ATTRIBUTES {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %at, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}

; Called while no worker runs.
define void @reset(i64 %threads, i64 %spin_ns) ATTRIBUTES {
  store [80 x i64] zeroinitializer, ptr @state
  store i64 %threads, ptr getelementptr (i64, ptr @state, i64 64)
  store i64 %spin_ns, ptr getelementptr (i64, ptr @state, i64 65)
  ret void
}

; Takes and runs pieces until none is left, then adds to `done` how many they were; wakes the caller if it sleeps.
define internal void @take(i64 %worker) ATTRIBUTES {
entry:
  br label %claim
claim:
  %ran = phi i32 [ 0, %entry ], [ %ran2, %piece ]
  %word = atomicrmw add ptr @state, i64 1 seq_cst
  %next = and i64 %word, 4294967295
  %total = lshr i64 %word, 32
  %mine = icmp ult i64 %next, %total
  br i1 %mine, label %piece, label %empty
piece:
  %ran2 = add i32 %ran, 1
  %function = load ptr, ptr getelementptr (i64, ptr @state, i64 16)
  %params = load ptr, ptr getelementptr (i64, ptr @state, i64 17)
  %units = load i64, ptr getelementptr (i64, ptr @state, i64 18)
  %grain = load i64, ptr getelementptr (i64, ptr @state, i64 19)
  %begin = mul i64 %next, %grain
  %full = add i64 %begin, %grain
  %over = icmp sgt i64 %full, %units
  %end = select i1 %over, i64 %units, i64 %full
  call void %function(ptr %params, i64 %begin, i64 %end, i64 %worker)
  br label %claim
empty:
  %idle = icmp eq i32 %ran, 0
  br i1 %idle, label %out, label %report
report:
  %before = atomicrmw add ptr getelementptr (i64, ptr @state, i64 32), i32 %ran seq_cst
  %asleep = load atomic i32, ptr getelementptr (i64, ptr @state, i64 33) seq_cst, align 4
  %waits = icmp ne i32 %asleep, 0
  br i1 %waits, label %call, label %out
call:
  call void @wake(ptr getelementptr (i64, ptr @state, i64 32), i32 1)
  br label %out
out:
  ret void
}

; Runs one entry on all threads; comes back when every piece is done.
define internal void @spread(ptr %function, ptr %params, i64 %units, i64 %grain0, i64 %threads) noinline ATTRIBUTES {
entry:
  %units_1 = sub i64 %units, 1
  %cut = udiv i64 %units_1, %grain0
  %factor0 = lshr i64 %cut, 24                     ; so many pieces that counts might pass 32 bits: larger ones
  %factor = add i64 %factor0, 1
  %grain = mul i64 %grain0, %factor
  %cuts = udiv i64 %units_1, %grain
  %total = add i64 %cuts, 1
  %total32 = trunc i64 %total to i32
  store ptr %function, ptr getelementptr (i64, ptr @state, i64 16)
  store ptr %params, ptr getelementptr (i64, ptr @state, i64 17)
  store i64 %units, ptr getelementptr (i64, ptr @state, i64 18)
  store i64 %grain, ptr getelementptr (i64, ptr @state, i64 19)
  store atomic i32 0, ptr getelementptr (i64, ptr @state, i64 32) seq_cst, align 8
  %word = shl i64 %total, 32
  store atomic i64 %word, ptr @state seq_cst, align 8
  %sleepers = load atomic i32, ptr getelementptr (i64, ptr @state, i64 49) seq_cst, align 8
  %some = icmp sgt i32 %sleepers, 0
  br i1 %some, label %rouse, label %work
rouse:
  %epoch = atomicrmw add ptr getelementptr (i64, ptr @state, i64 48), i32 1 seq_cst
  %others = trunc i64 %cuts to i32
  call void @wake(ptr getelementptr (i64, ptr @state, i64 48), i32 %others)
  br label %work
work:
  call void @take(i64 0)
  br label %watch
watch:                                             ; others finish their last pieces
  %spins = phi i32 [ 0, %work ], [ %spins2, %pause ]
  %done = load atomic i32, ptr getelementptr (i64, ptr @state, i64 32) seq_cst, align 8
  %all = icmp eq i32 %done, %total32
  br i1 %all, label %out, label %patience
patience:
  %spins2 = add i32 %spins, 1
  %bored = icmp sgt i32 %spins2, 1000              ; 20 to 50 us
  br i1 %bored, label %lie_down, label %pause
pause:
  call void PAUSE
  br label %watch
lie_down:
  store atomic i32 1, ptr getelementptr (i64, ptr @state, i64 33) seq_cst, align 8
  br label %lying
lying:
  %count = load atomic i32, ptr getelementptr (i64, ptr @state, i64 32) seq_cst, align 8
  %ready = icmp eq i32 %count, %total32
  br i1 %ready, label %get_up, label %doze
doze:
  call void @sleep(ptr getelementptr (i64, ptr @state, i64 32), i32 %count)
  br label %lying
get_up:
  store atomic i32 0, ptr getelementptr (i64, ptr @state, i64 33) seq_cst, align 8
  br label %out
out:
  ret void
}

; A worker's life.
define ptr @work(i64 %worker) ATTRIBUTES {
entry:
  %patience = load i64, ptr getelementptr (i64, ptr @state, i64 65)
  br label %fresh
fresh:
  %since = call i64 @now()
  br label %look
look:
  %turn = phi i64 [ 0, %fresh ], [ %turn2, %pause ], [ %turn2, %clock ]
  %turn2 = add i64 %turn, 1
  %word = load atomic i64, ptr @state seq_cst, align 8
  %next = and i64 %word, 4294967295
  %total = lshr i64 %word, 32
  %open = icmp ult i64 %next, %total
  br i1 %open, label %busy, label %idle
busy:
  call void @take(i64 %worker)
  br label %fresh
idle:
  call void PAUSE
  %low = and i64 %turn, 15
  %sometimes = icmp eq i64 %low, 15
  br i1 %sometimes, label %clock, label %pause
pause:
  br label %look
clock:
  %time = call i64 @now()
  %elapsed = sub i64 %time, %since
  %tired = icmp sgt i64 %elapsed, %patience
  br i1 %tired, label %lie_down, label %look
lie_down:
  %epoch = load atomic i32, ptr getelementptr (i64, ptr @state, i64 48) seq_cst, align 8
  %before = atomicrmw add ptr getelementptr (i64, ptr @state, i64 49), i32 1 seq_cst
  ; Seen after it counts as asleep: a job stored before this is found here, one stored later changes the epoch.
  %word2 = load atomic i64, ptr @state seq_cst, align 8
  %next2 = and i64 %word2, 4294967295
  %total2 = lshr i64 %word2, 32
  %open2 = icmp ult i64 %next2, %total2
  br i1 %open2, label %get_up, label %doze
doze:
  call void @sleep(ptr getelementptr (i64, ptr @state, i64 48), i32 %epoch)
  br label %get_up
get_up:
  %after = atomicrmw sub ptr getelementptr (i64, ptr @state, i64 49), i32 1 seq_cst
  br label %fresh
}
"""

# run_plan as a function of Python's: seven integers in, one out, without the interpreter's lock meanwhile.
_BUILT_IN = r"""
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

define ptr @call(ptr %self, ptr %arguments, i64 %count) ATTRIBUTES {
  ARGUMENTS
  %error = call ptr @PyErr_Occurred()
  %bad = icmp ne ptr %error, null
  br i1 %bad, label %raise, label %run
run:
  %thread = call ptr @PyEval_SaveThread()
  %done = call i64 @run_plan(ptr %p0, ptr %p1, ptr %p2, i64 %v3, ptr %p4, i64 %v5, i64 %v6)
  call void @PyEval_RestoreThread(ptr %thread)
  %result = call ptr @PyLong_FromLongLong(i64 %done)
  ret ptr %result
raise:
  ret ptr null
}
""".replace("ARGUMENTS", "".join(f"""
  %at{i} = getelementptr ptr, ptr %arguments, i64 {i}
  %object{i} = load ptr, ptr %at{i}
  %v{i} = call i64 @PyLong_AsLongLong(ptr %object{i})
  %p{i} = inttoptr i64 %v{i} to ptr""" for i in range(7)))
