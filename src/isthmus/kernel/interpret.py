"""What a `Kernel` means, in NumPy: the oracle of the renderers' tests, and what runs on a simulated device.

Every expression becomes one array over the frame (axes it does not depend on have size 1), so a kernel costs a few NumPy
calls an instruction. Large frames are walked in slabs of their outermost parallel axis. Whatever IEEE 754 defines
(`+ - * /`, sqrt, casts, comparisons) and the order of sums (docs/design/cpu_abi.md) is met bit for bit; transcendental
functions of float32 are computed in float64 and rounded once, so they lie within about half an ulp of the truth.

Memory: in a stage, every load sees what was there before the stage's stores (in the scatter form: before the stores of
its own place), and row stores are evaluated after the walk. An index out of its buffer raises `IndexError`.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from isthmus.graph.dtype import ALL, Dtype, bfloat16, bool_, float32, float64, uint64
from isthmus.kernel import scalar as s
from isthmus.kernel.loops import Index, Kernel, Load, Slot, Stage, Store, linearize
from isthmus.kernel.scalar import Expr
from isthmus.kernel.show import stage_roots

Array = np.ndarray[Any, np.dtype[Any]]
Line = tuple[int, Expr, tuple[int, ...]]

SLAB = 1 << 18  # places of a frame held at once: 50 float64 values of so many are 100 MB
LANES, CHUNK = 32, 4096  # row rule
BLOCK = 64  # column rule


def interpret(kernel: Kernel, params: Sequence[int], buffers: Sequence[Array]) -> None:
    """Run `kernel`, writing into `buffers`.

    Args:
        kernel: What to run.
        params: The slots: `params[k]` for `k >= len(buffers)` is the int64 (or the float64's bits) in slot `k`; earlier ones
            (addresses) are not looked at.
        buffers: Flat arrays in the buffers' dtypes. Some may be the same array, if read and written at the same place.
    """
    assert len(buffers) == len(kernel.buffers), f"{len(buffers)} buffers for {len(kernel.buffers)}"
    for k, (buffer, dtype) in enumerate(zip(buffers, kernel.buffers, strict=True)):
        assert buffer.dtype == dtype.numpy and buffer.ndim == 1, f"buffer {k} is {buffer.dtype}{buffer.shape}, not flat {dtype.name}"
    run = _Run(kernel, params, buffers)
    with np.errstate(all="ignore"):
        for ranges in _slabs(kernel, run.sizes, _stores_meet(kernel, buffers)):
            run.slab(ranges)
        run.finish()


class _Part(NamedTuple):
    """Expressions evaluated together, equal ones once: instructions in order, and which of them are `roots[k]`."""

    lines: list[Line]
    number_of: dict[int, int]  # id(Expr) -> line

    @staticmethod
    def of(expressions: list[Expr]) -> _Part:
        known: dict[int, int] = {}
        return _Part(linearize(expressions, {}, known), known)


class _StagePlan:
    """A stage as what is evaluated at every place (`walk`) and, after the walk, once a row (`after`)."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.full = [store for store in stage.stores if store.full]
        self.once = [store for store in stage.stores if not store.full]
        self.walk = _Part.of(stage_roots(stage, walk=True))
        self.after = _Part.of(stage_roots(stage, walk=False))


class _Run:
    """One run of a kernel: its numbers, its buffers, and what is known of the slab at hand."""

    def __init__(self, kernel: Kernel, params: Sequence[int], buffers: Sequence[Array]) -> None:
        self.kernel = kernel
        self.params = params
        self.buffers = buffers
        self.sizes = [self.number(axis.size) for axis in kernel.axes]
        self.reduced = [axis.reduced for axis in kernel.axes]
        self.rank = max(1, len(kernel.axes))  # a frame without axes is taken as one of size 1, so that no value is a NumPy scalar
        self.plans = [_StagePlan(stage) for stage in kernel.stages]
        self.axes: list[Array] = []  # index along each axis of the slab, shaped to broadcast
        self.shape: tuple[int, ...] = ()
        self.rows: dict[int, Array] = {}  # results of reductions, reduced axes of size 1
        self.sides: list[tuple[int, Array, Dtype, list[Array]]] = []  # buffer, places, dtype of values, (parallel, reduced) values slab by slab

    def number(self, x: int | Slot) -> int:
        return int(self.params[x.number]) if isinstance(x, Slot) else x

    def slab(self, ranges: tuple[range, ...]) -> None:
        self.axes = [
            np.arange(r.start, r.stop, dtype=np.int64).reshape([-1 if k == axis else 1 for k in range(self.rank)])
            for axis, r in enumerate(ranges)
        ]
        self.shape = tuple(map(len, ranges)) or (1,)
        self.rows = {}
        n_sides = 0
        row_shape = tuple(1 if reduced else n for n, reduced in zip(self.shape, self.reduced, strict=False)) or (1,)
        for plan in self.plans:
            values = self.evaluate(plan.walk)
            reductions = [(r, self.reduce(r.kind, values[plan.walk.number_of[id(r.value)]], r.dtype)) for r in plan.stage.reduces]
            for side in plan.stage.sides:
                side_at = np.broadcast_to(self.place(side.index, plan.walk, values), [n if r else 1 for n, r in zip(self.shape, self.reduced, strict=True)])
                rows = self.by_reduced(values[plan.walk.number_of[id(side.value)]])
                if n_sides == len(self.sides):
                    self.sides.append((side.buffer, side_at.ravel(), side.value.dtype, []))
                self.sides[n_sides][3].append(rows)
                n_sides += 1
            for store in plan.full:
                self.store(store, self.shape, plan.walk, values)
            for r, result in reductions:
                self.rows[r.number] = result
            if plan.once:
                values = self.evaluate(plan.after)
                for store in plan.once:
                    self.store(store, row_shape, plan.after, values)

    def finish(self) -> None:
        """Add up and store the side sums."""
        for buffer, at, dtype, slabs in self.sides:
            wide = float32 if s.is_half(dtype) else dtype
            values = np.concatenate(slabs) if len(slabs) > 1 else slabs[0]
            total = column_rule(cast(values, dtype, wide), "sum", wide)
            self.buffers[buffer][_within(at, self.buffers[buffer], buffer)] = cast(total, wide, self.kernel.buffers[buffer])

    def evaluate(self, part: _Part) -> list[Array]:
        values: list[Array] = []
        for _, e, at in part.lines:
            values.append(self.value(e, [values[k] for k in at]))
        return values

    def value(self, e: Expr, args: list[Array]) -> Array:
        op, dtype = e.op, e.dtype
        one = (1,) * self.rank
        if op == "const":
            literal: Array = np.full(one, e.attr, dtype.numpy)
            return literal
        if op == "param":
            return self.param(e.attr, dtype).reshape(one)
        if op == "axis":
            axis: int = e.attr
            return self.axes[axis]
        if op == "row":
            return self.rows[e.attr]
        if op == "load":
            return self.load(e.attr, args)
        return _operate(e, args)

    def param(self, slot: int | Slot, dtype: Dtype) -> Array:
        number = self.params[slot.number if isinstance(slot, Slot) else slot]
        bits = np.array([number & 0xFFFF_FFFF_FFFF_FFFF], np.uint64)
        return cast(bits, uint64, dtype) if dtype.rank < 2 else cast(bits.view(np.float64), float64, dtype)

    def place(self, index: Index, part: _Part, values: list[Array]) -> Array:
        return self.offset(index, [values[part.number_of[id(v)]] for v, _ in index.values])

    def offset(self, index: Index, computed: list[Array]) -> Array:
        at = np.full((1,) * self.rank, self.number(index.offset), np.int64)
        for axis, stride in index.terms:
            at = at + self.axes[axis] * self.number(stride)
        for value, (_, stride) in zip(computed, index.values, strict=True):
            at = at + value * self.number(stride)
        return at

    def load(self, load: Load, args: list[Array]) -> Array:
        buffer = self.buffers[load.buffer]
        if load.mask is None:
            found: Array = buffer[_within(self.offset(load.index, args), buffer, load.buffer)]
            return found
        at, mask = np.broadcast_arrays(self.offset(load.index, args[:-1]), args[-1])
        masked = np.zeros(at.shape, buffer.dtype)
        masked[mask] = buffer[_within(at[mask], buffer, load.buffer)]
        return masked

    def store(self, store: Store, shape: tuple[int, ...], part: _Part, values: list[Array]) -> None:
        buffer = self.buffers[store.buffer]
        dtype = self.kernel.buffers[store.buffer]
        assert store.value.dtype is dtype, f"a {store.value.dtype.name} stored in a buffer of {dtype.name}"
        at = np.broadcast_to(self.place(store.index, part, values), shape)
        value = np.broadcast_to(values[part.number_of[id(store.value)]], shape)
        if store.mask is not None:
            mask = np.broadcast_to(values[part.number_of[id(store.mask)]], shape)
            at, value = at[mask], value[mask]
        at, value = _within(at.ravel(), buffer, store.buffer), value.ravel()
        if store.combine is None:
            buffer[at] = value  # of equal places the last one stays
        else:
            _combine(store.combine, dtype, buffer, at, value)

    def by_reduced(self, value: Array) -> Array:
        """`value` at every place, as (places of the parallel axes, places of the reduced axes), both row-major."""
        order = sorted(range(len(self.reduced)), key=lambda k: self.reduced[k])
        n_parallel = int(np.prod([n for n, r in zip(self.shape, self.reduced, strict=True) if not r], dtype=np.int64))
        n_reduced = int(np.prod([n for n, r in zip(self.shape, self.reduced, strict=True) if r], dtype=np.int64))
        return np.broadcast_to(value, self.shape).transpose(order).reshape(n_parallel, n_reduced)

    def reduce(self, kind: str, value: Array, dtype: Dtype) -> Array:
        rows = self.by_reduced(value)
        shape = [1 if r else n for n, r in zip(self.shape, self.reduced, strict=True)]
        from_ = _FROM_NUMPY[value.dtype]
        if kind in ("argmax", "argmin"):
            rows = cast(rows, from_, float32) if s.is_half(from_) else rows
            pick = np.argmax if kind == "argmax" else np.argmin  # both take the first NaN, else the first of the equal ones
            at: Array = pick(rows, axis=1) if rows.shape[1] else np.zeros(len(rows), np.int64)
            return at.astype(dtype.numpy).reshape(shape)
        rows = cast(rows, from_, dtype)
        total = column_rule(np.ascontiguousarray(rows.T), kind, dtype) if self.kernel.form == "column" else row_rule(rows, kind, dtype)
        return total.reshape(shape)


_FROM_NUMPY: dict[Any, Dtype] = {d.numpy: d for d in ALL}


def _within(at: Array, buffer: Array, number: int) -> Array:
    if at.size:
        low, high = int(at.min()), int(at.max())
        if low < 0 or high >= len(buffer):
            raise IndexError(f"index {low if low < 0 else high} is outside buffer b{number} of {len(buffer)} elements")
    return at


def _stores_meet(kernel: Kernel, buffers: Sequence[Array]) -> bool:
    """Whether places of a scatter must be walked one by one, as it loads, or stores twice, where it stores."""
    if kernel.form != "scatter":
        return False
    lines = [line for stage in kernel.stages for line in _StagePlan(stage).walk.lines]
    touched = [e.attr.buffer for _, e, _ in lines if e.op == "load"]
    stored = [store.buffer for stage in kernel.stages for store in stage.stores]
    pairs = [*itertools.product(stored, touched), *itertools.combinations(stored, 2)]
    return any(np.may_share_memory(buffers[a], buffers[b]) for a, b in pairs)


def _slabs(kernel: Kernel, sizes: list[int], serial: bool) -> Iterator[tuple[range, ...]]:
    """Parts of the frame, as a range for each axis, in row-major order."""
    if serial:
        for place in itertools.product(*map(range, sizes)):
            yield tuple(range(k, k + 1) for k in place)
        return
    parallel = [k for k, axis in enumerate(kernel.axes) if not axis.reduced]
    cut = next((k for k in parallel if sizes[k] > 1), None)
    if cut is None or 0 in sizes:
        yield tuple(map(range, sizes))
        return
    others = int(np.prod([n for k, n in enumerate(sizes) if k != cut], dtype=np.int64))
    step = max(1, SLAB // others)
    for start in range(0, sizes[cut], step):
        yield tuple(range(start, min(start + step, n)) if k == cut else range(n) for k, n in enumerate(sizes))


# -- reductions ---------------------------------------------------------------------------------------------------------


def row_rule(rows: Array, kind: str, dtype: Dtype) -> Array:
    """Reduce each row of `(n_rows, n)`, in the row rule's order; the accumulator is `dtype`, the rows' own."""
    if kind not in ("sum", "prod"):
        return _exact(rows, kind, dtype)
    join, start = _joined(kind, dtype), identity(kind, dtype)
    n_rows, n = rows.shape
    if n <= CHUNK:
        return _lanes(rows, join, start)
    whole = n // CHUNK
    totals = _lanes(rows[:, : whole * CHUNK].reshape(n_rows * whole, CHUNK), join, start).reshape(n_rows, whole)
    if n % CHUNK:
        totals = np.column_stack([totals, _lanes(rows[:, whole * CHUNK :], join, start)])
    return _lanes(totals, join, start)


def _lanes(rows: Array, join: Callable[[Array, Array], Array], start: Any) -> Array:
    """Each row by 32 lanes in order, then the lanes in halves."""
    total = np.full((len(rows), LANES), start, rows.dtype)
    for k in range(0, rows.shape[1], LANES):
        step = rows[:, k : k + LANES]
        total[:, : step.shape[1]] = join(total[:, : step.shape[1]], step)
    width = LANES
    while width > 1:
        width //= 2
        total = join(total[:, :width], total[:, width:])
    return total[:, 0]


def column_rule(columns: Array, kind: str, dtype: Dtype) -> Array:
    """Reduce each column of `(n, n_columns)`, in the column rule's order."""
    if kind not in ("sum", "prod"):
        return _exact(columns.T, kind, dtype)
    join, start = _joined(kind, dtype), identity(kind, dtype)
    totals = columns
    for _ in range(2):  # blocks of elements, then blocks of blocks
        n, width = totals.shape
        whole, rest = n // BLOCK, totals[n - n % BLOCK :]
        blocks = totals[: whole * BLOCK].reshape(whole, BLOCK, width).swapaxes(0, 1)
        totals = _in_order(blocks, join, start)
        if len(rest):
            totals = np.concatenate([totals, _in_order(rest, join, start)[None]])
    return _in_order(totals, join, start)


def _in_order(steps: Array, join: Callable[[Array, Array], Array], start: Any) -> Array:
    total = np.full(steps.shape[1:], start, steps.dtype)
    for step in steps:
        total = join(total, step)
    return total


def _exact(rows: Array, kind: str, dtype: Dtype) -> Array:
    """Reductions whose order does not matter."""
    result: Array
    if kind in ("any", "all"):
        result = np.any(rows, axis=1) if kind == "any" else np.all(rows, axis=1)
        return result
    if dtype.rank == 3:
        join = _joined(kind, dtype)
        rows = np.column_stack([np.full(len(rows), identity(kind, dtype), dtype.numpy), rows])
        while (n := rows.shape[1]) > 1:
            rows = np.concatenate([join(rows[:, : n // 2], rows[:, n // 2 : n // 2 * 2]), rows[:, n // 2 * 2 :]], axis=1)
        return rows[:, 0]
    function = np.maximum if kind == "max" else np.minimum
    result = function.reduce(rows, axis=1, initial=identity(kind, dtype), dtype=dtype.numpy)
    return result


def identity(kind: str, dtype: Dtype) -> Any:
    """What reduces to nothing; also the result of reducing nothing."""
    if kind in ("sum", "prod"):
        return dtype.numpy.type(kind == "prod")
    largest = kind == "min"
    if dtype is bool_:
        return largest
    if dtype.rank == 1:
        limits = np.iinfo(dtype.numpy)
        return dtype.numpy.type(limits.max if largest else limits.min)
    infinity = np.inf if largest else -np.inf
    return dtype.numpy.type(complex(infinity, infinity) if dtype.rank == 3 else infinity)


JOIN: dict[str, tuple[Callable[[Expr, Expr], Expr], Any]] = {
    "sum": (s.add, np.add),
    "prod": (s.mul, np.multiply),
    "add": (s.add, np.add),
    "mul": (s.mul, np.multiply),
    "max": (s.max_, np.maximum),
    "min": (s.min_, np.minimum),
}


def _joined(kind: str, dtype: Dtype) -> Callable[[Array, Array], Array]:
    """One step of a reduction or of a combining store; what `scalar` says of it where NumPy has its own idea."""
    meaning, ufunc = JOIN[kind]
    if dtype.rank < 3 and not s.is_half(dtype):
        plain: Callable[[Array, Array], Array] = ufunc
        return plain
    part = _Part.of([meaning(Expr("left", dtype), Expr("right", dtype))])

    def join(a: Array, b: Array) -> Array:
        values: list[Array] = []
        for _, e, at in part.lines:
            args = [values[k] for k in at]
            if e.op == "left" or e.op == "right":
                values.append(a if e.op == "left" else b)
            else:
                values.append(np.array(e.attr, e.dtype.numpy) if e.op == "const" else _operate(e, args))
        return values[-1]

    return join


def _combine(how: str, dtype: Dtype, buffer: Array, at: Array, value: Array) -> None:
    """`buffer[at[k]] = join(buffer[at[k]], value[k])` for each k in order, rounding each time."""
    ufunc = JOIN[how][1]
    if dtype.rank < 3 and not s.is_half(dtype):
        ufunc.at(buffer, at, value)
        return
    join = _joined(how, dtype)
    order = np.argsort(at, kind="stable")
    ordered = at[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)])
    nth = np.arange(len(ordered)) - np.repeat(first, np.diff(np.r_[first, len(ordered)]))  # how many of its place came before
    for k in range(int(nth.max(initial=-1)) + 1):
        now = order[nth == k]
        buffer[at[now]] = join(buffer[at[now]], value[now])


# -- primitives ---------------------------------------------------------------------------------------------------------


def _operate(e: Expr, args: list[Array]) -> Array:
    if e.op == "cast":
        return cast(args[0], e.args[0].dtype, e.dtype)
    if e.op == "bitcast":
        return np.ascontiguousarray(args[0]).view(e.dtype.numpy)
    return OPERATIONS[e.op](*args)


def cast(x: Array, from_: Dtype, to: Dtype) -> Array:
    """C's conversion; float to integer truncates, saturates and takes NaN to 0; to bool is `!= 0`; rounds once."""
    if from_ is to:
        return x
    if to is bool_:
        result: Array = x != 0
        return result
    if s.is_half(from_) and to is not float32:
        return cast(cast(x, from_, float32), float32, to)
    if from_.rank == 2 and to.rank == 1:
        return _saturate(x.astype(np.float64), to)
    if to is bfloat16:
        return round_to_bfloat16(x) if x.dtype == np.float64 else x.astype(np.float32).astype(to.numpy)
    if s.is_half(to) and from_.rank < 2:
        return x.astype(np.float32).astype(to.numpy)
    return x.astype(to.numpy)


def _saturate(x: Array, to: Dtype) -> Array:
    limits = np.iinfo(to.numpy)
    x = np.trunc(x)
    above, below = x >= 2.0 ** (to.bits - (to.category == "signed")), x < float(limits.min)
    inside = np.where(above | below | np.isnan(x), 0.0, x).astype(to.numpy)
    return np.where(above, limits.max, np.where(below, limits.min, inside)).astype(to.numpy)


def round_to_bfloat16(x: Array) -> Array:
    """float64 to bfloat16, rounded once: through float32 rounded to odd, which keeps on which side of a tie it was.

    Source: Boldo and Melquiond (2008), doi:10.1109/TC.2007.70819.
    """
    near = x.astype(np.float32)
    error = x - near.astype(np.float64)
    even = near.view(np.uint32) & 1 == 0
    away = np.nextafter(near, np.where(error > 0, np.float32(np.inf), np.float32(-np.inf)))
    return np.where((error != 0) & np.isfinite(x) & even, away, near).astype(bfloat16.numpy)


def _floor_divide(a: Array, b: Array) -> Array:
    by_zero = b == 0
    negated = np.equal(b, -1) if a.dtype.kind == "i" else np.zeros_like(by_zero)  # the least integer // -1 wraps
    quotient = np.floor_divide(a, np.where(by_zero | negated, np.ones_like(b), b))
    return np.where(by_zero, np.zeros_like(a), np.where(negated, np.negative(a), quotient))


def _modulus(a: Array, b: Array) -> Array:
    by_zero = b == 0
    negated = np.equal(b, -1) if a.dtype.kind == "i" else np.zeros_like(by_zero)
    return np.where(by_zero, a, np.remainder(a, np.where(by_zero | negated, np.ones_like(b), b)))


def _integer_power(a: Array, b: Array) -> Array:
    """By squaring; 0 where the exponent is negative, whatever the base, as in MLX."""
    base, exponent = (x.copy() for x in np.broadcast_arrays(a, b))
    negative = exponent < 0
    result = np.where(negative, np.zeros_like(base), np.ones_like(base))
    exponent[negative] = 0
    while exponent.any():
        odd = exponent & 1 == 1
        result[odd] *= base[odd]
        base *= base
        exponent >>= 1
    return result


def _shift(a: Array, b: Array, left: bool) -> Array:
    bits = 8 * a.dtype.itemsize
    beyond = b.view(f"u{b.dtype.itemsize}") >= bits  # a negative count is a large one
    count = np.where(beyond, np.zeros_like(b), b)
    if left:
        return np.where(beyond, np.zeros_like(a), np.left_shift(a, count))
    return np.where(beyond, np.where(a < 0, -np.ones_like(a), np.zeros_like(a)) if a.dtype.kind == "i" else np.zeros_like(a), np.right_shift(a, count))


def _complex(re: Array, im: Array) -> Array:
    z = np.empty(np.broadcast_shapes(re.shape, im.shape), np.complex64)
    z.real, z.imag = re, im
    return z


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # in (0, 1]: does not overflow
    return np.where(x < 0, small, 1.0) / (1.0 + small)


def _from_scipy(name: str) -> Callable[..., Any]:
    def function(x: Array) -> Any:
        return getattr(importlib.import_module("scipy.special"), name)(x)  # SciPy takes 0.2 s to import

    return function


def _in_float64(function: Callable[..., Any]) -> Callable[..., Array]:
    def rounded(*args: Array) -> Array:
        result: Array = np.asarray(function(*(x.astype(np.float64) for x in args))).astype(args[0].dtype)
        return result

    return rounded


OPERATIONS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "idiv": _floor_divide,
    "imod": _modulus,
    "ipow": _integer_power,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.bitwise_not,
    "shl": lambda a, b: _shift(a, b, left=True),
    "shr": lambda a, b: _shift(a, b, left=False),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "select": np.where,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "sqrt": np.sqrt,
    "copysign": np.copysign,
    "fmod": np.fmod,
    "complex": _complex,
    "real": lambda z: z.real.copy(),
    "imag": lambda z: z.imag.copy(),
    "sigmoid": _in_float64(_sigmoid),
    "erf": _in_float64(_from_scipy("erf")),
    "erfinv": _in_float64(_from_scipy("erfinv")),
    "pow": _in_float64(np.power),
    "arctan2": _in_float64(np.arctan2),
    **{
        name: _in_float64(getattr(np, name))
        for name in (
            "exp expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh".split()
        )
    },
}
