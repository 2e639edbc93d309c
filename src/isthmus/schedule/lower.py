"""From a group of plan nodes to one kernel: `Builder` is the `ctx` that op records lower themselves with.

Everything a kernel computes is written as expressions at places. A node's value at a place is a load if the node is
stored by another kernel (or is a leaf), the row leaf if it is a reduction of this kernel, and otherwise its op's own
lowering: views change the place, maps combine values. So any map may be computed anywhere; what the fuser chose is only
what is stored, and which reductions share a kernel.

Numbers of a kernel become slots in the order they are first used; a `Formula` says what a slot holds at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from isthmus.graph.dtype import Dtype, bool_, complex64, float32, int64
from isthmus.graph.node import VIEW
from isthmus.kernel import scalar as s
from isthmus.kernel.loops import Axis, Index, Kernel, Load, Reduce, Side, Slot, Stage, Store
from isthmus.kernel.place import ONE, ORIGIN, Form, Poly, axis_form, name, product
from isthmus.kernel.scalar import Expr
from isthmus.schedule.sizes import PlanNode

Place = tuple[Form, ...]


class Formula(NamedTuple):
    """What a slot holds: a polynomial of sizes and dynamic integers, or dynamic number `k` of a node as a float64's bits."""

    poly: Poly | None
    node: int = 0
    k: int = 0
    part: str = ""  # "real" or "imag" of a complex number


class Root(NamedTuple):
    """One thing a kernel leaves behind.

    `kind`: "map" (store `node` at its own place), "reduce" (fold; stored if `store`), "side" (fold over the parallel
    axes), "write" (an update's values into the buffer of `node`).
    """

    kind: str
    node: PlanNode
    place: tuple[int, ...]  # frame axis of each axis of `node` (of its input 1 for "write"); -1 for axes of size 1
    store: bool = True
    stage: int = 0


class Group(NamedTuple):
    """What one kernel is made of: its frame (sizes, and which axes are reduced), form, roots and row values."""

    form: str
    frame: tuple[Poly, ...]
    reduced: frozenset[int]
    roots: tuple[Root, ...]


class Built(NamedTuple):
    kernel: Kernel
    buffers: tuple[tuple[PlanNode, bool], ...]  # by number: whose buffer, and whether it is written
    formulas: tuple[Formula, ...]  # of slots n_buffers, n_buffers + 1, ...
    axes: tuple[Poly, ...]  # sizes of the kernel's axes
    same_place: dict[int, int]  # written buffer -> read buffer that it may take over


class Builder:
    """Builds the kernel of one group."""

    def __init__(self, group: Group, stored: Callable[[PlanNode], bool], n_buffers: int, runs: Sequence[tuple[int, ...]] | None) -> None:
        self.group = group
        self.stored = stored
        self.n_buffers = n_buffers
        # Frame axes that are walked as one; runs[k] are the frame axes of kernel axis k.
        self.runs = list(runs) if runs is not None else [(a,) for a in range(len(group.frame))]
        self.axis_of = {run[-1]: k for k, run in enumerate(self.runs)}
        self.inner = {a for run in self.runs for a in run[:-1]}
        self.buffers: list[PlanNode] = []
        self.buffer_number: dict[int, int] = {}
        self.written: set[int] = set()
        self.formulas: list[Formula] = []
        self.slots: dict[Formula, int] = {}
        self.values: dict[Any, Expr] = {}
        self.rows: dict[int, tuple[int, Dtype, tuple[int, ...]]] = {}  # node -> row number, dtype, place
        self.accesses: list[Form] = []
        self.separate: set[int] = set()  # frame axes used as values, which cannot be merged
        self.reads: dict[int, set[Index]] = {}
        self.writes: dict[int, Index] = {}
        self.hides_rows = False

    # --- what op records call ---

    def read(self, node: PlanNode, k: int, place: Place, mask: Expr | None = None) -> Expr:
        return self.value(node.inputs[k], place, mask)

    def size(self, poly: Poly) -> Expr:
        value = poly.value
        if value is not None:
            return s.index_const(value)
        return Expr("param", int64, (), self.slot(Formula(poly)))

    def frame_size(self, axis: int) -> Poly:
        return self.group.frame[axis]

    def dyn(self, node: PlanNode, k: int) -> Poly:
        return name(f"d{node.number}_{k}")

    def number(self, node: PlanNode, k: int, dtype: Dtype) -> Expr:
        if dtype is complex64:
            parts = [Expr("param", float32, (), self.slot(Formula(None, node.number, k, part))) for part in ("real", "imag")]
            return s.make_complex(*parts)
        if dtype.rank < 2:
            e = Expr("param", int64, (), self.slot(Formula(name(f"d{node.number}_{k}"))))
            return s.cast(e, dtype) if dtype is not bool_ else s.ne(e, s.index_const(0))
        wide = float32 if s.is_half(dtype) else dtype
        return s.cast(Expr("param", wide, (), self.slot(Formula(None, node.number, k))), dtype)

    def index(self, form: Form) -> Expr:
        """An index as an int64 value."""
        key = ("index", form.key())
        found = self.values.get(key)
        if found is not None:
            return found
        total: Expr | None = None
        for axis, coefficient in form.terms:
            self.separate.add(axis)
            part = Expr("axis", int64, (), self.axis_of.get(axis, -1))
            if coefficient.value != 1:
                part = s.mul(part, self.size(coefficient))
            total = part if total is None else s.add(total, part)
        for value, coefficient in form.values:
            part = value if coefficient.value == 1 else s.mul(value, self.size(coefficient))
            total = part if total is None else s.add(total, part)
        if total is None:
            total = self.size(form.offset)
        elif form.offset.terms:
            total = s.add(total, self.size(form.offset))
        self.values[key] = total
        return total

    # --- values ---

    def value(self, p: PlanNode, place: Place, mask: Expr | None = None) -> Expr:
        row = self.rows.get(p.number)
        if row is not None:
            number, dtype, own = row
            expected = tuple(axis_form(a) if a >= 0 else ORIGIN for a in own)
            assert place == expected, f"row value %{p.number} is read at {place}, its own place is {expected}"
            return Expr("row", dtype, (), number)
        key = (p.number, tuple(f.key() for f in place), None if mask is None else id(mask))
        found = self.values.get(key)
        if found is None:
            if self.stored(p):
                found = self.load(p, p.sizes, place, mask)
            elif p.kind == VIEW and (base := self._flat_base(p)) is not None:
                found = self.load(base, p.sizes, place, mask)
            elif mask is None:
                found = p.op.lower(self, p, place)
            else:
                found = self._masked(p, place, mask)
            self.values[key] = found
        return found

    def _flat_base(self, p: PlanNode) -> PlanNode | None:
        """The stored node that a reshape reads as it lies in memory."""
        while p.op.name in ("reshape", "alias", "stop_gradient"):
            p = p.inputs[0]
            if self.stored(p):
                return p if p.number not in self.rows else None
        return None

    def _masked(self, p: PlanNode, place: Place, mask: Expr) -> Expr:
        """The value where `mask` holds: every load below is masked, so nothing outside is read."""
        outer = self

        class Under:
            def __getattr__(self, attribute: str) -> Any:
                return getattr(outer, attribute)

            def read(self, node: PlanNode, k: int, place: Place, inner: Expr | None = None) -> Expr:
                return outer.read(node, k, place, mask if inner is None else s.and_(mask, inner))

        zero = s.const(0, p.dtype)
        return s.select(mask, p.op.lower(Under(), p, place), zero)

    def load(self, p: PlanNode, sizes: tuple[Poly, ...], place: Place, mask: Expr | None) -> Expr:
        index = self.place_index(sizes, place)
        buffer = self.buffer(p)
        self.reads.setdefault(buffer, set()).add(index)
        e = Expr("load", p.dtype, (), Load(buffer, index, mask))
        return e

    def place_index(self, sizes: tuple[Poly, ...], place: Place) -> Index:
        """A place of a row-major value as an index into its buffer."""
        total = ORIGIN
        stride = ONE
        for size, form in zip(reversed(sizes), reversed(place), strict=True):
            if size.terms != ONE.terms:
                total = total + form.scale(stride)
                stride = stride * size
        self.accesses.append(total)
        terms = tuple((self.axis_of[a], self.literal(c)) for a, c in total.terms if a in self.axis_of)
        return Index(self.literal(total.offset), terms, tuple((v, self.literal(c)) for v, c in total.values))

    def literal(self, poly: Poly) -> int | Slot:
        value = poly.value
        return value if value is not None else Slot(self.slot(Formula(poly)))

    def slot(self, formula: Formula) -> int:
        at = self.slots.get(formula)
        if at is None:
            at = self.slots[formula] = self.n_buffers + len(self.formulas)
            self.formulas.append(formula)
        return at

    def buffer(self, p: PlanNode) -> int:
        at = self.buffer_number.get(p.number)
        if at is None:
            at = self.buffer_number[p.number] = len(self.buffers)
            self.buffers.append(p)
        return at

    # --- the kernel ---

    def build(self) -> Kernel:
        group = self.group
        stages: dict[int, tuple[list[Store], list[Reduce], list[Side]]] = {}

        def stage(k: int) -> tuple[list[Store], list[Reduce], list[Side]]:
            return stages.setdefault(k, ([], [], []))

        parallel = [a for a in range(len(group.frame)) if a not in group.reduced]
        axes = tuple(Axis(self.literal(product([group.frame[a] for a in run])), run[-1] in group.reduced) for run in self.runs)
        for root in group.roots:
            node = root.node
            forms = tuple(axis_form(a) if a >= 0 else ORIGIN for a in root.place)
            if root.kind == "map":
                value = self.value_of_root(node, forms)
                index = self.place_index(node.sizes, forms)
                full = not group.reduced or not set(parallel).issuperset(a for a in root.place if a >= 0) or not self._row_level(root)
                self._write(node, index)
                stage(root.stage)[0].append(Store(self.buffer(node), index, value, full))
            elif root.kind == "reduce":
                x = node.inputs[0]
                value = self.value(x, tuple(axis_form(a) if a >= 0 else ORIGIN for a in self._input_place(root)))
                row = len(self.rows)
                stage(root.stage)[1].append(Reduce(row, node.op.fold, value, node.dtype))
                self.rows[node.number] = (row, node.dtype, root.place)
                if root.store:
                    index = self.place_index(node.sizes, forms)
                    self._write(node, index)
                    stage(root.stage)[0].append(Store(self.buffer(node), index, Expr("row", node.dtype, (), row), False))
            elif root.kind == "side":
                value = self.value(node.inputs[0], tuple(axis_form(a) if a >= 0 else ORIGIN for a in self._input_place(root)))
                index = self.place_index(node.sizes, forms)
                self._write(node, index)
                stage(root.stage)[2].append(Side(self.buffer(node), index, value))
            else:
                value = self.value(node.inputs[1], forms)
                where, mask = node.op.write(self, node, forms)
                index = self.place_index(node.sizes, where)
                self._write(node, index)
                stage(root.stage)[0].append(Store(self.buffer(node), index, value, True, node.op.combine(node), mask))
        empty: tuple[list[Store], list[Reduce], list[Side]] = ([], [], [])
        made = tuple(
            Stage(tuple(stores), tuple(reduces), tuple(sides))
            for stores, reduces, sides in (stages.get(k, empty) for k in range(max(stages, default=-1) + 1))
        )
        dtypes = tuple(p.dtype for p in self.buffers)
        return Kernel(group.form, axes, dtypes, made, len(self.buffers) + len(self.formulas))

    def value_of_root(self, node: PlanNode, forms: Place) -> Expr:
        """A stored map's value: its lowering (it is stored by this kernel, so never a load)."""
        key = (node.number, tuple(f.key() for f in forms), None)
        found = self.values.get(key)
        if found is None:
            found = self.values[key] = node.op.lower(self, node, forms)
        return found

    def _row_level(self, root: Root) -> bool:
        used = {a for a in root.place if a >= 0}
        return not used & self.group.reduced

    def _input_place(self, root: Root) -> tuple[int, ...]:
        """The frame axes of a reduction's input: those of the kept axes, and the folded ones in order."""
        node = root.node
        folded = node.attrs[0]
        frame = iter(self._folded_axes(root))
        kept = iter(root.place)
        sizes = node.inputs[0].sizes
        return tuple((next(frame) if sizes[a].terms != ONE.terms else -1) if a in folded else next(kept) for a in range(len(sizes)))

    def _folded_axes(self, root: Root) -> list[int]:
        group = self.group
        if root.kind == "side":
            return [a for a in range(len(group.frame)) if a not in group.reduced]
        return sorted(group.reduced)

    def _write(self, node: PlanNode, index: Index) -> None:
        at = self.buffer(node)
        self.written.add(at)
        self.writes[at] = index


def mergeable(group: Group, accesses: Sequence[Form], separate: set[int]) -> list[tuple[int, ...]]:
    """Frame axes that every access walks as one: neighbours `(a, b)` with `stride[a] == stride[b] * size[b]` everywhere."""
    runs: list[list[int]] = []
    coefficients = [dict(f.terms) for f in accesses]
    for a in range(len(group.frame)):
        if runs:
            last = runs[-1][-1]
            size = group.frame[a]
            together = (last in group.reduced) == (a in group.reduced) and last not in separate and a not in separate
            if together and all(_stride(c, last) == _stride(c, a) * size for c in coefficients):
                runs[-1].append(a)
                continue
        runs.append([a])
    return [tuple(run) for run in runs]


_ZERO = Poly(())


def _stride(coefficients: dict[int, Poly], axis: int) -> Poly:
    return coefficients.get(axis, _ZERO)


def build(group: Group, stored: Callable[[PlanNode], bool]) -> Built:
    """The kernel of a group. `stored(p)` says whether p is in memory before this kernel runs."""
    first = Builder(group, stored, 0, None)
    first.build()
    runs = mergeable(group, first.accesses, first.separate)
    builder = Builder(group, stored, len(first.buffers), runs)
    kernel = builder.build()
    same: dict[int, int] = {}
    for at, index in builder.writes.items():
        for read, indices in builder.reads.items():
            if indices == {index} and read not in builder.writes and builder.buffers[read].dtype is builder.buffers[at].dtype:
                same.setdefault(at, read)
    buffers = tuple((p, k in builder.written) for k, p in enumerate(builder.buffers))
    return Built(kernel, buffers, tuple(builder.formulas), tuple(product([group.frame[a] for a in run]) for run in runs), same)
