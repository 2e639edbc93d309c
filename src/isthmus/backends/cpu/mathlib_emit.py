"""A small builder of LLVM IR functions over vectors, so that formulas in mathlib.py read as on paper.

A `V` is a value (an SSA name or a constant) of one element type; the number of lanes belongs to the function being
built, so the same formula gives the text for one lane (scalars) and for sixteen (vectors). Everything here is
lane-wise; `any_lane` alone looks across, and only to choose whether a rare path is run.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache

from isthmus.backends.cpu.compile import host

LLVM = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}
INT_OF = {"f32": "i32", "f64": "i64"}
MANTISSA = {"f32": 23, "f64": 52}
BIAS = {"f32": 127, "f64": 1023}


@cache
def host_has(feature: str) -> bool:
    """Whether the CPU that kernels are compiled for has an instruction set: "avx512f", "f16c"."""
    return host().has(feature)


def llvm_type(ty: str, width: int) -> str:
    scalar = LLVM.get(ty, ty)
    return scalar if width == 1 else f"<{width} x {scalar}>"


def suffix(ty: str, width: int) -> str:
    """How an intrinsic names the type: `f32`, `v16f32`."""
    return ty if width == 1 else f"v{width}{ty}"


def float_bits(ty: str, value: float) -> int:
    """The bits of the nearest float of that type."""
    code = {"f32": ("<f", "<I"), "f64": ("<d", "<Q")}[ty]
    return struct.unpack(code[1], struct.pack(code[0], value))[0]


class V:
    """A value in a function under construction."""

    __slots__ = ("fn", "ty", "ref")

    def __init__(self, fn: Fn, ty: str, ref: str):
        self.fn, self.ty, self.ref = fn, ty, ref

    @property
    def is_float(self) -> bool:
        return self.ty in LLVM

    def _like(self, other) -> V:
        return other if isinstance(other, V) else self.fn.const(self.ty, other)

    def _binary(self, other, float_op: str, int_op: str, swap=False) -> V:
        other = self._like(other)
        assert other.ty == self.ty, (self.ty, other.ty)
        a, b = (other, self) if swap else (self, other)
        op = float_op if self.is_float else int_op
        return self.fn.emit(self.ty, f"{op} {self.fn.type(self.ty)} {a.ref}, {b.ref}")

    def __add__(self, o): return self._binary(o, "fadd", "add")
    def __radd__(self, o): return self._binary(o, "fadd", "add", swap=True)
    def __sub__(self, o): return self._binary(o, "fsub", "sub")
    def __rsub__(self, o): return self._binary(o, "fsub", "sub", swap=True)
    def __mul__(self, o): return self._binary(o, "fmul", "mul")
    def __rmul__(self, o): return self._binary(o, "fmul", "mul", swap=True)
    def __truediv__(self, o): return self._binary(o, "fdiv", "fdiv")
    def __rtruediv__(self, o): return self._binary(o, "fdiv", "fdiv", swap=True)
    def __and__(self, o): return self._binary(o, "and", "and")
    def __or__(self, o): return self._binary(o, "or", "or")
    def __xor__(self, o): return self._binary(o, "xor", "xor")
    def __lshift__(self, o): return self._binary(o, "shl", "shl")
    def __rshift__(self, o): return self._binary(o, "ashr", "ashr")
    def lshr(self, o): return self._binary(o, "lshr", "lshr")
    def sdiv(self, o): return self._binary(o, "sdiv", "sdiv")
    def udiv(self, o): return self._binary(o, "udiv", "udiv")
    def srem(self, o): return self._binary(o, "srem", "srem")
    def urem(self, o): return self._binary(o, "urem", "urem")

    def __neg__(self):
        if self.is_float:
            return self.fn.emit(self.ty, f"fneg {self.fn.type(self.ty)} {self.ref}")
        return 0 - self

    def __invert__(self):
        return self ^ -1

    def _compare(self, other, ordered: str, integer: str) -> V:
        other = self._like(other)
        assert other.ty == self.ty, (self.ty, other.ty)
        op = f"fcmp {ordered}" if self.is_float else f"icmp {integer}"
        return self.fn.emit("i1", f"{op} {self.fn.type(self.ty)} {self.ref}, {other.ref}")

    # Comparisons are ordered: false where a NaN takes part. `ne` is true there, as in C.
    def __lt__(self, o): return self._compare(o, "olt", "slt")
    def __le__(self, o): return self._compare(o, "ole", "sle")
    def __gt__(self, o): return self._compare(o, "ogt", "sgt")
    def __ge__(self, o): return self._compare(o, "oge", "sge")
    def eq(self, o): return self._compare(o, "oeq", "eq")
    def ne(self, o): return self._compare(o, "une", "ne")
    def ult(self, o): return self._compare(o, "ult", "ult")
    def not_less(self, o): return self._compare(o, "uge", "sge")
    def isnan(self): return self._compare(self, "uno", "ne")

    def cast(self, op: str, ty: str) -> V:
        return self.fn.emit(ty, f"{op} {self.fn.type(self.ty)} {self.ref} to {self.fn.type(ty)}")

    def bits(self) -> V: return self.cast("bitcast", INT_OF[self.ty])
    def as_float(self, ty: str) -> V: return self.cast("bitcast", ty)
    def sext(self, ty: str) -> V: return self.cast("sext", ty)
    def zext(self, ty: str) -> V: return self.cast("zext", ty)
    def trunc_to(self, ty: str) -> V: return self.cast("trunc", ty)
    def to_f64(self) -> V: return self.cast("fpext", "f64")
    def to_f32(self) -> V: return self.cast("fptrunc", "f32")


class Fn:
    """One IR function. `text()` is the definition, `needs` what it refers to, in order."""

    def __init__(self, symbol: str, width: int, args: Sequence[str]):
        self.symbol, self.width = symbol, width
        self.args = [V(self, ty, f"%x{i}") for i, ty in enumerate(args)]
        self.lines: list[str] = []
        self.needs: dict[str, None] = {}
        self.count = 0
        self.block = "entry"

    def type(self, ty: str) -> str:
        return llvm_type(ty, self.width)

    def const(self, ty: str, value) -> V:
        if ty in LLVM:
            wide = struct.unpack("<f", struct.pack("<f", value))[0] if ty == "f32" else float(value)
            scalar = f"0x{float_bits('f64', wide):016X}"
        elif ty == "i1":
            scalar = "true" if value else "false"
        else:
            n = BITS[ty]
            scalar = str((value + (1 << n - 1)) % (1 << n) - (1 << n - 1))
        return V(self, ty, scalar if self.width == 1 else f"splat ({LLVM.get(ty, ty)} {scalar})")

    def emit(self, ty: str, text: str) -> V:
        ref = f"%v{self.count}"
        self.count += 1
        self.lines.append(f"  {ref} = {text}")
        return V(self, ty, ref)

    def need(self, *texts: str) -> None:
        for text in texts:
            self.needs[text] = None

    def intrinsic(self, name: str, *args: V, result: str | None = None) -> V:
        ty = result or args[0].ty
        return self.call(f"llvm.{name}.{suffix(args[0].ty, self.width)}", ty, args)

    def call(self, symbol: str, ty: str, args: Sequence[V]) -> V:
        if symbol.startswith("llvm."):
            kinds = ", ".join(self.type(a.ty) for a in args)
            self.need(f"declare {self.type(ty)} @{symbol}({kinds})")
        given = ", ".join(f"{self.type(a.ty)} {a.ref}" for a in args)
        return self.emit(ty, f"call {self.type(ty)} @{symbol}({given})")

    def split(self, v: V, lanes: int) -> list[str]:
        """The names of the pieces of `lanes` lanes that make up a vector."""
        if self.width == lanes:
            return [v.ref]
        kind = self.type(v.ty)
        pieces = []
        for start in range(0, self.width, lanes):
            order = ", ".join(f"i32 {i}" for i in range(start, start + lanes))
            pieces.append(self.emit(v.ty, f"shufflevector {kind} {v.ref}, {kind} poison, <{lanes} x i32> <{order}>").ref)
        return pieces

    def join(self, ty: str, pieces: list[str], lanes: int) -> V:
        """One vector of pieces of `lanes` lanes."""
        while len(pieces) > 1:
            kind = llvm_type(ty, lanes)
            order = ", ".join(f"i32 {i}" for i in range(2 * lanes))
            pieces = [
                self.emit(ty, f"shufflevector {kind} {a}, {kind} {b}, <{2 * lanes} x i32> <{order}>").ref
                for a, b in zip(pieces[::2], pieces[1::2])
            ]
            lanes *= 2
        return V(self, ty, pieces[0])

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def any_lane(self, cond: V) -> str:
        """An i1 that is true if `cond` is in any lane."""
        if self.width == 1:
            return cond.ref
        kind = suffix("i1", self.width)
        self.need(f"declare i1 @llvm.vector.reduce.or.{kind}({self.type('i1')})")
        return self.emit("i1", f"call i1 @llvm.vector.reduce.or.{kind}({self.type('i1')} {cond.ref})").ref

    def rarely(self, cond: V, usual: Sequence[V], rare: Callable[[], Sequence[V]]) -> list[V]:
        """`rare()` in the lanes where `cond` holds, `usual` in the others; `rare` runs only if some lane needs it."""
        n = self.count
        self.count += 1
        flag = self.any_lane(cond)
        start = self.block
        self.lines.append(f"  br i1 {flag}, label %rare{n}, label %join{n}, !prof !{{!\"branch_weights\", i32 1, i32 2000}}")
        self.label(f"rare{n}")
        values = [select(cond, new, old) for new, old in zip(rare(), usual)]
        end = self.block
        self.lines.append(f"  br label %join{n}")
        self.label(f"join{n}")
        return [
            self.emit(old.ty, f"phi {self.type(old.ty)} [ {old.ref}, %{start} ], [ {new.ref}, %{end} ]")
            for new, old in zip(values, usual)
        ]

    def loop_while(self, initial: Sequence[V], cond: Callable[..., V], body: Callable[..., Sequence[V]]) -> list[V]:
        """Repeats `body` over all lanes as long as `cond` holds in any."""
        n = self.count
        self.count += 1
        start = self.block
        self.lines.append(f"  br label %head{n}")
        self.label(f"head{n}")
        at = len(self.lines)
        state = [V(self, v.ty, f"%s{n}_{i}") for i, v in enumerate(initial)]
        flag = self.any_lane(cond(*state))
        self.lines.append(f"  br i1 {flag}, label %body{n}, label %done{n}")
        self.label(f"body{n}")
        after = body(*state)
        end = self.block
        self.lines.append(f"  br label %head{n}")
        self.lines[at:at] = [
            f"  {s.ref} = phi {self.type(s.ty)} [ {i.ref}, %{start} ], [ {a.ref}, %{end} ]"
            for s, i, a in zip(state, initial, after)
        ]
        self.label(f"done{n}")
        return state

    def text(self, result: V | Sequence[V], attributes: str = "alwaysinline nounwind") -> str:
        """The definition; several results come back as a struct."""
        args = ", ".join(f"{self.type(a.ty)} {a.ref}" for a in self.args)
        if isinstance(result, V):
            kind, end = self.type(result.ty), [f"  ret {self.type(result.ty)} {result.ref}"]
        else:
            kind, end, held = "{ " + ", ".join(self.type(r.ty) for r in result) + " }", [], "poison"
            for i, r in enumerate(result):
                end.append(f"  %r{i} = insertvalue {kind} {held}, {self.type(r.ty)} {r.ref}, {i}")
                held = f"%r{i}"
            end.append(f"  ret {kind} {held}")
        head = f"define internal {kind} @{self.symbol}({args}) {attributes} {{"
        return "\n".join([head, "entry:", *self.lines, *end, "}"])


def fma(a: V, b, c) -> V:
    """a * b + c, rounded once."""
    return a.fn.intrinsic("fma", a, a._like(b), a._like(c))


def select(cond: V, a, b) -> V:
    fn = cond.fn
    if not isinstance(a, V):
        a = b._like(a)
    b = a._like(b)
    t = fn.type(a.ty)
    return fn.emit(a.ty, f"select {fn.type('i1')} {cond.ref}, {t} {a.ref}, {t} {b.ref}")


def absolute(x: V) -> V: return x.fn.intrinsic("fabs", x)
def sqrt(x: V) -> V: return x.fn.intrinsic("sqrt", x)
def copysign(x: V, sign: V) -> V: return x.fn.intrinsic("copysign", x, sign)
def round_even(x: V) -> V: return x.fn.intrinsic("roundeven", x)
def truncate(x: V) -> V: return x.fn.intrinsic("trunc", x)


def at_most(x: V, bound: float) -> V:
    """min(x, bound), where NaN stays."""
    return select(x._like(bound) < x, bound, x)


def at_least(x: V, bound: float) -> V:
    """max(x, bound), where NaN stays."""
    return select(x._like(bound) > x, bound, x)


def horner(x: V, coefficients: Sequence[float]) -> V:
    """c[0] + c[1] x + c[2] x^2 + ..."""
    p = x._like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        p = fma(p, x, c)
    return p


def split_sum(a: V, b: V) -> tuple[V, V]:
    """a + b as high and low part, where |a| >= |b| or a = 0 (Dekker)."""
    high = a + b
    return high, b - (high - a)


def two_sum(a: V, b: V) -> tuple[V, V]:
    """a + b as high and low part, exactly (Knuth)."""
    high = a + b
    t = high - a
    return high, (a - (high - t)) + (b - t)


def two_product(a: V, b: V) -> tuple[V, V]:
    """a * b as high and low part, exactly."""
    b = a._like(b)
    high = a * b
    return high, fma(a, b, -high)
