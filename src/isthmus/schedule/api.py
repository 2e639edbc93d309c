"""What users call to make things run and to look at what ran: eval, memory, statistics."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from isthmus.backends.cpu import compile as cpu_compile
from isthmus.backends.cpu import memory as cpu_memory
from isthmus.graph.array import array, node_of
from isthmus.graph.device import Device, Stream, defaults
from isthmus.graph.node import Node
from isthmus.schedule import worker
from isthmus.schedule.run import checks, counters, is_ready, lock, plans, variant_count


def _nodes(trees: tuple[Any, ...]) -> list[Node]:
    """The nodes of the arrays in some trees, in order; no depth of nesting recurses."""
    found: list[Node] = []
    stack: list[Any] = list(reversed(trees))
    while stack:
        x = stack.pop()
        if isinstance(x, array):
            found.append(node_of(x))
        elif isinstance(x, dict):
            stack.extend(reversed(list(x.values())))
        elif isinstance(x, (list, tuple)):
            stack.extend(reversed(x))
    return found


def eval(*args: Any) -> None:
    """Evaluate arrays, and wait for them.

    Args:
        args: Arrays, or trees (lists, tuples, dicts, modules) of arrays; other leaves are passed over.

    Raises:
        ValueError: an array belongs to a function that a transform is looking at, and has no value.
        MemoryError: memory ran out.
    """
    nodes = _nodes(args)
    worker.evaluate(nodes)
    wait_for_gpus()


def async_eval(*args: Any) -> None:
    """Start to evaluate arrays, and return at once. An error is raised by the next call that waits.

    Args:
        args: As of `eval`.
    """
    nodes = _nodes(args)
    if nodes and all(node.sig.place > 0 for node in nodes):
        worker.enqueue(nodes)
    else:
        worker.start(nodes)


def synchronize(stream: Stream | Device | None = None) -> None:
    """Wait for all work that was started.

    Args:
        stream: The stream to wait for; all of them where not given.
    """
    worker.wait()
    wait_for_gpus()


def _gpus() -> list[Any]:
    """The GPUs that were used."""
    device = sys.modules.get("isthmus.backends.cuda.device")
    return device.started() if device is not None else []


def wait_for_gpus() -> None:
    """Wait for what was enqueued on GPUs; raises what went wrong there."""
    for one in _gpus():
        one.synchronize()


def _pool() -> Any:
    """The memory that limits are of: that of the default device."""
    place = defaults.stream.place
    if place > 0:
        from isthmus.backends.cuda.device import gpu

        return gpu(place - 1).memory
    return cpu_memory


def get_active_memory() -> int:
    """Bytes in use by arrays."""
    return cpu_memory.active_bytes() + int(sum(one.memory.active for one in _gpus())) - _arena_bytes()


def _arena_bytes() -> int:
    """Of the memory that plans' temporaries were in, which is kept for the next ones."""
    from isthmus.schedule.run import arena

    arenas = [arena.buffer, *[one.arena for one in _gpus()]]
    return sum(max(a.block_bytes, a.gpu_bytes) for a in arenas if a is not None)


def _drop_arena(limit: int) -> None:
    """Let go of the current device's arena if it is larger than a limit of what may be kept."""
    from isthmus.schedule.run import arena

    with lock:
        if defaults.stream.place > 0:
            for one in _gpus():
                if one.memory is _pool() and one.arena is not None and one.arena.nbytes > limit:
                    one.arena = None
        elif arena.buffer is not None and arena.buffer.nbytes > limit:
            arena.buffer = None


def get_array_buffer_size(*args: Any) -> int:
    """Bytes of the buffers behind evaluated arrays, each buffer once.

    Args:
        args: Arrays, or trees of arrays; other leaves are passed over.

    Raises:
        RuntimeError: an array is not evaluated.
    """
    found: dict[int, int] = {}
    for node in _nodes(args):
        if not is_ready(node):
            raise RuntimeError("[get_array_buffer_size] arrays must be evaluated before the size of their buffers is asked for.")
        while node.buffer is None:
            node = node.inputs[0]
        found[id(node.buffer)] = len(node.buffer) if isinstance(node.buffer, bytes) else max(node.buffer.block_bytes, node.buffer.gpu_bytes)
    return sum(found.values())


def get_peak_memory() -> int:
    """The most bytes in use at one time since the start, or since `reset_peak_memory`."""
    return cpu_memory.peak_bytes() + int(sum(one.memory.peak for one in _gpus()))


def reset_peak_memory() -> None:
    """Start counting the peak anew."""
    cpu_memory.reset_peak()
    for one in _gpus():
        one.memory.peak = 0


def get_cache_memory() -> int:
    """Bytes kept for reuse that no array holds."""
    return cpu_memory.cache_bytes() + int(sum(one.memory.cached for one in _gpus())) + _arena_bytes()


def set_cache_limit(limit: int) -> int:
    """Keep at most `limit` bytes for reuse.

    Returns:
        The limit before.
    """
    _drop_arena(limit)
    return int(_pool().set_cache_limit(limit))


def set_memory_limit(limit: int) -> int:
    """Use at most `limit` bytes.

    Returns:
        The limit before.
    """
    _drop_arena(limit // 2)
    return int(_pool().set_memory_limit(limit))


def get_memory_limit() -> int:
    """The most bytes that may be in use."""
    return int(_pool().get_memory_limit())


def set_wired_limit(limit: int) -> int:
    """Has no effect here (it bounds wired memory on Apple's systems).

    Returns:
        0.
    """
    return 0


def clear_cache() -> None:
    """Give memory kept for reuse back to the system."""
    from isthmus.schedule.run import arena

    with lock:
        arena.buffer = None
        cpu_memory.clear_cache()
        for one in _gpus():
            one.clear_cache()


def stats() -> dict[str, Any]:
    """Counters of the process.

    Returns:
        `evals`, `plans` (made), `hits` (evals that found their plan), `bindings` (plans fitted to sizes), `variants`
        (forms of kernels compiled or loaded), `kernels_compiled`, `kernels_loaded` (from disk), `compile_seconds`,
        `plan_seconds`, `arena_bytes`, `active_bytes`, `peak_bytes`, and `compiled` (whether mypyc's build of the hot
        files runs). `gpus` has a dict for each GPU that was started: `name`, `launches` (by themselves, and when graphs were
        made), `graphs` (made), `graph_launches`, `kernels_loaded`, `active_bytes`, `peak_bytes`, `cached_bytes`;
        kernels compiled for them are in `gpu_kernels_compiled` and `gpu_compile_seconds`.
    """
    from isthmus.graph import node
    from isthmus.schedule.run import arena

    return {
        "evals": counters.evals,
        "plans": counters.plans,
        "hits": counters.hits,
        "bindings": counters.bindings,
        "variants": variant_count(),
        "kernels_compiled": cpu_compile.stats["kernels_compiled"],
        "kernels_loaded": cpu_compile.stats["kernels_loaded"],
        "compile_seconds": cpu_compile.stats["compile_seconds"],
        "plan_seconds": counters.plan_seconds,
        "plans_kept": len(plans()),
        "arena_bytes": arena.buffer.nbytes if arena.buffer is not None else 0,
        "active_bytes": cpu_memory.active_bytes(),
        "peak_bytes": cpu_memory.peak_bytes(),
        "compiled": node.__file__.endswith(".so"),
        "gpus": [one.stats() for one in _gpus()],
        **({"gpu_" + name: value for name, value in _gpu_compiler().items()} if _gpus() else {}),
    }


def _gpu_compiler() -> dict[str, float]:
    from isthmus.backends.cuda import compile

    return compile.stats


@contextmanager
def checked() -> Iterator[None]:
    """Inside, every index array that is read or written through is checked.

    Raises:
        IndexError: at the eval, naming the op's line, if an index is out of range.
    """
    before = checks.on
    checks.on = True
    try:
        yield
    finally:
        checks.on = before
