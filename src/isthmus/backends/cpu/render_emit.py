"""From scalar expressions to LLVM IR: the text of one entry function under construction.

`Emitter` holds what every loop shape (render_loops.py) needs: lines and blocks, and `value(number)`, which gives the
value of a node of the kernel at the place the emitter stands at: outer axes at known indices, the vector axis at
`lanes` consecutive ones. A value is *uniform* (one number, `lanes == 0`) until it meets something that differs along
the vector axis. Values are remembered in scopes, one a loop; `hoist` fills an outer scope with all that is known there.

bool is i1 in registers and i8 in memory; 16-bit floats are held as the float32 of the same value; complex64 is a pair.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from isthmus.backends.cpu import mathlib
from isthmus.backends.cpu.compile import FUNCTION_ATTRIBUTES, host
from isthmus.graph.dtype import Dtype, bfloat16, bool_, complex64, float16, float32, float64, int64
from isthmus.kernel import scalar
from isthmus.kernel.graph import Graph, Node
from isthmus.kernel.loops import Index, Load, Slot, Store, linearize
from isthmus.kernel.scalar import MATH, Expr, is_half

_COMPARE = {"eq": ("eq", "oeq"), "ne": ("ne", "une"), "lt": ("lt", "olt"), "le": ("le", "ole"), "gt": ("gt", "ogt"), "ge": ("ge", "oge")}
_PLAIN = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_EXACT = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundeven", "sqrt": "sqrt"}
class Value:
    """`name` is an LLVM operand of `lanes` lanes (0: uniform), `imag` the other half of a complex number."""

    __slots__ = ("dtype", "imag", "lanes", "name")

    def __init__(self, name: str, dtype: Dtype, lanes: int, imag: str = "") -> None:
        self.name = name
        self.dtype = dtype
        self.lanes = lanes
        self.imag = imag


def register_bytes(dtype: Dtype) -> int:
    return 4 if is_half(dtype) or dtype is complex64 else dtype.size


def register_type(dtype: Dtype) -> str:
    """LLVM's type of a value in a register (of a complex number: of each half)."""
    if dtype is bool_:
        return "i1"
    if dtype is float64:
        return "double"
    if dtype.rank >= 2:
        return "float"
    return f"i{dtype.bits}"


def memory_type(dtype: Dtype) -> str:
    if dtype is bool_:
        return "i8"
    if is_half(dtype):
        return "i16"
    return register_type(dtype)


def literal(value: Any, dtype: Dtype) -> str:
    if dtype is bool_:
        return "true" if value else "false"
    if dtype.rank == 1:
        return str((int(value) + (1 << dtype.bits - 1)) % (1 << dtype.bits) - (1 << dtype.bits - 1))
    number = float(value)
    if dtype is not float64:
        try:
            number = struct.unpack("<f", struct.pack("<f", number))[0]
        except OverflowError:
            number = float("inf") if number > 0 else float("-inf")
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


class Emitter:
    """One entry function in the making."""

    def __init__(self, graph: Graph, symbol: str, n_extra: int) -> None:
        self.graph = graph
        self.kernel = graph.kernel
        self.symbol = symbol
        self.head: list[str] = []
        self.lines: list[str] = []
        self.declarations: dict[str, None] = {}
        self.count = 0
        self.scopes: list[dict[object, Any]] = [{}]
        self.axes: dict[int, str] = {}  # frame axis -> its index now
        self.rows: dict[int, Value] = {}  # results of reductions
        self.vector_axis: int | None = None
        self.vector_start = "0"
        self.lanes = 0
        self.mask: str | None = None  # lanes in use, where not all are
        self.tiles: dict[int, str] = {}  # loads (by id of the node) -> where their values lie along the vector axis
        self.saved: dict[int, str] = {}  # node -> pointer of its row in scratch
        self.saved_at = "0"
        self.slots = [self.op(f"load i64, ptr {self.op(f'getelementptr i64, ptr %p, i64 {k}')}") for k in range(self.kernel.n_slots + 1 + n_extra)]
        self.pointers = [self.op(f"inttoptr i64 {self.slots[k]} to ptr") for k in range(len(self.kernel.buffers))]
        self.sizes = [self.slots[axis.size.number] if isinstance(axis.size, Slot) else self.hidden(axis.size) for axis in self.kernel.axes]

    # -- text

    def op(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def declare(self, text: str) -> None:
        self.declarations[text] = None

    def variable(self, ty: str, start: str | None = None) -> str:
        """A cell that LLVM turns into registers."""
        self.count += 1
        name = f"%c{self.count}"
        self.head.append(f"  {name} = alloca {ty}, align 64")
        if start is not None:
            self.do(f"store {ty} {start}, ptr {name}")
        return name

    def block(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def names(self, *stems: str) -> list[str]:
        self.count += 1
        return [f"{stem}{self.count}" for stem in stems]

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        then, done = self.names("then", "done")
        self.do(f"br i1 {condition}, label %{then}, label %{done}")
        self.block(then)
        self.scopes.append({})
        yield
        self.scopes.pop()
        self.do(f"br label %{done}")
        self.block(done)

    @contextmanager
    def loop(self, start: str, stop: str, step: str | int = 1) -> Iterator[str]:
        """`for i in range(start, stop, step)`; values made inside are forgotten after it."""
        body, done = self.names("body", "done")
        cell = self.variable("i64", start)
        self.do(f"br i1 {self.op(f'icmp slt i64 {start}, {stop}')}, label %{body}, label %{done}")
        self.block(body)
        i = self.op(f"load i64, ptr {cell}")
        self.scopes.append({})
        yield i
        self.scopes.pop()
        following = self.op(f"add nsw i64 {i}, {step}")
        self.do(f"store i64 {following}, ptr {cell}")
        self.do(f"br i1 {self.op(f'icmp slt i64 {following}, {stop}')}, label %{body}, label %{done}")
        self.block(done)

    @contextmanager
    def repeat(self, condition: Callable[[], str]) -> Iterator[None]:
        """`while condition():`."""
        test, body, done = self.names("test", "body", "done")
        self.do(f"br label %{test}")
        self.block(test)
        self.do(f"br i1 {condition()}, label %{body}, label %{done}")
        self.block(body)
        self.scopes.append({})
        yield
        self.scopes.pop()
        self.do(f"br label %{test}")
        self.block(done)

    def text(self) -> str:
        head = f'define void @{self.symbol}(ptr %p, i64 %begin, i64 %end, i64 %worker) {FUNCTION_ATTRIBUTES} {{\nentry:'
        return "\n".join([head, *self.head, *self.lines, "  ret void", "}"])

    # -- integers of the loops

    def i64(self, op: str, a: str | int, b: str | int) -> str:
        a, b = str(a), str(b)
        if op == "mul" and "1" in (a, b):
            return b if a == "1" else a
        if op == "mul" and "0" in (a, b):
            return "0"
        if op == "add" and "0" in (a, b):
            return b if a == "0" else a
        if op == "sub" and b == "0":
            return a
        return self.op(f"{op} i64 {a}, {b}")

    def least(self, a: str, b: str) -> str:
        return self.op(f"select i1 {self.op(f'icmp slt i64 {a}, {b}')}, i64 {a}, i64 {b}")

    def number(self, x: int | Slot) -> str:
        return self.slots[x.number] if isinstance(x, Slot) else str(x)

    def size(self, axis: int) -> str:
        return self.sizes[axis]

    def hidden(self, x: int) -> str:
        """A number that LLVM does not see through.

        Else the mask of a row's last lane may be known, and LLVM 22.1 then stores all 32 bits of a value that was cut to
        16 or 8 (llvm-project#179489): past the end of a buffer.
        """
        cell = self.variable("i64")
        self.do(f"store volatile i64 {x}, ptr {cell}")
        return self.op(f"load volatile i64, ptr {cell}")

    def product(self, axes: Iterable[int]) -> str:
        total = "1"
        for axis in axes:
            total = self.i64("mul", total, self.size(axis))
        return total

    # -- vectors

    def type(self, dtype: Dtype, lanes: int) -> str:
        return vector_type(register_type(dtype), lanes)

    def splat(self, ty: str, name: str, lanes: int) -> str:
        if not lanes:
            return name
        if not name.startswith("%"):
            return f"splat ({ty} {name})"
        key = ("splat", name, lanes)
        for scope in reversed(self.scopes):
            if key in scope:
                return str(scope[key])
        one = self.op(f"insertelement <{lanes} x {ty}> poison, {ty} {name}, i64 0")
        self.scopes[-1][key] = found = self.op(f"shufflevector <{lanes} x {ty}> {one}, <{lanes} x {ty}> poison, <{lanes} x i32> zeroinitializer")
        return found

    def widen(self, value: Value, lanes: int) -> Value:
        if value.lanes == lanes:
            return value
        assert value.lanes == 0, (value.lanes, lanes)
        ty = register_type(value.dtype)
        return Value(self.splat(ty, value.name, lanes), value.dtype, lanes, value.imag and self.splat(ty, value.imag, lanes))

    def together(self, *values: Value) -> tuple[Value, ...]:
        lanes = max(v.lanes for v in values)
        return tuple(self.widen(v, lanes) for v in values)

    def iota(self, ty: str, lanes: int, start: int = 0, step: int = 1) -> str:
        return "<" + ", ".join(f"{ty} {start + step * k}" for k in range(lanes)) + ">"

    def first_lanes(self, count: str, low: str = "0") -> str:
        """The mask of the lanes `low <= lane < count`."""
        n = self.lanes
        narrow = self.op(f"trunc i64 {count} to i16")
        indices = self.iota("i16", n)
        mask = self.op(f"icmp ult <{n} x i16> {indices}, {self.splat('i16', narrow, n)}")
        if low != "0":
            start = self.op(f"trunc i64 {low} to i16")
            above = self.op(f"icmp uge <{n} x i16> {indices}, {self.splat('i16', start, n)}")
            mask = self.op(f"and <{n} x i1> {mask}, {above}")
        return mask

    def intrinsic(self, name: str, ty: str, args: list[str], suffix: str) -> str:
        symbol = f"llvm.{name}.{suffix}"
        self.declare(f"declare {ty} @{symbol}({', '.join([ty] * len(args))})")
        return self.op(f"call {ty} @{symbol}({', '.join(f'{ty} {a}' for a in args)})")

    def select(self, condition: str, a: Value, b: Value) -> Value:
        """`condition` has as many lanes as `a` and `b`."""
        ty, lanes = self.type(a.dtype, a.lanes), a.lanes
        c = vector_type("i1", lanes)
        name = self.op(f"select {c} {condition}, {ty} {a.name}, {ty} {b.name}")
        imag = self.op(f"select {c} {condition}, {ty} {a.imag}, {ty} {b.imag}") if a.imag else ""
        return Value(name, a.dtype, lanes, imag)

    # -- evaluation

    def have(self, number: int) -> Value | None:
        for scope in reversed(self.scopes):
            found = scope.get(number)
            if found is not None:
                return found  # type: ignore[no-any-return]
        return None

    def evaluate(self, numbers: Iterable[int]) -> None:
        for k in self.graph.needed(numbers, lambda k: self.have(k) is not None or k in self.saved):
            for a in self.graph.nodes[k].args:
                if a in self.saved and self.have(a) is None:
                    self.scopes[-1][a] = self.load_saved(a)
            self.scopes[-1][k] = self.node(self.graph.nodes[k])

    def value(self, number: int) -> Value:
        found = self.have(number)
        if found is None:
            if number in self.saved:
                self.scopes[-1][number] = found = self.load_saved(number)
                return found
            self.evaluate([number])
            found = self.have(number)
            assert found is not None
        return found

    def of(self, e: Expr) -> Value:
        return self.value(self.graph.number(e))

    def hoist(self, wanted: Iterable[int], allowed: set[object]) -> None:
        """Evaluate here, once, what `wanted` needs and `allowed` axes and rows are enough for; and bases of loads."""
        numbers = self.graph.needed(wanted, lambda k: self.have(k) is not None or k in self.saved)
        self.evaluate([k for k in numbers if self.graph.nodes[k].deps <= allowed])
        for k in numbers:
            node = self.graph.nodes[k]
            if node.op == "load":
                self.hoist_base(node.attr.buffer, node.attr.index, allowed)

    def hoist_base(self, buffer: int, index: Index, allowed: set[object]) -> None:
        axes = {a for a, s in index.terms if a != self.vector_axis and (isinstance(s, Slot) or s != 0)}
        deps: set[object] = set(axes)
        for e, _ in index.values:
            deps |= self.graph.nodes[self.graph.number(e)].deps
        if deps <= allowed and self.vector_axis not in deps:
            self.base(buffer, index)

    # -- places in memory

    def base(self, buffer: int, index: Index) -> tuple[str, list[tuple[Value, str]]]:
        """The address apart from the vector axis, and the computed parts `(value, stride)` that differ along it."""
        key = ("base", buffer, index.offset, index.terms, tuple((self.graph.number(e), s) for e, s in index.values))
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]  # type: ignore[no-any-return]
        total = self.number(index.offset)
        for axis, stride in index.terms:
            if axis != self.vector_axis and stride != 0:
                total = self.i64("add", total, self.i64("mul", self.axes[axis], self.number(stride)))
        varying: list[tuple[Value, str]] = []
        for e, stride in index.values:
            value = self.of(e)
            if value.lanes:
                varying.append((value, self.number(stride)))
            else:
                total = self.i64("add", total, self.i64("mul", value.name, self.number(stride)))
        pointer = self.element(self.kernel.buffers[buffer], self.pointers[buffer], total)
        self.scopes[-1][key] = (pointer, varying)
        return pointer, varying

    def element(self, dtype: Dtype, pointer: str, at: str) -> str:
        if at == "0":
            return pointer
        unit = "i64" if dtype is complex64 else memory_type(dtype)
        return self.op(f"getelementptr inbounds {unit}, ptr {pointer}, i64 {at}")

    def stride_of(self, index: Index) -> int | Slot:
        return next((stride for axis, stride in index.terms if axis == self.vector_axis), 0)

    def addresses(self, dtype: Dtype, base: str, varying: list[tuple[Value, str]], stride: int | Slot) -> str:
        """A vector of addresses for a gather or scatter."""
        n = self.lanes
        total = ""
        if isinstance(stride, Slot) or stride:
            by = self.number(stride)
            base = self.element(dtype, base, self.i64("mul", self.vector_start, by))
            total = self.op(f"mul <{n} x i64> {self.iota('i64', n)}, {self.splat('i64', by, n)}")
        for value, by in varying:
            part = value.name if by == "1" else self.op(f"mul <{n} x i64> {value.name}, {self.splat('i64', by, n)}")
            total = self.op(f"add <{n} x i64> {total}, {part}") if total else part
        if not total:
            return self.splat("ptr", base, n)
        unit = "i64" if dtype is complex64 else memory_type(dtype)
        return self.op(f"getelementptr {unit}, ptr {base}, <{n} x i64> {total}")

    def both(self, a: str | None, b: str | None) -> str | None:
        if a is None or b is None:
            return a or b
        return self.op(f"and <{self.lanes} x i1> {a}, {b}")

    def load(self, node: Node) -> Value:
        load: Load = node.attr
        dtype = node.dtype
        if id(node) in self.tiles:
            return self.load_run(dtype, self.tiles[id(node)], None)
        guard = self.of(load.mask) if load.mask is not None else None
        base, varying = self.base(load.buffer, load.index)
        stride = self.stride_of(load.index)
        still = self.vector_axis is None or (stride == 0 and isinstance(stride, int))
        if still and not varying and (guard is None or not guard.lanes):
            return self.load_one(dtype, base, guard)
        mask = self.both(self.mask, self.widen(guard, self.lanes).name if guard else None)
        if not varying and stride == 1 and isinstance(stride, int):
            return self.load_run(dtype, self.element(dtype, base, self.vector_start), mask)
        if not varying and stride == -1 and isinstance(stride, int):
            return self.load_reversed(dtype, base, mask)
        return self.load_many(dtype, self.addresses(dtype, base, varying, stride), mask)

    def load_one(self, dtype: Dtype, pointer: str, guard: Value | None) -> Value:
        if guard is not None:
            nothing = self.spare()
            pointer = self.op(f"select i1 {guard.name}, ptr {pointer}, ptr {nothing}")
        ty = memory_type(dtype)
        raw = self.op(f"load {ty}, ptr {pointer}, align {4 if dtype is complex64 else dtype.size}")
        imag = ""
        if dtype is complex64:
            imag = self.op(f"load {ty}, ptr {self.op(f'getelementptr i8, ptr {pointer}, i64 4')}, align 4")
        value = self.from_memory(raw, dtype, 0, imag)
        if guard is not None:
            zero = Value(literal(0, dtype), dtype, 0, literal(0, dtype) if imag else "")
            value = self.select(guard.name, value, zero)
        return value

    def spare(self) -> str:
        """Eight bytes that may be read in place of those one must not."""
        if "spare" not in self.scopes[0]:
            name = "%spare"
            self.head.append(f"  {name} = alloca i64, align 8")
            self.head.append(f"  store i64 0, ptr {name}")
            self.scopes[0]["spare"] = name
        return str(self.scopes[0]["spare"])

    def load_run(self, dtype: Dtype, pointer: str, mask: str | None) -> Value:
        n = self.lanes
        if dtype is complex64:
            pairs = self.read("float", 2 * n, 4, pointer, mask and self.doubled(mask))
            halves = [self.op(f"shufflevector <{2 * n} x float> {pairs}, <{2 * n} x float> poison, <{n} x i32> {self.iota('i32', n, k, 2)}") for k in (0, 1)]
            return Value(halves[0], dtype, n, halves[1])
        return self.from_memory(self.read(memory_type(dtype), n, dtype.size, pointer, mask), dtype, n)

    def doubled(self, mask: str) -> str:
        n = self.lanes
        pairs = "<" + ", ".join(f"i32 {k // 2}" for k in range(2 * n)) + ">"
        return self.op(f"shufflevector <{n} x i1> {mask}, <{n} x i1> poison, <{2 * n} x i32> {pairs}")

    def read(self, ty: str, n: int, align: int, pointer: str, mask: str | None) -> str:
        v = f"<{n} x {ty}>"
        if mask is None:
            return self.op(f"load {v}, ptr {pointer}, align {align}")
        symbol = f"llvm.masked.load.v{n}{_SUFFIX[ty]}.p0"
        self.declare(f"declare {v} @{symbol}(ptr, <{n} x i1>, {v})")
        return self.op(f"call {v} @{symbol}(ptr align {align} {pointer}, <{n} x i1> {mask}, {v} zeroinitializer)")

    def write(self, ty: str, n: int, align: int, name: str, pointer: str, mask: str | None) -> None:
        v = f"<{n} x {ty}>"
        if mask is None:
            self.do(f"store {v} {name}, ptr {pointer}, align {align}")
            return
        symbol = f"llvm.masked.store.v{n}{_SUFFIX[ty]}.p0"
        self.declare(f"declare void @{symbol}({v}, ptr, <{n} x i1>)")
        self.do(f"call void @{symbol}({v} {name}, ptr align {align} {pointer}, <{n} x i1> {mask})")

    def reversed(self, name: str, ty: str) -> str:
        n = self.lanes
        return self.op(f"shufflevector <{n} x {ty}> {name}, <{n} x {ty}> poison, <{n} x i32> {self.iota('i32', n, n - 1, -1)}")

    def load_reversed(self, dtype: Dtype, base: str, mask: str | None) -> Value:
        first = self.i64("sub", str(1 - self.lanes), self.vector_start)
        pointer = self.op(f"getelementptr {'i64' if dtype is complex64 else memory_type(dtype)}, ptr {base}, i64 {first}")
        found = self.load_run(dtype, pointer, mask and self.reversed(mask, "i1"))
        ty = register_type(dtype)
        return Value(self.reversed(found.name, ty), dtype, self.lanes, found.imag and self.reversed(found.imag, ty))

    def load_many(self, dtype: Dtype, pointers: str, mask: str | None) -> Value:
        n = self.lanes
        ty = memory_type(dtype)
        if dtype is complex64:
            second = self.op(f"getelementptr i8, <{n} x ptr> {pointers}, i64 4")
            return Value(self.gather(ty, 4, pointers, mask), dtype, n, self.gather(ty, 4, second, mask))
        return self.from_memory(self.gather(ty, dtype.size, pointers, mask), dtype, n)

    def gather(self, ty: str, align: int, pointers: str, mask: str | None) -> str:
        n = self.lanes
        v = f"<{n} x {ty}>"
        if ty in ("i8", "i16") or host().simd_bytes < 64:
            # No instruction: one by one, without branches.
            if mask is not None:
                pointers = self.op(f"select <{n} x i1> {mask}, <{n} x ptr> {pointers}, <{n} x ptr> {self.splat('ptr', self.spare(), n)}")
            found = "poison"
            for k in range(n):
                one = self.op(f"load {ty}, ptr {self.op(f'extractelement <{n} x ptr> {pointers}, i64 {k}')}, align {align}")
                found = self.op(f"insertelement {v} {found}, {ty} {one}, i64 {k}")
            return found if mask is None else self.op(f"select <{n} x i1> {mask}, {v} {found}, {v} zeroinitializer")
        symbol = f"llvm.masked.gather.v{n}{_SUFFIX[ty]}.v{n}p0"
        self.declare(f"declare {v} @{symbol}(<{n} x ptr>, <{n} x i1>, {v})")
        all_lanes = mask or "splat (i1 true)"
        return self.op(f"call {v} @{symbol}(<{n} x ptr> align {align} {pointers}, <{n} x i1> {all_lanes}, {v} zeroinitializer)")

    def from_memory(self, raw: str, dtype: Dtype, lanes: int, imag: str = "") -> Value:
        if dtype is bool_:
            ty = vector_type("i8", lanes)
            return Value(self.op(f"icmp ne {ty} {raw}, {'zeroinitializer' if lanes else '0'}"), dtype, lanes)
        if dtype is bfloat16:
            wide = self.op(f"zext {vector_type('i16', lanes)} {raw} to {vector_type('i32', lanes)}")
            bits = self.op(f"shl {vector_type('i32', lanes)} {wide}, {self.splat('i32', '16', lanes)}")
            return Value(self.cast_text("bitcast", "i32", bits, "float", lanes), dtype, lanes)
        if dtype is float16:
            return Value(self.from_float16(raw, lanes), dtype, lanes)
        return Value(raw, dtype, lanes, imag)

    def to_memory(self, value: Value) -> str:
        """The bits of a real value as they lie in memory."""
        lanes, dtype = value.lanes, value.dtype
        if dtype is bool_:
            return self.cast_text("zext", "i1", value.name, "i8", lanes)
        if dtype is bfloat16:
            bits = self.cast_text("bitcast", "float", value.name, "i32", lanes)
            high = self.op(f"lshr {vector_type('i32', lanes)} {bits}, {self.splat('i32', '16', lanes)}")
            return self.cast_text("trunc", "i32", high, "i16", lanes)
        if dtype is float16:
            return self.to_float16(value.name, lanes)
        return value.name

    def from_float16(self, raw: str, lanes: int) -> str:
        if has_float16():
            return self.cast_text("fpext", "half", self.cast_text("bitcast", "i16", raw, "half", lanes), "float", lanes)
        return self.call_math("f16_to_f32", "f16", vector_type("float", lanes), vector_type("i16", lanes), [raw], lanes)

    def to_float16(self, name: str, lanes: int) -> str:
        if has_float16():
            return self.cast_text("bitcast", "half", self.cast_text("fptrunc", "float", name, "half", lanes), "i16", lanes)
        return self.call_math("f32_to_f16", "f32", vector_type("i16", lanes), vector_type("float", lanes), [name], lanes)

    def call_math(self, op: str, code: str, result: str, ty: str, names: list[str], lanes: int) -> str:
        symbol, definitions = mathlib.function(op, code, max(lanes, 1))
        for text in definitions:
            self.declare(text)
        return self.op(f"call {result} @{symbol}({', '.join(f'{ty} {n}' for n in names)})")

    def store(self, store: Store) -> None:
        self.put(self.kernel.buffers[store.buffer], store.buffer, store.index, self.of(store.value), self.of(store.mask) if store.mask is not None else None, store.combine)

    def put(self, dtype: Dtype, buffer: int, index: Index, value: Value, guard: Value | None, combine: str | None = None) -> None:
        base, varying = self.base(buffer, index)
        if self.vector_axis is None:
            if guard is not None:
                with self.when(guard.name):
                    self.put_one(dtype, base, value, combine)
            else:
                self.put_one(dtype, base, value, combine)
            return
        value = self.widen(value, self.lanes)
        mask = self.both(self.mask, self.widen(guard, self.lanes).name if guard else None)
        stride = self.stride_of(index)
        n, ty = self.lanes, memory_type(dtype)
        if not varying and isinstance(stride, int) and stride in (1, -1):
            if stride == 1:
                pointer = self.element(dtype, base, self.vector_start)
                if combine is not None:
                    value = self.apply(COMBINE[combine], self.load_run(dtype, pointer, mask), value)
            else:
                first = self.i64("sub", str(1 - n), self.vector_start)
                pointer = self.op(f"getelementptr {'i64' if dtype is complex64 else ty}, ptr {base}, i64 {first}")
                rt = register_type(dtype)
                value = Value(self.reversed(value.name, rt), dtype, n, value.imag and self.reversed(value.imag, rt))
                mask = mask and self.reversed(mask, "i1")
            self.store_run(dtype, value, pointer, mask)
            return
        assert combine is None
        pointers = self.addresses(dtype, base, varying, stride)
        if dtype is complex64:
            self.scatter(ty, 4, value.name, pointers, mask)
            self.scatter(ty, 4, value.imag, self.op(f"getelementptr i8, <{n} x ptr> {pointers}, i64 4"), mask)
        else:
            self.scatter(ty, dtype.size, self.to_memory(value), pointers, mask)

    def store_run(self, dtype: Dtype, value: Value, pointer: str, mask: str | None) -> None:
        n = self.lanes
        if dtype is not complex64:
            self.write(memory_type(dtype), n, dtype.size, self.to_memory(value), pointer, mask)
            return
        order = "<" + ", ".join(f"i32 {k // 2 + n * (k % 2)}" for k in range(2 * n)) + ">"
        pairs = self.op(f"shufflevector <{n} x float> {value.name}, <{n} x float> {value.imag}, <{2 * n} x i32> {order}")
        self.write("float", 2 * n, 4, pairs, pointer, mask and self.doubled(mask))

    def put_one(self, dtype: Dtype, pointer: str, value: Value, combine: str | None) -> None:
        if combine is not None:
            old = self.load_one(dtype, pointer, None)
            value = self.apply(COMBINE[combine], old, value)
        align = 4 if dtype is complex64 else dtype.size
        self.do(f"store {memory_type(dtype)} {self.to_memory(value)}, ptr {pointer}, align {align}")
        if dtype is complex64:
            self.do(f"store float {value.imag}, ptr {self.op(f'getelementptr i8, ptr {pointer}, i64 4')}, align 4")

    def scatter(self, ty: str, align: int, name: str, pointers: str, mask: str | None) -> None:
        n = self.lanes
        if ty in ("i8", "i16") or host().simd_bytes < 64:
            for k in range(n):
                one = self.op(f"extractelement <{n} x {ty}> {name}, i64 {k}")
                pointer = self.op(f"extractelement <{n} x ptr> {pointers}, i64 {k}")
                if mask is None:
                    self.do(f"store {ty} {one}, ptr {pointer}, align {align}")
                else:
                    with self.when(self.op(f"extractelement <{n} x i1> {mask}, i64 {k}")):
                        self.do(f"store {ty} {one}, ptr {pointer}, align {align}")
            return
        v = f"<{n} x {ty}>"
        symbol = f"llvm.masked.scatter.v{n}{_SUFFIX[ty]}.v{n}p0"
        self.declare(f"declare void @{symbol}({v}, <{n} x ptr>, <{n} x i1>)")
        self.do(f"call void @{symbol}({v} {name}, <{n} x ptr> align {align} {pointers}, <{n} x i1> {mask or 'splat (i1 true)'})")

    # -- rows of scratch: values of earlier stages kept (float32 and the like, by flat index)

    def load_saved(self, number: int) -> Value:
        dtype = self.graph.nodes[number].dtype
        ty = register_type(dtype)
        pointer = self.op(f"getelementptr {ty}, ptr {self.saved[number]}, i64 {self.saved_at}")
        return Value(self.read(ty, self.lanes, register_bytes(dtype), pointer, self.mask), dtype, self.lanes)

    def save(self, number: int, row: str) -> None:
        value = self.widen(self.value(number), self.lanes)
        ty = register_type(value.dtype)
        pointer = self.op(f"getelementptr {ty}, ptr {row}, i64 {self.saved_at}")
        self.write(ty, self.lanes, register_bytes(value.dtype), value.name, pointer, self.mask)

    # -- primitives

    def apply(self, function: Callable[..., Expr], *values: Value) -> Value:
        """A function of `kernel.scalar` on values."""
        expr = function(*(Expr("given", v.dtype, (), k) for k, v in enumerate(values)))
        known: dict[int, int] = {}
        made: dict[int, Value] = {}
        for k, e, at in linearize([expr], {}, known):
            made[k] = values[e.attr] if e.op == "given" else self.primitive(e, [made[a] for a in at])
        return made[known[id(expr)]]

    def node(self, node: Node) -> Value:
        op, dtype = node.op, node.dtype
        if op == "load":
            return self.load(node)
        if op == "const":
            return Value(literal(node.attr, dtype), dtype, 0)
        if op == "param":
            return self.param(node)
        if op == "axis":
            return self.axis(node.attr)
        if op == "row":
            return self.rows[node.attr]
        if op == "cast" and dtype is bfloat16 and self.graph.nodes[node.args[0]].dtype is float32:
            return self.round_half(self.value(node.args[0]), dtype, self.graph.nodes[node.args[0]].tame)
        return self.primitive(node.expr, [self.value(a) for a in node.args])

    def param(self, node: Node) -> Value:
        slot = node.attr.number if isinstance(node.attr, Slot) else node.attr
        bits = self.slots[slot]
        if node.dtype.rank < 2:
            return self.cast(Value(bits, int64, 0), node.dtype)
        wide = Value(self.op(f"bitcast i64 {bits} to double"), float64, 0)
        if node.dtype is float32:
            nan = self.op(f"fcmp uno double {wide.name}, {wide.name}")
            wide = self.select(nan, Value(literal(math.nan, float64), float64, 0), wide)  # so that it is tame
        return self.cast(wide, node.dtype)

    def axis(self, axis: int) -> Value:
        if axis != self.vector_axis:
            return Value(self.axes[axis], int64, 0)
        n = self.lanes
        return Value(self.op(f"add <{n} x i64> {self.splat('i64', self.vector_start, n)}, {self.iota('i64', n)}"), int64, n)

    def primitive(self, e: Expr, args: list[Value]) -> Value:
        op, dtype = e.op, e.dtype
        if op == "cast":
            return self.cast(args[0], dtype)
        if op == "complex":
            re, im = self.together(*args)
            return Value(re.name, complex64, re.lanes, im.name)
        if op == "real":
            return Value(args[0].name, float32, args[0].lanes)
        if op == "imag":
            return Value(args[0].imag, float32, args[0].lanes)
        if op == "bitcast":
            return self.bitcast(args[0], dtype)
        args = list(self.together(*args))
        a = args[0]
        lanes = a.lanes
        if op == "select":
            return self.select(a.name, args[1], args[2])
        kind = a.dtype
        ty = self.type(kind, lanes)
        names = [v.name for v in args]
        floats = kind.rank == 2

        def plain(text: str) -> Value:
            return Value(self.op(text), dtype, lanes)

        def call(name: str) -> Value:
            return Value(self.intrinsic(name, ty, names, suffix_of(kind, lanes)), dtype, lanes)

        if op in _COMPARE:
            exact, ordered = _COMPARE[op]
            if floats:
                return plain(f"fcmp {ordered} {ty} {names[0]}, {names[1]}")
            sign = "" if exact in ("eq", "ne") else "s" if kind.category == "signed" else "u"
            return plain(f"icmp {sign}{exact} {ty} {names[0]}, {names[1]}")
        if op in _PLAIN:
            return plain(f"{'f' if floats else ''}{_PLAIN[op]} {ty} {names[0]}, {names[1]}")
        if op == "div":
            return plain(f"fdiv {ty} {names[0]}, {names[1]}")
        if op == "neg":
            return plain(f"fneg {ty} {names[0]}" if floats else f"sub {ty} zeroinitializer, {names[0]}" if lanes else f"sub {ty} 0, {names[0]}")
        if op == "abs":
            if floats:
                return call("fabs")
            self.declare(f"declare {ty} @llvm.abs.{suffix_of(kind, lanes)}({ty}, i1)")
            return plain(f"call {ty} @llvm.abs.{suffix_of(kind, lanes)}({ty} {names[0]}, i1 false)")
        if op in ("min", "max"):
            if not floats:
                return call(("s" if kind.category == "signed" else "u") + op)
            return self.float_extreme(op, a, args[1])
        if op == "not":
            return plain(f"xor {ty} {names[0]}, {self.splat(register_type(kind), '-1' if kind is not bool_ else 'true', lanes)}")
        if op in ("shl", "shr"):
            return self.shift(op, a, args[1])
        if op in _EXACT:
            return call(_EXACT[op])
        if op == "copysign":
            return call("copysign")
        assert op in MATH or op in ("idiv", "imod", "ipow"), f"primitive {op} of {kind.name}"
        return Value(self.call_math(op, math_code(kind), ty, ty, names, lanes), dtype, lanes)

    def float_extreme(self, op: str, a: Value, b: Value) -> Value:
        """NaN if either is: the machine's instruction gives `b` where either is NaN, so `a` alone is looked at."""
        ty, c = self.type(a.dtype, a.lanes), vector_type("i1", a.lanes)
        better = self.op(f"fcmp {'ogt' if op == 'max' else 'olt'} {ty} {a.name}, {b.name}")
        best = self.op(f"select {c} {better}, {ty} {a.name}, {ty} {b.name}")
        lost = self.op(f"fcmp uno {ty} {a.name}, {a.name}")
        return Value(self.op(f"select {c} {lost}, {ty} {a.name}, {ty} {best}"), a.dtype, a.lanes)

    def shift(self, op: str, a: Value, b: Value) -> Value:
        bits, lanes = a.dtype.bits, a.lanes
        ty, c, one = self.type(a.dtype, lanes), vector_type("i1", lanes), register_type(a.dtype)
        limit = self.splat(one, str(bits - 1), lanes)
        fits = self.op(f"icmp ule {ty} {b.name}, {limit}")
        count = self.op(f"select {c} {fits}, {ty} {b.name}, {ty} {limit}")
        if op == "shr" and a.dtype.category == "signed":
            return Value(self.op(f"ashr {ty} {a.name}, {count}"), a.dtype, lanes)
        moved = self.op(f"{'shl' if op == 'shl' else 'lshr'} {ty} {a.name}, {count}")
        return Value(self.op(f"select {c} {fits}, {ty} {moved}, {ty} {self.splat(one, '0', lanes)}"), a.dtype, lanes)

    def cast_text(self, how: str, from_: str, name: str, to: str, lanes: int) -> str:
        return self.op(f"{how} {vector_type(from_, lanes)} {name} to {vector_type(to, lanes)}")

    def cast(self, x: Value, to: Dtype) -> Value:
        from_, lanes = x.dtype, x.lanes
        if from_ is to:
            return x
        if to is complex64:
            return Value(self.cast(x, float32).name, complex64, lanes, self.splat("float", literal(0, float32), lanes))
        if is_half(from_):
            return self.cast(Value(x.name, float32, lanes), to)
        a, b = register_type(from_), register_type(to)
        ty = vector_type(a, lanes)

        def convert(how: str) -> Value:
            return Value(self.cast_text(how, a, x.name, b, lanes), to, lanes)

        if is_half(to):
            if from_ is float64:
                return self.round_half(self.to_odd(x), to)
            return self.round_half(x if from_ is float32 else self.cast(x, float32), to)
        if to is bool_:
            zero = self.splat(a, literal(0, from_), lanes)
            return Value(self.op(f"{'fcmp une' if from_.rank == 2 else 'icmp ne'} {ty} {x.name}, {zero}"), to, lanes)
        if from_.rank == 2 and to.rank == 2:
            return convert("fpext" if to is float64 else "fptrunc")
        if from_.rank == 2:
            how = "fptosi" if to.category == "signed" else "fptoui"
            result = vector_type(b, lanes)
            symbol = f"llvm.{how}.sat.{suffix_of(to, lanes)}.{suffix_of(from_, lanes)}"
            self.declare(f"declare {result} @{symbol}({ty})")
            return Value(self.op(f"call {result} @{symbol}({ty} {x.name})"), to, lanes)
        if to.rank == 2:
            return convert("sitofp" if from_.category == "signed" else "uitofp")
        if from_ is bool_ or from_.bits < to.bits:
            return convert("sext" if from_.category == "signed" else "zext")
        return convert("trunc") if from_.bits > to.bits else Value(x.name, to, lanes)

    def to_odd(self, x: Value) -> Value:
        """float64 to float32, rounded to odd, so that rounding once more rounds as once (doi:10.1109/TC.2007.70819)."""
        lanes = x.lanes
        d, f, i, c = (vector_type(t, lanes) for t in ("double", "float", "i32", "i1"))
        near = self.op(f"fptrunc {d} {x.name} to {f}")
        back = self.op(f"fpext {f} {near} to {d}")
        wrong = self.op(f"fcmp one {d} {back}, {x.name}")
        sizes = [self.intrinsic("fabs", d, [name], suffix_of(float64, lanes)) for name in (back, x.name)]
        over = self.op(f"fcmp ogt {d} {sizes[0]}, {sizes[1]}")
        bits = self.op(f"bitcast {f} {near} to {i}")
        down = self.op(f"sub {i} {bits}, {self.op(f'zext {c} {over} to {i}')}")
        odd = self.op(f"or {i} {down}, {self.splat('i32', '1', lanes)}")
        chosen = self.op(f"select {c} {wrong}, {i} {odd}, {i} {bits}")
        return Value(self.op(f"bitcast {i} {chosen} to {f}"), float32, lanes)

    def round_half(self, x: Value, to: Dtype, tame: bool = False) -> Value:
        """float32 rounded to a 16-bit type, still held as float32."""
        lanes = x.lanes
        f, i, c = (vector_type(t, lanes) for t in ("float", "i32", "i1"))
        if to is float16:
            return Value(self.from_float16(self.to_float16(x.name, lanes), lanes), to, lanes)
        bits = self.op(f"bitcast {f} {x.name} to {i}")
        last = self.op(f"and {i} {self.op(f'''lshr {i} {bits}, {self.splat('i32', '16', lanes)}''')}, {self.splat('i32', '1', lanes)}")
        up = self.op(f"add {i} {self.op(f'''add {i} {bits}, {self.splat('i32', '32767', lanes)}''')}, {last}")
        if tame:
            cut = self.op(f"and {i} {up}, {self.splat('i32', str(-65536), lanes)}")
            return Value(self.op(f"bitcast {i} {cut} to {f}"), to, lanes)
        nan = self.op(f"fcmp uno {f} {x.name}, {x.name}")
        quiet = self.op(f"or {i} {bits}, {self.splat('i32', str(0x400000), lanes)}")
        chosen = self.op(f"select {c} {nan}, {i} {quiet}, {i} {up}")
        cut = self.op(f"and {i} {chosen}, {self.splat('i32', str(-65536), lanes)}")
        return Value(self.op(f"bitcast {i} {cut} to {f}"), to, lanes)

    def bitcast(self, x: Value, to: Dtype) -> Value:
        from_, lanes = x.dtype, x.lanes
        if from_ is complex64:
            halves = [self.cast_text("zext", "i32", self.cast_text("bitcast", "float", n, "i32", lanes), "i64", lanes) for n in (x.name, x.imag)]
            ty = vector_type("i64", lanes)
            raw = self.op(f"or {ty} {halves[0]}, {self.op(f'''shl {ty} {halves[1]}, {self.splat('i64', '32', lanes)}''')}")
        else:
            raw = self.to_memory(x)
        have = "i64" if from_ is complex64 else memory_type(from_)
        if to is complex64:
            bits = raw if have == "i64" else self.cast_text("bitcast", have, raw, "i64", lanes)
            ty = vector_type("i64", lanes)
            high = self.op(f"lshr {ty} {bits}, {self.splat('i64', '32', lanes)}")
            names = [self.cast_text("bitcast", "i32", self.cast_text("trunc", "i64", n, "i32", lanes), "float", lanes) for n in (bits, high)]
            return Value(names[0], to, lanes, names[1])
        want = memory_type(to)
        return self.from_memory(raw if have == want else self.cast_text("bitcast", have, raw, want, lanes), to, lanes)


COMBINE = {"add": scalar.add, "mul": scalar.mul, "max": scalar.max_, "min": scalar.min_}
_SUFFIX = {"float": "f32", "double": "f64", **{f"i{b}": f"i{b}" for b in (1, 8, 16, 32, 64)}}


def vector_type(ty: str, lanes: int) -> str:
    return f"<{lanes} x {ty}>" if lanes else ty


def suffix_of(dtype: Dtype, lanes: int) -> str:
    ty = _SUFFIX[register_type(dtype)]
    return f"v{lanes}{ty}" if lanes else ty


def has_float16() -> bool:
    """Whether the machine converts float16; LLVM would call functions that are not there."""
    return host().has("f16c") or host().has("neon")


def math_code(dtype: Dtype) -> str:
    return dtype.code if dtype.rank == 1 else "f64" if dtype is float64 else "f32"
