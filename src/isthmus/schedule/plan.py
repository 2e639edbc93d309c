"""A plan: what an eval of one structure does, for any sizes, and its bindings to particular ones.

Made on a miss of the key, in the order of the functions below: name the sizes, fuse, lower each group to a kernel, order
the launches, decide which outputs take over a leaf's buffer and which temporaries share a slot of the arena, and generate
two Python functions: `sizes(n)` reads each size once, `inputs(n)` gives the addresses of leaves and the dynamic numbers.
A *binding* holds, for one tuple of sizes, everything that does not change from run to run: the block of parameters, the
program, and the patches that put addresses and numbers into the block (docs/design/cpu_abi.md).
"""

from __future__ import annotations

import struct
from array import array as flat_array
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from isthmus.backends.cpu.library.gemm_ir import ALPHA, BETA, SCRATCH
from isthmus.backends.place import backend_of
from isthmus.graph.dtype import complex64, float64
from isthmus.graph.node import LEAF, LIBRARY, MAP, UPDATE, VIEW, Node
from isthmus.kernel.place import ONE, ORIGIN, ZERO, Form, Poly, axis_form
from isthmus.schedule.bind import Binding, Frame, StepFrame, bind
from isthmus.schedule.fuse import Fuser
from isthmus.schedule.lower import Built, Formula, build
from isthmus.schedule.sizes import PlanNode, plan_nodes

BY_BLAS = (float64, complex64)
CHANGING = 3  # bindings of a plan after which its sizes count as changing


class Operand(NamedTuple):
    """An operand of a library op as it lies in memory: the stored base, a stride for each axis, and an offset, in elements."""

    base: PlanNode
    strides: tuple[Poly, ...]
    offset: Poly


class Step:
    """One launch of a plan: a kernel, a library op, or a copy of a base that an update may not overwrite.

    `reads` and `writes` are node numbers; `built`/`rendered` are a kernel's; `operands` a library op's.
    """

    def __init__(self, node: PlanNode, reads: list[int], writes: list[int]) -> None:
        self.node = node
        self.reads = reads
        self.writes = writes
        self.built: Built | None = None
        self.rendered: Any = None
        self.product: Any = None
        self.operands: list[Operand] = []
        self.copies = False  # an update whose base is copied first
        self.name = node.op.name


def first_needs(waits: list[int], readers: list[list[int]], numbers: list[int]) -> list[int]:
    """For each step the least number of one that it leads to, by steps that wait for one other, and that waits for several."""
    left = list(waits)
    order = [k for k, n in enumerate(left) if not n]
    for k in order:  # it grows meanwhile
        for m in readers[k]:
            left[m] -= 1
            if not left[m]:
                order.append(m)
    needs = list(numbers)
    for k in reversed(order):
        needs[k] = min((numbers[m] if waits[m] > 1 else needs[m] for m in readers[k]), default=numbers[k])
    return needs


class Plan:
    """See the module's text. `outs` are the nodes that get buffers, `taken[k]` the leaf whose buffer out k takes, or -1.

    `guests` names ops of a GPU's streams that have no form there, and run on the host.
    """

    def __init__(self, nodes: list[Node], held: int, requested: list[int], donate: bool, place: int) -> None:
        self.place = place
        self.guests = () if place > 0 else tuple(dict.fromkeys(node.sig.op.name for node in nodes if node.buffer is None and node.sig.stream.place > 0))
        self.backend = backend_of(place)
        self.on_device: Any = None  # what a GPU keeps of the plan
        self.bindings: dict[Any, Binding] = {}
        self.held = held
        self.nodes, where = plan_nodes(nodes, held)
        kept = self.what_is_kept(requested)
        fuser = Fuser(self.nodes, self.with_operands(kept))
        fuser.run()
        self.stored = fuser.stored
        self.steps = self.order_steps(self.make_steps(fuser), kept)
        self.leaves = sorted({r for step in self.steps for r in step.reads if self.nodes[r].kind == LEAF})
        self.outs = sorted(kept)
        self.taken: list[int] = [-1] * len(self.outs)
        self.last_use = self.last_uses()
        self.same: dict[int, int] = {}  # temporary or out -> the node whose memory it continues
        self.decide_in_place(donate)
        self.slots, self.slot_of = self.assign_slots()
        self.where = where
        self.size_names = sorted(where, key=lambda s: int(s[1:]))
        self.dynamic: dict[str, int] = {}  # text of a dynamic formula -> its place in the table
        self.dynamic_formats: list[str] = []
        self.layout()
        self.compile_functions()
        self.frame = self.make_frame()
        # One table serves all bindings, as plans run one at a time.
        n_fixed = 1 + len(self.memory_ids)
        self.table = flat_array("q", [0] * (n_fixed + len(self.dynamic)))
        self.table_address = self.table.buffer_info()[0]
        self.pack = struct.Struct("=" + "q" * n_fixed + "".join(self.dynamic_formats)).pack_into
        self.n_patches = len(self.frame.patches) // 3

    # --- what is kept ---

    def what_is_kept(self, requested: list[int]) -> set[int]:
        """The nodes that must be in memory afterwards: requested and held ones, or the bases of views that share."""
        keep: set[int] = set()
        asked = set(requested)
        for p in self.nodes:
            if not (p.held or p.number in asked) or p.kind == LEAF:
                continue
            if p.kind != VIEW:
                keep.add(p.number)
                continue
            keep.add(shared_base(p, p.number in asked).number)
        return {n for n in keep if self.nodes[n].kind != LEAF}

    def with_operands(self, kept: set[int]) -> set[int]:
        """`kept` and the views that a library op or an update cannot use as they lie."""
        found = set(kept)
        for p in self.nodes:
            if p.merged:
                continue
            for k, x in enumerate(p.inputs):
                if x.kind != VIEW or x.number in found:
                    continue
                if p.kind == LIBRARY:
                    o, home = operand(x, found), shared_base(x, False)
                    # The order of sums follows from how an operand lies, so it must lie as it does where the view is kept.
                    if home.kind == VIEW:
                        kept_so = operand(x, found | {home.number})
                        if layout(o) != layout(kept_so) or not fits_library(o, p, k):
                            found.add(home.number)
                            o = kept_so
                    if not fits_library(o, p, k):
                        found.add(x.number)
                elif p.kind == UPDATE and k == 0 and flat_base(x) is None:
                    found.add(x.number)
        return found

    # --- steps ---

    def make_steps(self, fuser: Fuser) -> list[Step]:
        steps: list[Step] = []
        for number in sorted(fuser.drafts):
            draft = fuser.drafts[number]
            first = draft.order[0]
            if first.kind == LIBRARY:
                if first.number not in self.stored:
                    continue
                operands = [operand(x, self.stored) for x in first.inputs]
                step = Step(first, [o.base.number for o in operands], [first.number])
                step.operands = operands
                step.product = self.library_product(first, operands)
                steps.append(step)
                continue
            if first.kind == UPDATE and first.number not in self.stored:
                continue
            group = fuser.group(draft)
            if group is None:
                continue
            members = draft.places

            def before(p: PlanNode, members: dict[int, Any] = members) -> bool:
                return p.kind == LEAF or (p.number in self.stored and p.number not in members)

            built = build(group, before)
            reads = [p.number for p, written in built.buffers if not written]
            writes = [p.number for p, written in built.buffers if written]
            step = Step(first, reads, writes)
            step.built = built
            step.rendered = self.backend.render(built.kernel)
            step.name = built.kernel.form
            if first.kind == UPDATE:
                base = self.base(first.inputs[0])
                step.reads.append(base.number)
                step.copies = True
                step.name = first.op.name
            steps.append(step)
        return steps

    def library_product(self, node: PlanNode, operands: list[Operand]) -> Any:
        first = 1 if node.op.name == "addmm" else 0
        return self.backend.product(node.dtype.name, transposed(operands[first]), transposed(operands[first + 1]), bool(first))

    def base(self, p: PlanNode) -> PlanNode:
        while p.kind == VIEW and p.number not in self.stored:
            p = p.inputs[0]
        return p

    def order_steps(self, steps: list[Step], kept: set[int]) -> list[Step]:
        """Each step after those it reads from; of the ready ones that with the least bytes stored less bytes freed.

        Ties go by what they are for: first what the first step needs that brings several results together, so that those do
        not wait in memory; then in program order. A leaf that nobody else holds is freed by its last reader, which may then
        overwrite it.
        """
        maker = {w: k for k, step in enumerate(steps) for w in step.writes}
        waits: list[int] = []
        readers: list[list[int]] = [[] for _ in steps]
        left: dict[int, int] = {}  # steps that still read a value
        for k, step in enumerate(steps):
            from_steps = {maker[r] for r in step.reads if r in maker and maker[r] != k}
            waits.append(len(from_steps))
            for m in from_steps:
                readers[m].append(k)
            for r in set(step.reads):
                left[r] = left.get(r, 0) + 1
        stored = [sum(self.weight(w) for w in step.writes) for step in steps]
        lasting = kept | {p.number for p in self.nodes if p.kind == LEAF and p.held}

        needs = first_needs(waits, readers, [max(step.writes) for step in steps])

        def cost(k: int) -> tuple[int, int, int]:
            freed = sum(self.weight(r) for r in set(steps[k].reads) if left[r] == 1 and r not in lasting)
            return stored[k] - freed, needs[k], max(steps[k].writes)

        # A step's cost only falls, when it is left as the last reader of a value: then it is put in again.
        ready = [(cost(k), k) for k in range(len(steps)) if not waits[k]]
        heapify(ready)
        last_readers: dict[int, set[int]] = {}
        for k, step in enumerate(steps):
            for r in step.reads:
                last_readers.setdefault(r, set()).add(k)
        done: set[int] = set()
        out: list[Step] = []
        while ready:
            _, k = heappop(ready)
            if k in done:
                continue
            done.add(k)
            out.append(steps[k])
            for r in set(steps[k].reads):
                left[r] -= 1
                last_readers[r].discard(k)
                if left[r] == 1:
                    (m,) = last_readers[r]
                    if not waits[m]:
                        heappush(ready, (cost(m), m))
            for m in readers[k]:
                waits[m] -= 1
                if not waits[m]:
                    heappush(ready, (cost(m), m))
        assert len(out) == len(steps), "the groups wait for each other"
        return out

    # --- memory ---

    def last_uses(self) -> dict[int, int]:
        last: dict[int, int] = {}
        for k, step in enumerate(self.steps):
            for n in (*step.reads, *step.writes):
                last[n] = k
        return last

    def viewed(self) -> set[int]:
        """Leaves and values that a held view shares."""
        found: set[int] = set()
        for p in self.nodes:
            if p.held and p.kind == VIEW:
                found.add(self.base(p).number)
        return found

    def decide_in_place(self, donate: bool) -> None:
        """Which results continue in the memory of something that dies with the step that makes them."""
        viewed = self.viewed()
        continued: set[int] = set()
        out_set = set(self.outs)

        def dies(n: int, k: int) -> bool:
            p = self.nodes[n]
            if n in continued or n in viewed or self.last_use[n] != k:
                return False
            if p.kind == LEAF:
                return donate and not p.held
            return n not in out_set

        for k, step in enumerate(self.steps):
            if step.copies:
                node, base = step.node, step.reads[-1]
                if dies(base, k) and step.reads.count(base) == 1 and self.nodes[base].count() == node.count():
                    self.same[node.number] = base
                    continued.add(base)
                    step.copies = False
                continue
            if step.built is None:
                continue
            for written, read in step.built.same_place.items():
                target, source = step.built.buffers[written][0], step.built.buffers[read][0]
                if target.number in self.same or step.built.kernel.form not in ("map",) or not dies(source.number, k):
                    continue
                if target.count() == source.count():
                    self.same[target.number] = source.number
                    continued.add(source.number)
        self.roots: dict[int, int] = {}  # what `memory_of` has found
        for k, n in enumerate(self.outs):
            root = self.memory_of(n)
            if self.nodes[root].kind == LEAF:
                self.taken[k] = root

    def memory_of(self, n: int) -> int:
        """The node whose memory `n` lies in."""
        path = []
        while n in self.same and n not in self.roots:
            path.append(n)
            n = self.same[n]
        root = self.roots.get(n, n)
        for m in path:
            self.roots[m] = root
        return root

    def assign_slots(self) -> tuple[list[list[int]], dict[int, int]]:
        """Slots of the arena for temporaries: members of a slot are never alive together."""
        out_set = set(self.outs)
        for n in self.outs:
            # A temporary that an output continues lies in the output's memory.
            m = n
            while m in self.same:
                m = self.same[m]
                out_set.add(m)
        begin: dict[int, int] = {}
        end: dict[int, int] = {}
        for k, step in enumerate(self.steps):
            for n in step.writes:
                m = self.memory_of(n)
                begin.setdefault(m, k)
                end[m] = max(end.get(m, 0), self.last_use[n])
            for n in step.reads:
                m = self.memory_of(n)
                end[m] = max(end.get(m, 0), k)
        slots: list[list[int]] = []
        free_at: list[int] = []
        slot_of: dict[int, int] = {}
        for n in sorted(begin, key=lambda n: begin[n]):
            if n in out_set or self.nodes[n].kind == LEAF:
                continue
            size = self.nodes[n].count()
            fitting = [s for s in range(len(slots)) if free_at[s] < begin[n]]
            best = next((s for s in fitting if self.nodes[slots[s][0]].count() == size), None)
            if best is None and fitting:
                weight = self.weight(n)
                best = min(fitting, key=lambda s: abs(self.weight(slots[s][0]) - weight))
            if best is None:
                best = len(slots)
                slots.append([])
                free_at.append(-1)
            slots[best].append(n)
            free_at[best] = end[n]
            slot_of[n] = best
        return slots, slot_of

    def weight(self, n: int) -> int:
        p = self.nodes[n]
        total = p.dtype.size
        for size in p.sizes:
            total *= sum(c * 61 ** len(m) for m, c in size.terms)
        return total

    # --- numbers ---

    def layout(self) -> None:
        """Where each step's parameters stand in the block, and the formula of each."""
        self.block_size = 0
        self.step_at: list[int] = []
        self.formulas: list[list[Formula]] = []
        for step in self.steps:
            self.step_at.append(self.block_size)
            if step.built is not None:
                assert step.rendered is not None
                self.formulas.append(list(step.built.formulas))
                self.block_size += step.rendered.n_slots + 3
            else:
                self.formulas.append([])
                self.block_size += step.product.slots(max(0, len(step.node.sizes) - 2)) + 3
        self.memory_ids: dict[int, int] = {}  # leaf or out -> place in the table
        for n in self.leaves:
            self.memory_ids[n] = 1 + len(self.memory_ids)
        for k, n in enumerate(self.outs):
            if self.taken[k] < 0:
                self.memory_ids[n] = 1 + len(self.memory_ids)
        # Where the memory of a chain of in-place results is: its leaf's, or that of the output which continues it.
        self.home: dict[int, int] = {self.memory_of(n): self.memory_ids[n] for n in self.outs if n in self.memory_ids}

    def table_index(self, n: int) -> int:
        """The place in the table of a node's memory; 0, the arena, for temporaries."""
        m = self.memory_of(n)
        return self.memory_ids.get(m) or self.home.get(m, 0)

    def dynamic_index(self, text: str, code: str) -> int:
        at = self.dynamic.get(text)
        if at is None:
            at = self.dynamic[text] = 1 + len(self.memory_ids) + len(self.dynamic)
            self.dynamic_formats.append(code)
        return at

    def compile_functions(self) -> None:
        """Generates `sizes`, `values` (all size formulas of the block, in order) and `inputs`."""
        self.size_slots: list[int] = []  # block slots that `values` fills, in order
        texts: list[str] = []
        self.dyn_patches: list[tuple[int, int]] = []  # (block slot, table place)
        for step, at, formulas in zip(self.steps, self.step_at, self.formulas, strict=True):
            if step.built is None:
                continue
            first = len(step.built.buffers)
            for k, f in enumerate(formulas):
                slot = at + first + k
                if f.poly is not None and not any(n[0] == "d" for n in f.poly.names()):
                    self.size_slots.append(slot)
                    texts.append(f.poly.text())
                elif f.poly is not None:
                    self.dyn_patches.append((slot, self.dynamic_index(self.with_nodes(f.poly), "q")))
                else:
                    text = f"n[{f.node}].dyn[{f.k}]" + (f".{f.part}" if f.part else "")
                    self.dyn_patches.append((slot, self.dynamic_index(text, "d")))
        self.axis_first = len(texts)
        self.axis_counts: list[int] = []
        for step in self.steps:
            polys = self.step_sizes(step)
            self.axis_counts.append(len(polys))
            texts += [p.text() for p in polys]
        self.bytes_first = len(texts)
        for members in self.slots:
            texts.append("max(" + ", ".join([self.bytes_text(n) for n in members] + ["64"]) + ")")
        self.outs_first = len(texts)
        for n in self.outs:
            texts.append(self.bytes_text(n))
        self.copies_first = len(texts)
        texts += [self.bytes_text(step.node.number) for step in self.steps if step.copies]
        for step in self.steps:
            for o in step.operands:
                if o.offset.terms:
                    self.dynamic_index(self.address_text(o), "q")
            if step.node.op.name == "addmm" and step.operands:
                for k in range(2):
                    self.dynamic_index(f"float(n[{step.node.number}].dyn[{k}])", "d")
        read = ", ".join(f"n[{self.where[s][0]}].shape[{self.where[s][1]}]" for s in self.size_names)
        names = ", ".join(self.size_names)
        pointers = [f"n[{n}].buffer.{'gpu' if self.place > 0 else 'ptr'}" for n in self.leaves]
        source = "def sizes(n):\n    return (" + read + ("," if read else "") + ")\n"
        source += "def values(" + names + "):\n    return (" + ", ".join(texts) + ("," if texts else "") + ")\n"
        source += "def pointers(n):\n    return (" + ", ".join(pointers) + ("," if pointers else "") + ")\n"
        source += "def numbers(n, t):\n    return (" + ", ".join(self.dynamic) + ("," if self.dynamic else "") + ")\n"
        self.source = source
        made: dict[str, Any] = {}
        exec(compile(source, "<isthmus plan>", "exec"), made)
        self.sizes: Callable[[list[Node]], tuple[int, ...]] = made["sizes"]
        self.values: Callable[..., tuple[int, ...]] = made["values"]
        self.read_pointers: Callable[[list[Node]], tuple[int, ...]] = made["pointers"]
        self.read_numbers: Callable[[list[Node], tuple[int, ...]], tuple[Any, ...]] = made["numbers"]

    def address_text(self, o: Operand) -> str:
        """The address of an operand that starts inside its base (less the base's place in the arena)."""
        return f"t[{self.table_index(o.base.number)}]+({self.with_nodes(o.offset)})*{o.base.dtype.size}"

    def with_nodes(self, poly: Poly) -> str:
        """A polynomial's text with its names read from the nodes."""
        import re

        def one(match: re.Match[str]) -> str:
            text = match.group(0)
            if text[0] == "d":
                node, k = text[1:].split("_")
                return f"n[{node}].dyn[{k}]"
            number, axis = self.where[text]
            return f"n[{number}].shape[{axis}]"

        return re.sub(r"\b[sd]\d+(_\d+)?\b", one, poly.text())

    def bytes_text(self, n: int) -> str:
        p = self.nodes[n]
        return f"({p.count().text()})*{p.dtype.size}"

    def step_sizes(self, step: Step) -> list[Poly]:
        """The sizes a step is bound with: a kernel's axes; of a product M, N, K, then (size, strides) of the batch axes."""
        if step.built is not None:
            return list(step.built.axes)
        node = step.node
        first = 1 if node.op.name == "addmm" else 0
        a, b = step.operands[first], step.operands[first + 1]
        rank = len(node.sizes)
        xa = node.inputs[first].sizes
        at, bt = transposed(a), transposed(b)
        polys = [node.sizes[-2], node.sizes[-1], xa[-1], a.strides[-1 if at else -2], b.strides[-1 if bt else -2]]
        d = step.operands[0] if first else None
        polys += [d.strides[-2], d.strides[-1]] if d is not None else [ZERO, ZERO]
        for axis in range(rank - 2):
            polys += [node.sizes[axis], a.strides[axis], b.strides[axis], d.strides[axis] if d is not None else ZERO]
        return polys

    # --- binding ---

    def make_frame(self) -> Frame:
        """What all bindings share: see schedule/bind.py."""
        patches: list[int] = []
        temporaries: list[tuple[int, int]] = []
        steps: list[StepFrame] = []

        def patch(slot: int, n: int) -> None:
            index = self.table_index(n)
            if index == 0:
                temporaries.append((len(patches) + 2, self.slot_of[self.memory_of(n)]))
            patches.extend((slot, index, 0))

        first = self.axis_first
        copies = iter(range(self.copies_first, self.copies_first + len(self.steps)))
        for step, at, count in zip(self.steps, self.step_at, self.axis_counts, strict=True):
            copy_at, copy_bytes = -1, -1
            if step.built is not None:
                assert step.rendered is not None
                for k, (p, _) in enumerate(step.built.buffers):
                    patch(at + k, p.number)
                if step.copies:
                    copy_at, copy_bytes = at + step.rendered.n_slots, next(copies)
                    patch(copy_at, step.node.number)
                    patch(copy_at + 1, step.reads[-1])
                n_slots = step.built.kernel.n_slots
                scratch, extra, bind_step = at + n_slots, at + n_slots + 1, step.rendered.bind
            else:
                operands = step.operands[-2:] + step.operands[:-2]  # A, B, and the addend
                patch(at, step.node.number)
                for k, o in enumerate(operands):
                    patch(at + 1 + k, o.base.number)
                    if o.offset.terms:
                        patches[-2] = self.dynamic[self.address_text(o)]
                if len(operands) == 3:
                    for k, slot in ((0, ALPHA), (1, BETA)):
                        patches += (at + slot, self.dynamic[f"float(n[{step.node.number}].dyn[{k}])"], 0)
                scratch, extra, bind_step = at + SCRATCH, 0, step.product.bind
            steps.append(StepFrame(bind_step, step.built is None, first, count, at, extra, len(patches), copy_bytes, copy_at))
            patches += (scratch, 0, 0)
            first += count
        for slot, index in self.dyn_patches:
            patches += (slot, index, 0)
        return Frame(
            [0] * self.block_size,
            self.size_slots,
            patches,
            temporaries,
            self.bytes_first,
            len(self.slots),
            self.outs_first,
            len(self.outs),
            self.backend.copy_entry(),
            self.backend.copy_shape,
            self.backend.threads(),
            steps,
            self.place > 0,
        )

    def bind(self, sizes: tuple[int, ...]) -> Binding:
        values = self.values(*sizes)
        if len(self.bindings) == CHANGING:
            # The sizes change from run to run: make all forms of the kernels now, rather than one by one later.
            for step, frame in zip(self.steps, self.frame.steps, strict=True):
                if step.rendered is not None:
                    step.rendered.prepare(values[frame.first : frame.first + frame.count], self.frame.threads)
        return bind(self.frame, values)


# --- views as memory ---


def shared_base(p: PlanNode, requested: bool) -> PlanNode:
    """What is stored where a view is kept: the node down its chain, perhaps itself, whose memory all above it can share."""
    renamed: PlanNode | None = None
    while p.kind == VIEW and not p.apart:
        if p.op.name in ("transpose", "alias", "stop_gradient") or (p.op.name == "broadcast" and not requested):
            if renamed is not None and p.op.name in ("transpose", "broadcast"):
                return renamed
        elif p.op.name == "reshape":
            renamed = renamed or p
        else:
            return p
        p = p.inputs[0]
    return p


def flat_base(p: PlanNode) -> PlanNode | None:
    """The base that a chain of reshapes reads as it lies in memory."""
    while p.kind == VIEW:
        if p.op.name not in ("reshape", "alias", "stop_gradient"):
            return None
        p = p.inputs[0]
    return p


class _Strides:
    """A `ctx` for following views: sizes and dynamic numbers stay names, anything computed is refused."""

    def __init__(self, sizes: tuple[Poly, ...]) -> None:
        self.sizes = sizes

    def dyn(self, node: PlanNode, k: int) -> Poly:
        return Poly((((f"d{node.number}_{k}",), 1),))

    def frame_size(self, axis: int) -> Poly:
        return self.sizes[axis]

    def size(self, poly: Poly) -> Any:
        raise LookupError

    index = size


def operand(x: PlanNode, stored: set[int]) -> Operand:
    """How `x` lies in the memory of what it is a view of. The base is None-like (x itself) where it does not."""
    place: tuple[Form, ...] = tuple(axis_form(a) if size.terms != ONE.terms else ORIGIN for a, size in enumerate(x.sizes))
    p = x
    ctx = _Strides(x.sizes)
    try:
        while p.kind == VIEW and p.number not in stored:
            if flat_base(p) is not None and p.op.name == "reshape":
                break
            place = p.op.read_at(ctx, p, place) if p.op.name not in ("alias", "stop_gradient") else place
            p = p.inputs[0]
    except LookupError:
        return Operand(x, (), ZERO)
    sizes = p.sizes
    while p.kind == VIEW and p.number not in stored:
        p = p.inputs[0]
    total, stride = ORIGIN, ONE
    for size, form in zip(reversed(sizes), reversed(place), strict=True):
        if size.terms != ONE.terms:
            total = total + form.scale(stride)
            stride = stride * size
    if total.values:
        return Operand(x, (), ZERO)
    strides = dict(total.terms)
    return Operand(p, tuple(strides.get(a, ZERO) for a in range(len(x.sizes))), total.offset)


def transposed(o: Operand) -> bool:
    """Whether a matrix operand that fits is read by columns: its elements lie apart along the last axis."""
    col = o.strides[-1]
    return col.terms != ONE.terms and col.terms != ZERO.terms


def layout(o: Operand) -> tuple[bool, ...]:
    """What the choice of an algorithm sees: whether the last two axes are contiguous, or not there at all."""
    return tuple(stride.terms == unit.terms for stride in o.strides[-2:] for unit in (ONE, ZERO))


def fits_library(o: Operand, p: PlanNode, k: int) -> bool:
    if not o.strides and p.inputs[k].rank:
        return False
    if any(n[0] == "d" for stride in o.strides for n in stride.names()):
        return False  # a step that a user gave: a binding is for sizes alone
    if p.op.name == "addmm" and k == 0:
        return True
    if p.inputs[k].rank < 2:
        return False
    row, col = o.strides[-2], o.strides[-1]
    sizes = p.inputs[k].sizes
    single_row, single_col = sizes[-2].terms == ONE.terms, sizes[-1].terms == ONE.terms  # their strides are 0
    if (not row.terms and not single_row) or (not col.terms and not single_col):
        return False  # repeated by a broadcast
    if p.dtype in BY_BLAS and any(times < 0 for stride in (row, col) for _, times in stride.terms):
        return False  # BLAS takes no rows that run backwards
    return col.terms == ONE.terms or row.terms == ONE.terms or single_row or single_col


__all__ = ["MAP", "Binding", "Plan", "Step"]
