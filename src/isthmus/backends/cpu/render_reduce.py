"""Accumulators: one reduction in the making, over lanes (row form) or columns (column form)."""

from __future__ import annotations

import math

from isthmus.backends.cpu.render_emit import Emitter, Value, literal, register_type, vector_type
from isthmus.graph.dtype import Dtype, bool_, complex64, float32, uint32
from isthmus.kernel import scalar
from isthmus.kernel.loops import Reduce
from isthmus.kernel.scalar import Expr

ORDERED = ("sum", "prod")


def is_ordered(reduce: Reduce) -> bool:
    """Whether the order of additions shows in the result."""
    return reduce.kind in ORDERED and reduce.dtype.rank >= 2


def identity(kind: str, dtype: Dtype) -> str:
    if kind in ("sum", "any"):
        return literal(0, dtype)
    if kind in ("prod", "all"):
        return literal(1, dtype)
    least = kind in ("max", "argmax")
    if dtype is bool_:
        return literal(not least, dtype)
    if dtype.rank == 1:
        signed = dtype.category == "signed"
        low = -(1 << dtype.bits - 1) if signed else 0
        high = (1 << dtype.bits - signed) - 1
        return literal(low if least else high, dtype)
    return literal(float("-inf") if least else float("inf"), dtype)


def join(out: Emitter, kind: str, a: Value, b: Value) -> Value:
    """One step of a reduction whose state is a single value."""
    function = {"sum": scalar.add, "prod": scalar.mul, "max": scalar.max_, "min": scalar.min_, "any": scalar.or_, "all": scalar.and_}[kind]
    if a.dtype is bool_ and kind == "sum":
        function = scalar.or_
    return out.apply(function, a, b)


class Accumulator:
    """State of one reduction: `lanes` values of it, in cells that become registers.

    argmax and argmin have an index beside each value. Max and min of floats take the machine's instruction, which
    loses a NaN, and note beside it in which lanes there was one.
    """

    def __init__(self, out: Emitter, reduce: Reduce, lanes: int) -> None:
        self.out = out
        self.reduce = reduce
        self.kind = reduce.kind
        self.lanes = lanes
        self.masked = True  # column kernels do not mind what lanes without a column hold
        self.arg = reduce.kind.startswith("arg")
        value = reduce.value.dtype
        self.dtype = value if self.arg else reduce.dtype
        if self.arg and value.name in ("float16", "bfloat16"):
            self.dtype = float32
        self.noting = self.kind in ("max", "min") and self.dtype.rank == 2
        self.ty = register_type(self.dtype)
        self.type = vector_type(self.ty, lanes)
        self.cell = out.variable(self.type)
        self.imag = out.variable(self.type) if self.dtype is complex64 else ""
        self.index = out.variable(vector_type("i32", lanes)) if self.arg else ""
        self.note = out.variable(vector_type("i1", lanes)) if self.noting else ""

    def reset(self, first: str | None = None) -> None:
        """To the identity; `first` are the indices that a lane without a better one gives (argmax, argmin)."""
        out, lanes = self.out, self.lanes
        start = identity(self.kind, self.dtype)
        out.do(f"store {self.type} {out.splat(self.ty, start, lanes)}, ptr {self.cell}")
        if self.imag:
            other = start if self.kind in ("max", "min") else literal(0, self.dtype)
            out.do(f"store {self.type} {out.splat(self.ty, other, lanes)}, ptr {self.imag}")
        if self.arg:
            out.do(f"store {vector_type('i32', lanes)} {first}, ptr {self.index}")
        if self.noting:
            out.do(f"store {vector_type('i1', lanes)} {'zeroinitializer' if lanes else 'false'}, ptr {self.note}")

    def get(self) -> Value:
        out = self.out
        name = out.op(f"load {self.type}, ptr {self.cell}")
        return Value(name, self.dtype, self.lanes, out.op(f"load {self.type}, ptr {self.imag}") if self.imag else "")

    def set(self, value: Value) -> None:
        self.out.do(f"store {self.type} {value.name}, ptr {self.cell}")
        if self.imag:
            self.out.do(f"store {self.type} {value.imag}, ptr {self.imag}")

    def add(self, value: Value, index: str | None = None) -> None:
        """Take in a value a lane, where the emitter's mask has it; `index` are their places (argmax, argmin)."""
        out, lanes, mask = self.out, self.lanes, self.out.mask if self.masked else None
        value = out.widen(out.cast(value, self.dtype), lanes)
        old = self.get()
        if self.arg:
            assert index is not None
            better = self.better(value, old)
            if mask:
                better = out.op(f"and {vector_type('i1', lanes)} {better}, {mask}")
            self.set(out.select(better, value, old))
            i32 = vector_type("i32", lanes)
            was = out.op(f"load {i32}, ptr {self.index}")
            now = out.op(f"select {vector_type('i1', lanes)} {better}, {i32} {index}, {i32} {was}")
            out.do(f"store {i32} {now}, ptr {self.index}")
            return
        if self.noting:
            start = out.widen(Value(identity(self.kind, self.dtype), self.dtype, 0), lanes)
            if mask:
                value = out.select(mask, value, start)
            i1 = vector_type("i1", lanes)
            nan = out.op(f"fcmp uno {self.type} {value.name}, {value.name}")
            seen = out.op(f"load {i1}, ptr {self.note}")
            out.do(f"store {i1} {out.op(f'or {i1} {seen}, {nan}')}, ptr {self.note}")
            self.set(self.closer(value, old))
            return
        new = join(out, self.kind, old, value)
        self.set(out.select(mask, new, old) if mask else new)

    def closer(self, a: Value, b: Value) -> Value:
        """Max or min as the machine has it: `b` where either is NaN."""
        ty = self.out.type(a.dtype, a.lanes)
        which = self.out.op(f"fcmp {'ogt' if self.kind == 'max' else 'olt'} {ty} {a.name}, {b.name}")
        return self.out.select(which, a, b)

    def better(self, b: Value, a: Value) -> str:
        """Where `b` takes the place of the earlier `a`."""
        out = self.out
        kind, ty, i1 = b.dtype, out.type(b.dtype, b.lanes), vector_type("i1", b.lanes)
        up = self.kind == "argmax"
        if kind.rank == 2:
            beyond = out.op(f"fcmp {'ugt' if up else 'ult'} {ty} {b.name}, {a.name}")
            return out.op(f"and {i1} {beyond}, {out.op(f'fcmp ord {ty} {a.name}, {a.name}')}")
        if kind is complex64:
            return out.apply(lambda x, y: self.complex_better(y, x), a, b).name
        sign = "s" if kind.category == "signed" else "u"
        return out.op(f"icmp {sign}{'gt' if up else 'lt'} {ty} {b.name}, {a.name}")

    def complex_better(self, b: Expr, a: Expr) -> Expr:
        number = scalar.and_(scalar.eq(scalar.real(a), scalar.real(a)), scalar.eq(scalar.imag(a), scalar.imag(a)))
        return scalar.and_(number, scalar.complex_before(b, a, scalar.gt if self.kind == "argmax" else scalar.lt))

    def settle(self) -> Value:
        """The value a lane, NaN where one was noted."""
        value = self.get()
        if not self.noting:
            return value
        out = self.out
        i1 = vector_type("i1", self.lanes)
        nan = out.widen(Value(literal(float("nan"), self.dtype), self.dtype, 0), self.lanes)
        return out.select(out.op(f"load {i1}, ptr {self.note}"), nan, value)

    def state(self) -> tuple[Value, str]:
        index = self.out.op(f"load {vector_type('i32', self.lanes)}, ptr {self.index}") if self.arg else ""
        return self.settle(), index

    def fold(self) -> tuple[Value, str]:
        """All lanes as one: `l + (l + 16)`, then 8, 4, 2, 1. Gives the value and, for argmax and argmin, its index."""
        out = self.out
        value, index = (self.get(), "") if self.noting else self.state()
        lanes = self.lanes
        while lanes > 1:
            lanes //= 2
            low, high = (self.half(value, lanes, part) for part in (0, 1))
            if self.arg:
                pair = [self.half_of(index, "i32", lanes, part) for part in (0, 1)]
                value, index = self.pick(low, pair[0], high, pair[1])
            elif self.noting:
                value = self.closer(low, high)
            else:
                value = join(out, self.kind, low, high)
        name = out.op(f"extractelement <1 x {self.ty}> {value.name}, i64 0")
        imag = out.op(f"extractelement <1 x {self.ty}> {value.imag}, i64 0") if value.imag else ""
        if self.arg:
            index = out.op(f"extractelement <1 x i32> {index}, i64 0")
        if self.noting:
            notes = out.op(f"load <{self.lanes} x i1>, ptr {self.note}")
            any_ = out.op(f"icmp ne i{self.lanes} {out.op(f'bitcast <{self.lanes} x i1> {notes} to i{self.lanes}')}, 0")
            return out.select(any_, Value(literal(float("nan"), self.dtype), self.dtype, 0), Value(name, self.dtype, 0)), ""
        return Value(name, self.dtype, 0, imag), index

    def pick(self, a: Value, i: str, b: Value, j: str) -> tuple[Value, str]:
        """The better of two with their indices; of equal ones (two NaN are equal) the lower index."""
        out, lanes = self.out, a.lanes
        i1, i32 = vector_type("i1", lanes), vector_type("i32", lanes)
        less = out.op(f"icmp ult {i32} {j}, {i}")
        # neither is better: equal, or both NaN
        better, worse = self.better(b, a), self.better(a, b)
        equal = out.op(f"xor {i1} {out.op(f'or {i1} {better}, {worse}')}, {out.splat('i1', 'true', lanes)}")
        takes = out.op(f"or {i1} {better}, {out.op(f'and {i1} {equal}, {less}')}")
        return out.select(takes, b, a), out.op(f"select {i1} {takes}, {i32} {j}, {i32} {i}")

    def half(self, value: Value, lanes: int, part: int) -> Value:
        imag = self.half_of(value.imag, self.ty, lanes, part) if value.imag else ""
        return Value(self.half_of(value.name, self.ty, lanes, part), value.dtype, lanes, imag)

    def half_of(self, name: str, ty: str, lanes: int, part: int) -> str:
        n = 2 * lanes
        return self.out.op(f"shufflevector <{n} x {ty}> {name}, <{n} x {ty}> poison, <{lanes} x i32> {self.out.iota('i32', lanes, part * lanes)}")

    def result(self, value: Value, index: str) -> Value:
        """What the `row` leaf reads. NaN has one form: which operand's a sum keeps would show how it was walked."""
        if self.arg:
            return Value(index, uint32, value.lanes)
        if self.dtype.rank < 2 or self.dtype.rank == 2 and self.kind not in ORDERED:
            return value
        out = self.out
        ty, i1 = out.type(self.dtype, value.lanes), vector_type("i1", value.lanes)
        nan = out.splat(self.ty, literal(math.nan, self.dtype), value.lanes)
        if self.kind not in ORDERED:  # a complex number: several may be NaN, each in its way
            bad = out.op(f"fcmp uno {ty} {value.name}, {value.imag}")
            both = [out.op(f"select {i1} {bad}, {ty} {nan}, {ty} {name}") for name in (value.name, value.imag)]
            return Value(both[0], self.dtype, value.lanes, both[1])
        names = []
        for name in filter(None, (value.name, value.imag)):
            names.append(out.op(f"select {i1} {out.op(f'fcmp uno {ty} {name}, {name}')}, {ty} {nan}, {ty} {name}"))
        return Value(names[0], self.dtype, value.lanes, names[1] if value.imag else "")
