"""`eval`: find or make the plan of a graph, bind it to its sizes, run it, and give the nodes their values.

This is the hot half of the schedule; what happens on a miss is in plan.py. Everything from ordering to the assignment of
buffers runs under one lock, so any thread may evaluate any array. Compiled by mypyc where possible.
"""

from __future__ import annotations

import os
import struct
import time
from typing import Any, Final

from isthmus.backends.cpu import memory as cpu_memory
from isthmus.backends.cpu import stream as cpu_stream
from isthmus.backends.cpu.memory import Buffer, drop_gpu, host_address
from isthmus.backends.interrupts import interrupts
from isthmus.graph.node import TRACE, VIEW, Node, leaf_sig
from isthmus.schedule.bind import Binding
from isthmus.schedule.check import check_indices
from isthmus.schedule.order import Ordered, order
from isthmus.schedule.show import bound, plan_made, times

LIMIT: Final = 8192  # nodes of one plan; longer graphs are evaluated in parts
SHOW_TIME: Final = "time" in os.environ.get("ISTHMUS_SHOW", "")
SHOW_SOURCE: Final = "source" in os.environ.get("ISTHMUS_SHOW", "")
MAX_PLANS: Final = 1024
MAX_BINDINGS: Final = 256  # of one plan


class Counters:
    """What `stats()` reports."""

    def __init__(self) -> None:
        self.plans = 0
        self.bindings = 0
        self.hits = 0
        self.evals = 0
        self.plan_seconds = 0.0


counters: Final = Counters()
lock: Final = TRACE.lock


class Family:
    """The plans of one structure, by which nodes are held.

    What is held flickers (a name bound here, dropped there). After FLICKER plans that differ in nothing else, one is made
    for all that was ever held, and serves every subset: a store too many is harmless.
    """

    __slots__ = ("plans", "union", "wide")

    def __init__(self) -> None:
        self.plans: dict[int, Any] = {}
        self.union = 0
        self.wide: Any = None


FLICKER: Final = 4
_families: Final[dict[Any, Family]] = {}
# A fork waits for the eval that runs, so that the child finds the lock free.
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


class Arena:
    """The memory of all plans' temporaries: one block, which grows."""

    def __init__(self) -> None:
        self.buffer: Buffer | None = None

    def address(self, nbytes: int) -> int:
        """The address of at least `nbytes` bytes; what was there is lost."""
        if nbytes == 0:
            return 0
        buffer = self.buffer
        if buffer is None or buffer.nbytes < nbytes:
            self.buffer = None
            buffer = cpu_memory.allocate(nbytes + nbytes // 8 if nbytes < 1 << 28 else nbytes)
            self.buffer = buffer
        return buffer.ptr


arena: Final = Arena()


def evaluate(outputs: list[Node]) -> None:
    """Give every node of `outputs` its value: afterwards each is a leaf, or a view of one."""
    with lock:
        pending = [node for node in outputs if not is_ready(node)]
        if checks.on and pending:
            checks.on = False
            try:
                check_indices(pending, evaluate)
            finally:
                checks.on = True
        stack = pending[::-1]
        while stack:
            run_plan(order(pending, stack, LIMIT), pending)


def is_ready(node: Node) -> bool:
    """Whether a node's value is in memory: a leaf with a buffer, or a view of one that is kept as such."""
    renamed = False
    while not has_value(node):
        if node.sig.kind != VIEW or not node.inputs:
            return False
        name = node.sig.op.name
        if name == "reshape":
            renamed = True
        elif name != "transpose" and name != "alias" and name != "stop_gradient":
            return False
        elif renamed and name == "transpose":
            return False
        node = node.inputs[0]
    return True


def has_value(node: Node) -> bool:
    return node.buffer is not None


def run_plan(ordered: Ordered, requested: list[Node]) -> None:
    nodes = ordered.nodes
    donate = TRACE.depth == 0
    key = (ordered.key, donate)
    family = _families.get(key)
    if family is None:
        if len(_families) >= MAX_PLANS:
            for old in list(_families)[: MAX_PLANS // 4]:
                del _families[old]
        family = _families[key] = Family()
    plan = family.plans.get(ordered.held)
    counters.evals += 1
    if plan is not None:
        counters.hits += 1
    else:
        plan = plan_for(family, ordered, requested, donate)
    sizes = plan.sizes(nodes)
    b = plan.bindings.get(sizes)
    if b is None:
        if len(plan.bindings) >= MAX_BINDINGS:
            plan.bindings.clear()
        b = plan.bindings[sizes] = plan.bind(sizes)
        counters.bindings += 1
        if SHOW_SOURCE:
            bound(plan)
    fresh: list[Buffer] = []
    taken: list[int] = plan.taken
    buffers: list[Any] = []
    place: int = ordered.place
    for k in range(len(taken)):
        if taken[k] < 0:
            buffer = cpu_memory.allocate(b.out_bytes[k]) if place <= 0 else plan.backend.allocate(b.out_bytes[k])
            fresh.append(buffer)
            buffers.append(buffer)
        else:
            buffers.append(nodes[taken[k]].buffer)
    if place > 0:
        try:
            plan.backend.run(plan, b, nodes, buffers)  # which holds interrupts back from where it begins to enqueue
            give_values(nodes, plan.outs, buffers, donate)
        finally:
            interrupts.release()
        return
    if b.n_entries:
        pointers = plan.read_pointers(nodes)
        if 0 in pointers:
            pointers = tuple([host_address(nodes[n].buffer) for n in plan.leaves])
        prefix = (arena.address(b.arena_bytes), *pointers, *[x.ptr for x in fresh])
        numbers = plan.read_numbers(nodes, prefix)
        try:
            plan.pack(plan.table, 0, *prefix, *numbers)
        except struct.error:
            plan.pack(plan.table, 0, *prefix, *[as_int64(x) for x in numbers])
        if len(fresh) < len(taken):
            for buffer in buffers:
                if buffer.gpu:
                    drop_gpu(buffer)  # it is overwritten here
        if SHOW_TIME:
            run_timed(plan, b)
            give_values(nodes, plan.outs, buffers, donate)
            return
        try:
            cpu_stream.run(b.block_address, plan.table_address, b.patches_address, plan.n_patches, b.program_address, b.n_entries)
        except KeyboardInterrupt:
            if len(fresh) < len(taken):
                # Leaves were being overwritten: only the finished result can stand in their place.
                cpu_stream.finish(b.block_address, plan.table_address, b.patches_address, plan.n_patches, b.program_address, b.n_entries)
                if 0 < plan.table[0] <= b.n_entries:
                    give_values(nodes, plan.outs, buffers, donate)
            raise
    give_values(nodes, plan.outs, buffers, donate)


def run_timed(plan: Any, b: Binding) -> None:
    """Runs entry after entry and prints how long each took."""
    took: list[float] = []
    for k in range(b.n_entries):
        start = time.perf_counter()
        cpu_stream.run(b.block_address, plan.table_address, b.patches_address, 0 if k else plan.n_patches, b.program_address + 32 * k, 1)
        took.append(time.perf_counter() - start)
    times(plan, b, took)


def as_int64(x: Any) -> Any:
    """An integer beyond int64 (of uint64) as the int64 of the same bits."""
    return x - (1 << 64) if isinstance(x, int) and x >= 1 << 63 else x


def give_values(nodes: list[Node], outs: list[int], buffers: list[Any], donate: bool) -> None:
    """The outputs become leaves."""
    for k in range(len(outs)):
        node = nodes[outs[k]]
        node.buffer = buffers[k]
        if donate:
            node.sig = leaf_sig(node.shape, node.sig.dtype, node.sig.stream)
            node.inputs = ()
            node.dyn = ()
        else:
            TRACE.kept.append(node)


def plan_for(family: Family, ordered: Ordered, requested: list[Node], donate: bool) -> Any:
    """The plan for what is held now: the family's wide one if that covers it, else a new one."""
    held = ordered.held
    family.union |= held
    plan = family.wide
    if plan is not None and not held & ~plan.held:
        counters.hits += 1
    elif len(family.plans) >= FLICKER:
        plan = family.wide = make_plan(ordered, family.union, requested, donate)
    else:
        plan = make_plan(ordered, held, requested, donate)
    family.plans[held] = plan
    return plan


def make_plan(ordered: Ordered, held: int, requested: list[Node], donate: bool) -> Any:
    from isthmus.schedule.plan import Plan

    start = time.perf_counter()
    numbers = {id(node) for node in requested}
    asked = [k for k, node in enumerate(ordered.nodes) if id(node) in numbers]
    plan = Plan(ordered.nodes, held, asked, donate, ordered.place)
    counters.plans += 1
    counters.plan_seconds += time.perf_counter() - start
    plan_made(plan)
    return plan


def plans() -> list[Any]:
    """The plans that are kept."""
    return list({id(plan): plan for family in _families.values() for plan in family.plans.values()}.values())


def variant_count() -> int:
    """Forms of kernels that plans in use have asked for."""
    found = {id(step.rendered): len(step.rendered.addresses) for plan in plans() for step in plan.steps if step.rendered is not None}
    return sum(found.values())


class Checks:
    """Whether index arrays are checked (`isthmus.checked()`)."""

    def __init__(self) -> None:
        self.on = False


checks: Final = Checks()
