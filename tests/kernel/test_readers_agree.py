"""The interpreter and the CPU renderer give a random kernel the same meaning.

A kernel is drawn whole: a frame, loads (strided, flipped, gathered, masked), a graph of expressions over all dtypes, and
per stage stores, reductions, side sums and once-a-row stores. Both readers run it; the renderer runs it with several
numbers of threads and sizes of pieces, which must not change a bit. What is exact (casts, integers, comparisons, moves,
`+ - * /`, sqrt, reductions of those) must agree bit for bit, apart from the bits of a NaN; functions within ulps.

`ISTHMUS_FUZZ=5000 pytest tests/kernel/test_readers_agree.py` looks at so many kernels a form, other ones each time.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, currently_in_test_context, given, note, settings
from hypothesis import strategies as st

from isthmus.graph.dtype import ALL, Dtype, bfloat16, bool_, complex64, float32, float64, int8, int32, int64, uint32
from isthmus.kernel import scalar as s
from isthmus.kernel.interpret import interpret
from isthmus.kernel.loops import Axis, Index, Kernel, Load, Reduce, Side, Slot, Stage, Store
from isthmus.kernel.scalar import Expr

renderer = pytest.importorskip("isthmus.backends.cpu.render")

FUZZ = int(os.environ.get("ISTHMUS_FUZZ", "0"))
FIRST_SLOT = 24  # numbers begin here, so that buffers can be added while a kernel is drawn
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
GUARD = 128  # bytes on both sides of a buffer that must stay as they are

REAL = [d for d in ALL if d.rank < 3]
FLOATS = [d for d in ALL if d.rank == 2]
INTEGERS = [d for d in ALL if d.rank == 1]

# function -> ulps of the result's dtype between the readers: float32 and 16-bit, float64 (where NumPy errs too)
FUNCTIONS = dict.fromkeys("exp expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh " "erf erfinv sigmoid pow_ arctan2".split(), (3, 6))


class Case:
    """A kernel with its numbers and its buffers' contents."""

    def __init__(self, kernel: Kernel, numbers: list[int], buffers: list[np.ndarray], sizes: list[int], ulps: dict[int, tuple[float, float]]) -> None:
        self.kernel = kernel
        self.numbers = numbers
        self.buffers = buffers
        self.sizes = sizes
        self.ulps = ulps  # buffer -> tolerance, where not exact


class Maker:
    """Draws one kernel."""

    def __init__(self, draw, form: str, functions: bool = False) -> None:
        self.draw = draw
        self.form = form
        self.functions = functions
        self.numbers: list[int] = []
        self.dtypes: list[Dtype] = []
        self.lengths: list[int] = []
        self.outputs: set[int] = set()
        self.ulps: dict[int, tuple[float, float]] = {}
        self.axes: list[Axis] = []
        self.sizes: list[int] = []
        self.frame()
        self.parallel = [k for k, a in enumerate(self.axes) if not a.reduced]
        self.reduced = [k for k, a in enumerate(self.axes) if a.reduced]
        self.in_place: list[tuple[int, Index]] = []  # inputs that may be overwritten where they are read

    # -- small choices

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def choice(self, options):
        return self.draw(st.sampled_from(list(options)))

    def number(self, x: int) -> int | Slot:
        """`x` as a literal or in a slot."""
        return x if self.chance(40) else self.slot(x)

    def slot(self, bits: int) -> Slot:
        self.numbers.append(bits)
        return Slot(FIRST_SLOT + len(self.numbers) - 1)

    def frame(self) -> None:
        small = st.integers(1, 6)
        length = st.one_of(st.integers(1, 40), st.integers(41, 300), st.sampled_from([31, 32, 33, 63, 64, 65, 127, 128, 4095, 4096, 4097, 8191, 9001, 16385]))
        if self.form in ("map", "scatter"):
            kinds = [False] * self.draw(st.integers(0, 3))
            sizes = [self.draw(small) for _ in kinds]
            if sizes:
                sizes[-1] = self.draw(st.integers(1, 100))
        else:
            kinds = [self.chance(30) for _ in range(self.draw(st.integers(0, 2)))] + [self.form == "row"]
            if self.form == "column" and not any(kinds):
                kinds.insert(self.draw(st.integers(0, len(kinds) - 1)), True)
            sizes = [self.draw(small) for _ in kinds]
            long = self.draw(st.sampled_from([k for k, reduced in enumerate(kinds) if reduced]))
            sizes[long] = self.draw(length)
            others = math.prod(sizes) // sizes[long]
            if sizes[long] * others > 60_000:
                sizes[long] = 60_000 // others
            rest = [k for k, reduced in enumerate(kinds) if not reduced]
            if rest and math.prod(sizes) < 2000:
                sizes[rest[-1]] = self.draw(st.integers(1, 150))
        self.sizes = sizes
        self.axes = [Axis(self.number(n), reduced) for n, reduced in zip(sizes, kinds, strict=True)]

    # -- buffers and places

    def buffer(self, dtype: Dtype, length: int) -> int:
        self.dtypes.append(dtype)
        self.lengths.append(length)
        return len(self.dtypes) - 1

    def exact_place(self, axes: list[int]) -> tuple[Index, int]:
        """A place of its own for each index of `axes`, and the length of a buffer that has them all."""
        order = list(axes) if self.chance(60) else self.draw(st.permutations(axes))
        offset, stride, terms = self.draw(st.integers(0, 3)) if self.chance(30) else 0, 1, {}
        plain = self.chance(60)
        for axis in reversed(order):
            step = stride if plain else stride * self.draw(st.integers(1, 3))
            stride = step * self.sizes[axis]
            if not plain and self.chance(30):
                offset += step * (self.sizes[axis] - 1)
                step = -step
            terms[axis] = step
        length = 1 + offset + sum(terms[a] * (self.sizes[a] - 1) for a in axes if terms[a] > 0)
        index = Index(self.number(offset), tuple((a, self.number(terms[a])) for a in sorted(terms)))
        return index, length + self.draw(st.integers(0, 2))

    def any_place(self, axes: list[int], pool: list[Expr]) -> tuple[Index, int]:
        """A place for each index of `axes`, perhaps shared: broadcast, windows, gathered."""
        if self.chance(50):
            some = [a for a in axes if self.chance(70)]
            return self.exact_place(some)
        terms = {a: self.draw(st.integers(-2, 3)) for a in axes if self.chance(70)}
        low = sum(min(0, t * (self.sizes[a] - 1)) for a, t in terms.items())
        high = sum(max(0, t * (self.sizes[a] - 1)) for a, t in terms.items())
        values = []
        for _ in range(self.draw(st.integers(0, 2))):
            n, stride = self.draw(st.integers(1, 50)), self.draw(st.integers(1, 3))
            values.append((self.bounded(n, pool), self.number(stride)))
            high += stride * (n - 1)
        return Index(self.number(-low), tuple((a, self.number(t)) for a, t in sorted(terms.items())), tuple(values)), high - low + 1

    def bounded(self, n: int, pool: list[Expr]) -> Expr:
        """An int64 expression within `0 .. n-1`."""
        x = s.cast(self.pick(self.choice([int32, int64, uint32]), pool), int64)
        return s.imod(x, s.const(n, int64) if self.chance(50) else Expr("param", int64, (), self.slot(n)))

    # -- expressions

    def new_load(self, axes: list[int], pool: list[Expr], dtype: Dtype) -> Expr:
        if axes and self.chance(25):  # a pad: part of an axis is outside the buffer
            index, length = self.exact_place(axes)
            axis = self.choice(axes)
            before, after = self.draw(st.integers(0, 3)), self.draw(st.integers(0, 3))
            i = Expr("axis", int64, (), axis)
            mask = s.and_(s.ge(i, s.const(before, int64)), s.lt(i, s.const(self.sizes[axis] - after, int64)))
            stride = dict(index.terms)[axis]
            step = self.value_of(stride)
            offset = self.value_of(index.offset)
            inside = max(0, self.sizes[axis] - after - before)
            if step > 0:
                offset, length = offset - before * step, length - (self.sizes[axis] - inside) * step
            if inside and length > 0 and step > 0:
                return Expr("load", dtype, (), Load(self.buffer(dtype, length), Index(self.number(offset), index.terms), mask))
        if self.chance(15):
            index, length = self.exact_place(axes)
            found = self.buffer(dtype, length)
            if len(axes) == len(self.axes):
                self.in_place.append((found, index))
        else:
            index, length = self.any_place(axes, pool)
            same = [k for k, d in enumerate(self.dtypes) if d is dtype and k not in self.outputs and all(k != b for b, _ in self.in_place)]
            if same and self.chance(30):
                found = self.choice(same)
                self.lengths[found] = max(self.lengths[found], length)
            else:
                found = self.buffer(dtype, length)
        mask = self.pick(bool_, pool) if pool and self.chance(15) else None
        return Expr("load", dtype, (), Load(found, index, mask))

    def value_of(self, x: int | Slot) -> int:
        return self.numbers[x.number - FIRST_SLOT] if isinstance(x, Slot) else x

    def leaf(self, axes: list[int], pool: list[Expr]) -> Expr:
        what = self.draw(st.integers(0, 9))
        if what == 0 and axes:
            return Expr("axis", int64, (), self.choice(axes))
        dtype = self.choice(ALL)
        if what == 1:
            return s.const(self.draw(constants(dtype)), dtype)
        if what == 2 and dtype is not complex64:
            value = self.draw(constants(dtype))
            bits = struct.unpack("<q", struct.pack("<d", float(value)))[0] if dtype.rank == 2 else int(value)
            return Expr("param", dtype, (), self.slot((bits + (1 << 63)) % (1 << 64) - (1 << 63)))
        if len(self.dtypes) > FIRST_SLOT - 12:
            return s.const(self.draw(constants(dtype)), dtype)
        return self.new_load(axes, pool, dtype)

    def pick(self, dtype: Dtype, pool: list[Expr]) -> Expr:
        """A value of the pool as `dtype`."""
        right = [e for e in pool if e.dtype is dtype]
        if right and self.chance(80):
            return right[-1 - self.draw(st.integers(0, len(right) - 1))]
        if pool:
            return s.cast(pool[-1 - self.draw(st.integers(0, len(pool) - 1))], dtype)
        return s.const(self.draw(constants(dtype)), dtype)

    def grow(self, axes: list[int], pool: list[Expr], seen: list[Expr], n_ops: int) -> None:
        """Add leaves and operations to `pool`; arguments come from `seen` too."""
        for _ in range(self.draw(st.integers(1, 3))):
            pool.append(self.leaf(axes, seen + pool))
        for _ in range(n_ops):
            pool.append(self.operation(seen + pool))

    def operation(self, pool: list[Expr]) -> Expr:
        dtype = pool[-1 - self.draw(st.integers(0, len(pool) - 1))].dtype if self.chance(75) else self.choice(ALL)

        def pick(d: Dtype = dtype) -> Expr:
            return self.pick(d, pool)

        shared = [lambda: s.select(pick(bool_), pick(), pick()), lambda: s.cast(pick(), self.choice(ALL))]
        compare = [lambda f=f: f(pick(), pick()) for f in (s.eq, s.ne, s.lt, s.le, s.gt, s.ge)]
        if dtype is bool_:
            options = [lambda f=f: f(pick(), pick()) for f in (s.and_, s.or_, s.xor, s.eq, s.ne)] + [lambda: s.not_(pick())]
        elif dtype.rank == 1:
            binary = (s.add, s.sub, s.mul, s.min_, s.max_, s.idiv, s.imod, s.pow_, s.and_, s.or_, s.xor, s.shl, s.shr)
            options = [lambda f=f: f(pick(), pick()) for f in binary]
            options += [lambda f=f: f(pick()) for f in (s.neg, s.abs_, s.not_)]
            options += [lambda: s.shr(pick(), s.const(self.draw(st.integers(0, 127)), dtype)), lambda: s.shl(pick(), s.const(self.draw(st.integers(0, 127)), dtype))]
            options += compare + [lambda: self.bits(dtype, pool)]
        elif dtype is complex64:
            options = [lambda f=f: f(pick(), pick()) for f in (s.add, s.sub, s.mul, s.div)] + [lambda: s.neg(pick()), lambda: s.abs_(pick())]
            options += [lambda: s.make_complex(pick(float32), pick(float32)), lambda: s.real(pick()), lambda: s.imag(pick())] + compare[:4]
        else:
            options = [lambda f=f: f(pick(), pick()) for f in (s.add, s.sub, s.mul, s.div, s.imod, s.idiv)]
            options += [lambda f=f: no_minus_zero(f(pick(), pick())) for f in (s.min_, s.max_)]
            options += [lambda f=f: f(pick()) for f in (s.neg, s.abs_, s.floor, s.ceil, s.trunc, s.rint, s.sqrt)]
            options += [lambda: s.copysign(pick(), no_nan(pick()))] + compare + [lambda: self.bits(dtype, pool)]
        return self.choice(options + shared)()

    def bits(self, dtype: Dtype, pool: list[Expr]) -> Expr:
        """The same bits as another dtype; not of a NaN, which has many."""
        other = self.choice([d for d in REAL if d.size == dtype.size and d is not bool_])
        x = self.pick(other, pool)
        return s.bitcast(no_nan(x) if other.rank == 2 else x, dtype)

    # -- what is done with values

    def store(self, axes: list[int], pool: list[Expr], full: bool, last: bool) -> Store:
        value = self.result(pool)
        mask = self.pick(bool_, pool) if self.chance(20) else None
        if self.functions and value.dtype.rank == 2:
            name = self.choice(FUNCTIONS)
            value = getattr(s, name)(*(self.pick(value.dtype, pool) for _ in range(2 if name in ("pow_", "arctan2") else 1)))
            return self.new_store(axes, value, full, mask, FUNCTIONS[name])
        if full and last and self.chance(40):
            fitting = [(b, index) for b, index in self.in_place if self.dtypes[b] is value.dtype and b not in self.outputs]
            if fitting:
                buffer, index = self.choice(fitting)
                self.outputs.add(buffer)
                return Store(buffer, index, value, True, None, mask)
        return self.new_store(axes, value, full, mask, None)

    def new_store(self, axes: list[int], value: Expr, full: bool, mask: Expr | None, ulps) -> Store:
        index, length = self.exact_place(axes)
        buffer = self.buffer(value.dtype, length)
        self.outputs.add(buffer)
        if ulps:
            self.ulps[buffer] = ulps
        return Store(buffer, index, value, full, None, mask)

    def result(self, pool: list[Expr], dtypes=ALL) -> Expr:
        """One of the last values, as it is if its dtype will do."""
        value = pool[-1 - self.draw(st.integers(0, min(4, len(pool) - 1)))]
        return value if value.dtype in dtypes and self.chance(90) else s.cast(value, self.choice(dtypes))

    def scatter_store(self, pool: list[Expr]) -> Store:
        value = self.result(pool)
        combine = self.choice([None, "add", "mul", "max", "min"])
        if combine in ("max", "min"):
            value = comparable(value)
        axes = [a for a in range(len(self.axes)) if self.chance(30)]
        n, stride = self.draw(st.integers(1, 20)), self.draw(st.integers(1, 2))
        terms = {a: self.draw(st.integers(0, 2)) for a in axes}
        length = 1 + stride * (n - 1) + sum(t * (self.sizes[a] - 1) for a, t in terms.items())
        index = Index(0, tuple((a, self.number(t)) for a, t in sorted(terms.items())), ((self.bounded(n, pool), self.number(stride)),))
        buffer = self.buffer(value.dtype, length)
        self.outputs.add(buffer)
        mask = self.pick(bool_, pool) if self.chance(20) else None
        return Store(buffer, index, value, True, combine, mask)

    def reduce(self, number: int, pool: list[Expr]) -> tuple[Reduce, Expr]:
        """A reduction, and its result for others to read."""
        kind = self.choice(["sum", "sum", "sum", "prod", "max", "min", "all", "any", "argmax", "argmin"])
        if kind in ("all", "any"):
            return Reduce(number, kind, self.pick(bool_, pool), bool_), Expr("row", bool_, (), number)
        value = self.result(pool, [d for d in ALL if d is not bool_ or kind not in ("sum", "prod")])
        if kind in ("argmax", "argmin"):
            value = comparable(value) if value.dtype is complex64 else value
            return Reduce(number, kind, value, uint32), Expr("row", uint32, (), number)
        if kind in ("max", "min"):
            value = comparable(value)
            return Reduce(number, kind, value, value.dtype), no_minus_zero(Expr("row", value.dtype, (), number))
        dtype = float32 if s.is_half(value.dtype) else value.dtype
        return Reduce(number, kind, value, dtype), Expr("row", dtype, (), number)

    def side(self, pool: list[Expr]) -> Side:
        value = self.result(pool, [d for d in ALL if d is not bool_ and d is not complex64])
        index, length = self.exact_place(self.reduced)
        buffer = self.buffer(value.dtype, length)
        self.outputs.add(buffer)
        return Side(buffer, index, value)

    def stages(self) -> tuple[Stage, ...]:
        every = list(range(len(self.axes)))
        full: list[Expr] = []
        if self.form in ("map", "scatter"):
            self.grow(every, full, [], self.draw(st.integers(1, 14)))
            n = self.draw(st.integers(1, 3))
            if self.form == "map":
                return (Stage(tuple(self.store(every, full, True, True) for _ in range(n))),)
            return (Stage(tuple(self.scatter_store(full) for _ in range(n))),)
        once: list[Expr] = []
        made = []
        n_stages, number = self.draw(st.integers(1, 3)), 0
        for t in range(n_stages):
            last = t == n_stages - 1
            self.grow(every, full, once, self.draw(st.integers(0, 8)))
            seen = full + once
            stores = [self.store(every, seen, True, last) for _ in range(self.draw(st.integers(0, 2)))]
            reduces, results = [], []
            for _ in range(self.draw(st.integers(0 if last and stores else 1, 2))):
                reduce, result = self.reduce(number, seen)
                reduces.append(reduce)
                results.append(result)
                number += 1
            sides = [self.side(seen) for _ in range(self.draw(st.integers(0, 1)))] if self.form == "row" and self.chance(30) else []
            once += results
            self.grow(self.parallel, once, [], self.draw(st.integers(0, 4)))
            stores += [self.new_store(self.parallel, e, False, None, None) for e in results if self.chance(80)]
            if self.chance(50):
                stores.append(self.store(self.parallel, once, False, last))
            made.append(Stage(tuple(stores), tuple(reduces), tuple(sides)))
        return tuple(made)

    def case(self) -> Case:
        stages = self.stages()
        kernel = Kernel(self.form, tuple(self.axes), tuple(self.dtypes), stages, FIRST_SLOT + len(self.numbers))
        rng = np.random.default_rng(self.draw(st.integers(0, 1 << 32)))
        wild = self.chance(40)
        buffers = [contents(rng, d, n, wild, clean=k in self.outputs) for k, (d, n) in enumerate(zip(self.dtypes, self.lengths, strict=True))]
        return Case(kernel, self.numbers, buffers, self.sizes, self.ulps)


def no_minus_zero(x: Expr) -> Expr:
    """`x + 0`, since min and max may give either zero."""
    return s.add(x, s.const(0, x.dtype)) if x.dtype.rank >= 2 else x


def no_nan(x: Expr) -> Expr:
    return s.select(s.eq(x, x), x, s.const(0, x.dtype))


def comparable(x: Expr) -> Expr:
    """Without what makes an extreme depend on the order: zeros of both signs; of complex numbers, NaN."""
    if x.dtype is complex64:
        return s.make_complex(no_nan(no_minus_zero(s.real(x))), no_nan(no_minus_zero(s.imag(x))))
    return no_minus_zero(x)


def constants(dtype: Dtype):
    if dtype is bool_:
        return st.booleans()
    if dtype.rank == 1:
        low, high = (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.category == "signed" else (0, (1 << dtype.bits) - 1)
        return st.one_of(st.integers(max(low, -3), 9), st.integers(low, high), st.sampled_from([low, high]))
    some = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, -0.0, 3.0, 0.1, -2.75, 1e-3, 7e4, 1e30, -1e-40, 1e300, math.inf, -math.inf, math.nan])
    return some if dtype.rank == 2 else st.builds(complex, some, some)


def contents(rng: np.random.Generator, dtype: Dtype, n: int, wild: bool, clean: bool) -> np.ndarray:
    if dtype is bool_:
        return rng.integers(0, 2, n).astype(np.bool_)
    if dtype.rank == 1:
        limits = np.iinfo(dtype.numpy)
        far = rng.integers(limits.min, limits.max, n, dtype.numpy, endpoint=True)
        near = rng.integers(max(limits.min, -5), 10, n).astype(dtype.numpy)
        return np.where(rng.random(n) < (0.5 if wild else 0.1), far, near)
    if dtype is complex64:
        z = np.empty(n, np.complex64)
        z.real, z.imag = contents(rng, float32, n, wild, clean), contents(rng, float32, n, wild, clean)
        return z
    x = np.where(rng.random(n) < 0.3, rng.integers(-4, 5, n), rng.standard_normal(n) * 3.0)
    if wild:
        x = np.where(rng.random(n) < 0.3, x * 2.0 ** rng.integers(-140, 140, n), x)
        x = np.where(rng.random(n) < 0.1, rng.choice([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 6e-8, 3.4e38, 65504.0, 1e308], n), x)
    if clean:
        x = x + 0.0
    with np.errstate(all="ignore"):
        return x.astype(np.float32).astype(dtype.numpy) if dtype is not float64 else x


# -- running ------------------------------------------------------------------------------------------------------------


def launch(case: Case, buffers: list[np.ndarray], threads: int, grain: int | None) -> None:
    made = renderer.render(case.kernel)
    plan = made.bind(tuple(case.sizes), threads)
    scratch = np.full(plan.scratch_bytes + 192, 0xAB, np.uint8)
    start = -(-scratch.ctypes.data // 64) * 64
    slots = [b.ctypes.data for b in buffers] + [0] * (FIRST_SLOT - len(buffers)) + case.numbers
    p = np.array([x & 0xFFFF_FFFF_FFFF_FFFF for x in (*slots, start, *plan.extra)], np.uint64)
    assert len(p) == made.n_slots
    for address, units, wanted in plan.phases:
        step = wanted if case.kernel.form == "scatter" else grain or wanted
        step = max(1, step, units // 500)
        for k, begin in enumerate(range(0, units, step)):
            ENTRY(address)(p.ctypes.data, begin, min(units, begin + step), k % threads)
    assert (scratch[start - scratch.ctypes.data + plan.scratch_bytes :] == 0xAB).all(), "wrote past the scratch"


def check(case: Case) -> None:
    if currently_in_test_context():
        note(f"sizes {case.sizes}, slots from p{FIRST_SLOT}: {case.numbers}\n{case.kernel.text()}")
    expected = [b.copy() for b in case.buffers]
    interpret(case.kernel, [0] * FIRST_SLOT + case.numbers, expected)
    first = None
    for threads, grain in ((1, None), (2, None), (2, 1), (3, 7), (8, None)):
        raws = [np.full(b.nbytes + 2 * GUARD, 0xCD, np.uint8) for b in case.buffers]
        views = [raw[GUARD : GUARD + b.nbytes].view(b.dtype) for raw, b in zip(raws, case.buffers, strict=True)]
        for view, b in zip(views, case.buffers, strict=True):
            view[:] = b
        launch(case, views, threads, grain)
        assert all((raw[:GUARD] == 0xCD).all() and (raw[-GUARD:] == 0xCD).all() for raw in raws), "wrote outside a buffer"
        if first is None:
            first = views
            for k, (got, want) in enumerate(zip(views, expected, strict=True)):
                compare(got, want, case.ulps.get(k), f"buffer b{k}")
        assert all(a.tobytes() == b.tobytes() for a, b in zip(views, first, strict=True)), f"{threads} threads, pieces of {grain} change bits"


def compare(got: np.ndarray, want: np.ndarray, ulps: tuple[float, float] | None, where: str) -> None:
    if got.dtype.kind == "c":
        got, want = got.view(np.float32), want.view(np.float32)
    if got.dtype.kind in "biu":
        bad = got != want
    else:
        unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[got.dtype.itemsize]
        with np.errstate(invalid="ignore"):  # a signalling NaN makes NumPy's isnan of bfloat16 complain
            both_nan = np.isnan(got) & np.isnan(want)
        bad = (got.view(unsigned) != want.view(unsigned)) & ~both_nan
        if ulps is not None:
            allowed = ulps[0] if got.dtype.itemsize < 8 else ulps[1]
            if got.dtype.itemsize == 2:
                allowed = 1
            distance = np.abs(ordered(got) - ordered(want))
            with np.errstate(invalid="ignore"):
                bad &= ~((distance <= allowed) & (np.isnan(got) == np.isnan(want)))
    at = np.flatnonzero(bad)
    assert not len(at), f"{where}: {len(at)} of {len(got)} differ, at {at[:6]}: {got[at[:6]]} for {want[at[:6]]}"


def ordered(x: np.ndarray) -> np.ndarray:
    """Numbers that count floats in order, as floats."""
    bits = x.view({2: np.int16, 4: np.int32, 8: np.int64}[x.dtype.itemsize]).astype(np.int64)
    half = 1 << (8 * x.dtype.itemsize - 1)
    return np.where(bits < 0, -(bits & (half - 1)), bits).astype(np.longdouble)


# -- each primitive, each reduction -------------------------------------------------------------------------------------

UNARY = {
    "float": [s.neg, s.abs_, s.floor, s.ceil, s.trunc, s.rint, s.sqrt],
    "integer": [s.neg, s.abs_, s.not_],
    "bool": [s.not_],
    "complex": [s.neg, s.abs_, s.real, s.imag],
}
COMPARE = [s.eq, s.ne, s.lt, s.le, s.gt, s.ge]
BINARY = {
    "float": [s.add, s.sub, s.mul, s.div, s.imod, s.idiv, *COMPARE],
    "integer": [s.add, s.sub, s.mul, s.min_, s.max_, s.idiv, s.imod, s.pow_, s.and_, s.or_, s.xor, s.shl, s.shr, *COMPARE],
    "bool": [s.and_, s.or_, s.xor, *COMPARE],
    "complex": [s.add, s.sub, s.mul, s.div, *COMPARE],
}
KIND = {0: "bool", 1: "integer", 2: "float", 3: "complex"}


def telling(dtype: Dtype) -> np.ndarray:
    """Values near which something changes, and some others."""
    rng = np.random.default_rng(dtype.index)
    if dtype is bool_:
        return np.array([False, True])
    if dtype.rank == 1:
        limits = np.iinfo(dtype.numpy)
        near = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 2**24 + 1, 2**53 + 1, 2**62 + 2**38 + 1, limits.max, limits.max - 1]
        every = {x for x in [*near, *(-x for x in near), limits.min, limits.min + 1] if limits.min <= x <= limits.max}
        return np.array([*sorted(every), *rng.integers(limits.min, limits.max, 20, dtype.numpy)], dtype.numpy)
    whole = [float(2**k + d) for k in (0, 1, 2, 7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, -0.5, 0, 0.5)]
    ties = [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-24 + 2.0**-52, 2.0**-25, 1.5 * 2.0**-25, 65519.99, 65520, 3.3961775292304601e38]
    few = [0.1, 1e-3, 6e-8, 1e-40, 1e-45, 3.4e38, 1e30, 1e300, math.inf, *rng.standard_normal(12), *(2.0 ** rng.uniform(-130, 130, 8))]
    x = np.array([*whole, *ties, *few])
    x = np.concatenate([x, -x, [math.nan]])
    if dtype is complex64:
        x = rng.permutation(x)
        z = np.empty(len(x), np.complex64)
        with np.errstate(all="ignore"):
            z.real, z.imag = x, rng.permutation(x)
        return z
    with np.errstate(all="ignore"):
        return x.astype(dtype.numpy)


def check_map(function, *columns: np.ndarray) -> None:
    dtypes = [next(d for d in ALL if d.numpy == c.dtype) for c in columns]
    line = Index(0, ((0, 1),))
    value = function(*(Expr("load", d, (), Load(k, line)) for k, d in enumerate(dtypes)))
    n, k = len(columns[0]), len(columns)
    kernel = Kernel("map", (Axis(n, False),), (*dtypes, value.dtype), (Stage((Store(k, line, value),)),), FIRST_SLOT)
    check(Case(kernel, [], [*columns, np.zeros(n, value.dtype.numpy)], [n], {}))


def pairs(dtype: Dtype) -> list[np.ndarray]:
    x = telling(dtype)
    return [np.repeat(x, len(x)), np.tile(x, len(x))]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_each_primitive_agrees(dtype):
    x = telling(dtype)
    for function in UNARY[KIND[dtype.rank]]:
        check_map(function, x)
    for function in BINARY[KIND[dtype.rank]]:
        check_map(function, *pairs(dtype))
    check_map(s.select, np.arange(len(x)) % 3 == 0, x, x[::-1].copy())
    if dtype.rank == 2:
        check_map(lambda a, b: s.copysign(a, no_nan(b)), *pairs(dtype))
        for function in (s.min_, s.max_):
            check_map(lambda a, b, f=function: no_minus_zero(f(a, b)), *pairs(dtype))


@pytest.mark.parametrize("to", ALL, ids=str)
@pytest.mark.parametrize("from_", ALL, ids=str)
def test_each_cast_agrees(from_, to):
    check_map(lambda x: s.cast(x, to), telling(from_))
    if from_.size == to.size and from_ is not bool_ and to is not bool_:
        x = telling(from_)
        check_map(lambda v: s.bitcast(v, to), x[x == x])


REDUCED = [1, 2, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097, 12_345, 33 * 4096 + 5]


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("form", ["row", "column"])
def test_each_reduction_agrees(form, dtype):
    """All kinds in one kernel, for which one text serves all sizes."""
    reduces, stores, dtypes = [], [], [dtype]
    n_slot, row_slot = Slot(FIRST_SLOT), Slot(FIRST_SLOT + 1)
    if form == "row":
        axes, at, out = (Axis(row_slot, False), Axis(n_slot, True)), Index(0, ((0, n_slot), (1, 1))), Index(0, ((0, 1),))
    else:
        outer, apart = Slot(FIRST_SLOT + 2), Slot(FIRST_SLOT + 3)
        axes = (Axis(outer, False), Axis(n_slot, True), Axis(row_slot, False))
        at, out = Index(0, ((0, apart), (1, row_slot), (2, 1))), Index(0, ((0, row_slot), (2, 1)))
    x = Expr("load", dtype, (), Load(0, at))
    y = s.cast(comparable(x), dtype)
    kinds = [("max", y, dtype), ("min", y, dtype), ("argmax", y, uint32), ("argmin", y, uint32)]
    if dtype is bool_:
        kinds += [("any", x, bool_), ("all", x, bool_)]
    else:
        kinds += [(kind, x, float32 if s.is_half(dtype) else dtype) for kind in ("sum", "prod")]
    for number, (kind, value, result) in enumerate(kinds):
        reduces.append(Reduce(number, kind, value, result))
        leaf = Expr("row", result, (), number)
        stores.append(Store(len(dtypes), out, no_minus_zero(leaf) if kind in ("max", "min") else leaf, full=False))
        dtypes.append(result)
    kernels = [Kernel(form, axes, tuple(dtypes), (Stage(tuple(stores), tuple(reduces)),), FIRST_SLOT + 4)]
    for r, kept in zip(reduces, stores, strict=True):
        alone = Stage((Store(1, out, kept.value, full=False),), (r,))
        kernels.append(Kernel(form, axes, (dtype, kept.value.dtype), (Stage((), (r._replace(number=99),)), alone) if r.number == 0 else (alone,), FIRST_SLOT + 4))
    for kernel in kernels:
        for n in REDUCED if kernel is kernels[0] else (33, 4097, 12_345):
            for outer, n_rows in [(1, 1), (1, 3), (1, 70)] if n < 100 else [(1, 1), (1, 2)] if form == "row" else [(1, 1), (1, 2), (9, 2)]:
                for wild in (False, True) if dtype.rank == 2 else (True,):
                    data = contents(np.random.default_rng(n), dtype, n * n_rows * outer, wild, clean=False)
                    outs = [np.zeros(n_rows * outer, d.numpy) for d in kernel.buffers[1:]]
                    sizes = [n_rows, n] if form == "row" else [outer, n, n_rows]
                    check(Case(kernel, [n, n_rows, outer, n * n_rows], [data, *outs], sizes, {}))


@pytest.mark.parametrize("dtype", [d for d in ALL if d is not bool_], ids=str)
def test_side_sums_agree(dtype):
    rows, n = Slot(FIRST_SLOT), Slot(FIRST_SLOT + 1)
    x = Expr("load", dtype, (), Load(0, Index(0, ((0, n), (1, 1)))))
    kernel = Kernel("row", (Axis(rows, False), Axis(n, True)), (dtype, dtype), (Stage((), (), (Side(1, Index(0, ((1, 1),)), x),)),), FIRST_SLOT + 2)
    for sizes in [(1, 5), (63, 40), (65, 3), (4096, 2), (4097, 33), (9000, 1)]:
        data = contents(np.random.default_rng(0), dtype, math.prod(sizes), False, clean=False)
        check(Case(kernel, list(sizes), [data, np.zeros(sizes[1], dtype.numpy)], list(sizes), {}))


# -- memory that is read and written ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 100])
def test_everything_is_read_before_anything_is_written(n):
    """a, b = b, a + b in place, in each form."""
    for form, axes, at in [
        ("map", (Axis(n, False),), Index(0, ((0, 1),))),
        ("row", (Axis(2, False), Axis(n, True)), Index(0, ((0, n), (1, 1)))),
        ("column", (Axis(n, True), Axis(2, False)), Index(0, ((0, 2), (1, 1)))),
    ]:
        a, b = (Expr("load", float32, (), Load(k, at)) for k in (0, 1))
        reduces = () if form == "map" else (Reduce(0, "sum", s.mul(a, b), float32),)
        once = () if form == "map" else (Store(2, Index(0, ((0 if form == "row" else 1, 1),)), Expr("row", float32, (), 0), full=False),)
        stage = Stage((Store(0, at, b), Store(1, at, s.add(a, b)), *once), reduces)
        sizes = [n] if form == "map" else [2, n] if form == "row" else [n, 2]
        data = [np.arange(2 * n, dtype=np.float32), np.arange(2 * n, dtype=np.float32) * 10, np.zeros(2, np.float32)]
        check(Case(Kernel(form, axes, (float32,) * 3, (stage,), FIRST_SLOT), [], data, sizes, {}))


def test_a_scatter_reads_what_it_wrote_at_earlier_places():
    running = s.add(Expr("load", int32, (), Load(0, Index(0, ((0, 1),)))), Expr("load", int32, (), Load(1, Index(0, ((0, 1),)))))
    kernel = Kernel("scatter", (Axis(40, False),), (int32, int32), (Stage((Store(0, Index(1, ((0, 1),)), running),)),), FIRST_SLOT)
    check(Case(kernel, [], [np.zeros(41, np.int32), np.arange(40, dtype=np.int32)], [40], {}))


# -- faults met once ---------------------------------------------------------------------------------------------------


def test_an_axis_may_be_read_with_a_literal_stride_of_zero():
    x = Expr("load", float32, (), Load(0, Index(0, ((0, 0),))))
    line = Index(0, ((0, 5), (1, 1)))
    kernel = Kernel("map", (Axis(3, False), Axis(5, False)), (float32, float32), (Stage((Store(1, line, x),)),), FIRST_SLOT)
    check(Case(kernel, [], [np.ones(1, np.float32), np.zeros(15, np.float32)], [3, 5], {}))


def test_what_varies_only_along_an_outer_reduced_axis_is_right_in_later_stages():
    """Such a value was kept for later stages, and read back where it had no place."""
    x = Expr("load", float32, (), Load(0, Index(0, ((0, 1),))))
    y = s.exp(s.div(x, x))
    stages = (
        Stage((), (Reduce(0, "sum", y, float32),)),
        Stage((Store(1, Index(0, ((0, 5), (1, 1))), s.sub(y, Expr("row", float32, (), 0))),), (Reduce(1, "sum", s.mul(y, y), float32),)),
    )
    kernel = Kernel("row", (Axis(7, True), Axis(5, True)), (float32, float32), stages, FIRST_SLOT)
    check(Case(kernel, [], [np.arange(1, 8, dtype=np.float32), np.zeros(35, np.float32)], [7, 5], {1: (8, 8)}))


@pytest.mark.parametrize("dtype", [bfloat16, int8], ids=str)
def test_the_last_lane_of_a_row_of_known_length_is_no_wider_than_its_value(dtype):
    """LLVM 22.1 stored 32 bits of it, had it known that it is one lane: llvm-project#179489."""
    x = s.cast(Expr("load", float32, (), Load(0, Index(0, ()))), dtype)
    for n in (1, 17, 33, 65):
        for form, axes, at in (("row", (Axis(n, True),), Index(0, ((0, 1),))), ("map", (Axis(n, False),), Index(0, ((0, 1),)))):
            kernel = Kernel(form, axes, (float32, dtype), (Stage((Store(1, at, x),)),), FIRST_SLOT)
            check(Case(kernel, [], [np.full(1, 3.5, np.float32), np.zeros(n, dtype.numpy)], [n], {}))


# -- random kernels -----------------------------------------------------------------------------------------------------


def drawn(form: str, functions: bool = False):
    @st.composite
    def cases(draw) -> Case:
        return Maker(draw, form, functions).case()

    return cases()


look = settings(
    max_examples=FUZZ or 60,
    deadline=None,
    derandomize=not FUZZ,
    database=None,
    phases=[Phase.generate, Phase.shrink],  # Phase.explain traces every line
    suppress_health_check=list(HealthCheck),
)


@look
@given(drawn("map"))
def test_maps_agree(case):
    check(case)


@look
@given(drawn("row"))
def test_rows_agree(case):
    check(case)


@look
@given(drawn("column"))
def test_columns_agree(case):
    check(case)


@look
@given(drawn("scatter"))
def test_scatters_agree(case):
    check(case)


@look
@given(drawn("map", functions=True))
def test_functions_agree_within_ulps(case):
    check(case)


@look
@given(drawn("row", functions=True))
def test_functions_in_rows_agree_within_ulps(case):
    check(case)
