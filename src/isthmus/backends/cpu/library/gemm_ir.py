"""LLVM IR of the CPU's matrix products: packing, register tiles, the walk over blocks, and calls into BLAS.

`gemm_module` writes one module per (element type, form of A, form of B). Sizes and strides are parameters, read from the
slots named in `SLOT`. The idea needed to read it: every element of C is, whatever the tile it falls in,

    sum over blocks of k, in order, of ( one chain of fused multiply-adds over the block, in order, from zero )

so its bits depend neither on the tiling nor on which thread works where. The block of k is a parameter (`kc`).

Words used: a *tile* is the part of C held in registers (`TILE_ROWS` by two vectors); a *panel* is a packed strip of A or B, as
wide as a tile and `kc` deep, stored `[k][width]`; a *unit* is the part of C that one call of the entry works on at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# Parameter slots of every product entry. 0..3 are patched with addresses; sizes and strides are in elements.
C, A, B, D, ROWS, COLS, DEPTH, A_STRIDE, B_STRIDE, D_ROW, D_COL, ALPHA, BETA = range(13)
UNIT_ROWS, UNIT_COLS, ROW_UNITS, COL_UNITS, SCRATCH, SCRATCH_STRIDE, FLAGS, KC, FUNCTION, AXES = range(13, 23)
FIRST_AXIS = 23  # then, for each batch axis from the outermost: size, stride of A, of B, of D
PACK_A, PACK_B = 1, 2  # bits of FLAGS

MAX_KC = 1024  # deepest block of k: deep, since each block reads and writes C once; 96 rows of A and a panel of B stay in a 1 MB L2
MAX_ROWS = 96  # rows of A that share the panels of B before the next rows come


@dataclass(frozen=True)
class Shape:
    """What the host's registers allow."""

    lanes: int  # floats in a vector
    heights: tuple[int, ...]  # rows of a tile, greatest first; the last one also takes what is left over
    masks: bool = False  # masked loads and stores cost no more than others
    pairs: bool = False  # there is an instruction for the scalar product of two bfloat16 (AVX512-BF16)

    @property
    def rows(self) -> int:
        return self.heights[0]

    @property
    def cols(self) -> int:
        return 2 * self.lanes


def shape_for(simd_bytes: int, registers: int, pairs: bool = False) -> Shape:
    """12 x 2 accumulators, 2 of B and 12 broadcasts in flight fit 32 registers; 6 x 2 fit 16."""
    wide = simd_bytes == 64
    return Shape(simd_bytes // 4, (12, 8, 4) if registers >= 32 else (6, 4, 2), masks=wide, pairs=wide and pairs)


@dataclass(frozen=True)
class Element:
    """How a number is stored; it is always computed with in float32."""

    name: str
    ir: str
    size: int


ELEMENTS = {e.name: e for e in (Element("float32", "float", 4), Element("float16", "half", 2), Element("bfloat16", "i16", 2))}


_SUFFIX = {"float": "f32", "half": "f16", "i16": "i16"}


class Body:
    """The lines of one function. `op` numbers a value; `loop` writes the phis of a counted loop."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block = "entry"
        self.count = 0

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def op(self, text: str) -> str:
        self.count += 1
        self.line(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def label(self, name: str) -> None:
        self.lines.append(name + ":")
        self.block = name

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # integers
    def add(self, a: str | int, b: str | int) -> str:
        return self.op(f"add i64 {a}, {b}")

    def sub(self, a: str | int, b: str | int) -> str:
        return self.op(f"sub i64 {a}, {b}")

    def mul(self, a: str | int, b: str | int) -> str:
        return self.op(f"mul i64 {a}, {b}")

    def div(self, a: str | int, b: str | int) -> str:
        return self.op(f"udiv i64 {a}, {b}")

    def rem(self, a: str | int, b: str | int) -> str:
        return self.op(f"urem i64 {a}, {b}")

    def min(self, a: str | int, b: str | int) -> str:
        return self.op(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def test(self, how: str, a: str | int, b: str | int) -> str:
        return self.op(f"icmp {how} i64 {a}, {b}")

    # addresses, in bytes
    def at(self, pointer: str, offset: str | int) -> str:
        return self.op(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def slot(self, index: int) -> str:
        return self.op(f"load i64, ptr {self.at('%p', 8 * index)}")

    def slot_pointer(self, index: int) -> str:
        return self.op(f"load ptr, ptr {self.at('%p', 8 * index)}")

    def call(self, function: str, *args: str) -> None:
        self.line(f"call void @{function}({', '.join(args)})")

    # vectors
    def load_vector(self, scalar: str, lanes: int, align: int, pointer: str, mask: str = "") -> str:
        """A load; where `mask` is not set, nothing is read and the lane is 0."""
        kind = f"<{lanes} x {scalar}>" if lanes > 1 else scalar
        if not mask:
            return self.op(f"load {kind}, ptr {pointer}, align {align}")
        suffix = f"v{lanes}{_SUFFIX[scalar]}"
        return self.op(f"call {kind} @llvm.masked.load.{suffix}.p0(ptr {pointer}, i32 {align}, <{lanes} x i1> {mask}, {kind} zeroinitializer)")

    def store_vector(self, scalar: str, lanes: int, align: int, value: str, pointer: str, mask: str = "") -> None:
        kind = f"<{lanes} x {scalar}>" if lanes > 1 else scalar
        if mask:
            suffix = f"v{lanes}{_SUFFIX[scalar]}"
            self.line(f"call void @llvm.masked.store.{suffix}.p0({kind} {value}, ptr {pointer}, i32 {align}, <{lanes} x i1> {mask})")
        else:
            self.line(f"store {kind} {value}, ptr {pointer}, align {align}")

    def mask(self, lanes: int, count: str) -> str:
        """Lane `i` is set where `i < count`."""
        kind = f"<{lanes} x i32>"
        few = self.op(f"trunc i64 {self.op(f'call i64 @llvm.smax.i64(i64 {self.min(count, lanes)}, i64 0)')} to i32")
        one = self.op(f"insertelement {kind} poison, i32 {few}, i64 0")
        splat = self.op(f"shufflevector {kind} {one}, {kind} poison, {kind} zeroinitializer")
        return self.op(f"icmp ult {kind} <{', '.join(f'i32 {i}' for i in range(lanes))}>, {splat}")

    @contextmanager
    def loop(self, begin: str | int, end: str | int, step: str | int = 1, carry: tuple[tuple[str, str], ...] = ()) -> Iterator[Loop]:
        """`for index in range(begin, end, step)`; `carry` is (type, first value) of what goes from turn to turn."""
        head, body, done = self.name("head"), self.name("body"), self.name("done")
        index = "%" + self.name("i")
        values = ["%" + self.name("c") for _ in carry]
        before = self.block
        self.line(f"br label %{head}")
        self.label(head)
        mark = len(self.lines)
        inside = self.op(f"icmp slt i64 {index}, {end}")
        self.line(f"br i1 {inside}, label %{body}, label %{done}")
        self.label(body)
        loop = Loop(index, values)
        yield loop
        advanced = self.add(index, step)
        phis = [f"  {index} = phi i64 [ {begin}, %{before} ], [ {advanced}, %{self.block} ]"]
        for name, (kind, first), last in zip(values, carry, loop.next, strict=True):
            phis.append(f"  {name} = phi {kind} [ {first}, %{before} ], [ {last}, %{self.block} ]")
        self.line(f"br label %{head}")
        self.lines[mark:mark] = phis
        self.label(done)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        then, done = self.name("then"), self.name("done")
        self.line(f"br i1 {condition}, label %{then}, label %{done}")
        self.label(then)
        yield
        self.line(f"br label %{done}")
        self.label(done)

    @contextmanager
    def otherwise(self, condition: str) -> Iterator[None]:
        with self.when(self.op(f"xor i1 {condition}, true")):
            yield


class Loop:
    """`index` and the carried `values` of this turn; set `next` to the carried values of the next turn."""

    def __init__(self, index: str, values: list[str]) -> None:
        self.index = index
        self.values = values
        self.next: list[str] = []


def function(name: str, arguments: str, body: Body, linkage: str = "internal ") -> str:
    return f"define {linkage}void @{name}({arguments}) #0 {{\nentry:\n" + "\n".join(body.lines) + "\n  ret void\n}\n"


# --- numbers in memory ------------------------------------------------------------------------------------------------


def widen(b: Body, e: Element, value: str, lanes: int) -> str:
    """A stored number (or vector of `lanes`) as float32."""
    wide = f"<{lanes} x float>" if lanes > 1 else "float"
    if e.ir == "float":
        return value
    if e.ir == "half":
        return b.op(f"fpext {_kind('half', lanes)} {value} to {wide}")
    integer = _kind("i32", lanes)
    bits = b.op(f"zext {_kind('i16', lanes)} {value} to {integer}")
    return b.op(f"bitcast {integer} {b.op(f'shl {integer} {bits}, {splat_constant(16, lanes)}')} to {wide}")


def narrow(b: Body, e: Element, value: str, lanes: int) -> str:
    """float32 rounded to how it is stored: nearest, ties to even; a NaN stays one."""
    if e.ir == "float":
        return value
    wide = _kind("float", lanes)
    if e.ir == "half":
        return b.op(f"fptrunc {wide} {value} to {_kind('half', lanes)}")
    integer = _kind("i32", lanes)

    def s(x: int) -> str:
        return splat_constant(x, lanes)

    bits = b.op(f"bitcast {wide} {value} to {integer}")
    odd = b.op(f"and {integer} {b.op(f'lshr {integer} {bits}, {s(16)}')}, {s(1)}")
    rounded = b.op(f"add {integer} {b.op(f'add {integer} {bits}, {s(0x7FFF)}')}, {odd}")
    quiet = b.op(f"or {integer} {bits}, {s(0x400000)}")
    nan = b.op(f"fcmp uno {wide} {value}, {value}")
    chosen = b.op(f"select {_kind('i1', lanes)} {nan}, {integer} {quiet}, {integer} {rounded}")
    return b.op(f"trunc {integer} {b.op(f'lshr {integer} {chosen}, {s(16)}')} to {_kind('i16', lanes)}")


def _kind(scalar: str, lanes: int) -> str:
    return f"<{lanes} x {scalar}>" if lanes > 1 else scalar


def splat_constant(value: int, lanes: int) -> str:
    return f"<{', '.join([f'i32 {value}'] * lanes)}>" if lanes > 1 else str(value)


def load(b: Body, e: Element, pointer: str, lanes: int = 1, mask: str = "") -> str:
    return widen(b, e, b.load_vector(e.ir, lanes, e.size, pointer, mask), lanes)


def store(b: Body, e: Element, value: str, pointer: str, lanes: int = 1, mask: str = "") -> None:
    b.store_vector(e.ir, lanes, e.size, narrow(b, e, value, lanes), pointer, mask)


def broadcast(b: Body, value: str, lanes: int) -> str:
    vector = b.op(f"insertelement <{lanes} x float> poison, float {value}, i64 0")
    return b.op(f"shufflevector <{lanes} x float> {vector}, <{lanes} x float> poison, <{lanes} x i32> zeroinitializer")


def transpose(b: Body, vectors: list[str]) -> list[str]:
    """`n` vectors of `n` floats, rows to columns: log2(n) rounds that interleave vector i with vector i + n/2."""
    n = len(vectors)
    kind = f"<{n} x float>"
    masks = []
    for half in (0, n // 2):
        order = [x for lane in range(half, half + n // 2) for x in (lane, lane + n)]
        masks.append(f"<{n} x i32> <{', '.join(f'i32 {x}' for x in order)}>")
    turns = n.bit_length() - 1
    for _ in range(turns):
        vectors = [b.op(f"shufflevector {kind} {vectors[i]}, {kind} {vectors[i + n // 2]}, {mask}") for i in range(n // 2) for mask in masks]
    return vectors


# --- packing ----------------------------------------------------------------------------------------------------------


def pack_function(name: str, cell: Cell, width: int, shape: Shape, strided: bool) -> str:
    """`name(source, stride in bytes, count, depth, target, panel in bytes)`: `count` lines of a matrix to panels of `width` lines.

    A panel is `[cells of k][width]`; where lines are missing it holds zeros. `strided`: k is the fast axis of the source and
    `stride` leads from line to line. Otherwise the lines lie side by side and `stride` leads from one k to the next.
    A panel's room must have `lanes` rows to spare: whole vectors are stored.
    """
    b = Body()
    lanes, span = shape.lanes, cell.span
    cells = b.op(f"udiv i64 {b.add('%depth', span - 1)}, {span}")
    if strided:
        whole = b.op(f"and i64 {b.op(f'udiv i64 %depth, {span}')}, {-lanes}")
        with b.loop(0, "%count", width) as j:
            lines = b.min(width, b.sub("%count", j.index))
            source = b.at("%source", b.mul(j.index, "%stride"))
            target = b.at("%target", b.mul(b.div(j.index, width), "%panel"))
            full = b.test("eq", lines, width)
            done = b.op(f"select i1 {full}, i64 {whole}, i64 0")
            for first in range(0, width, lanes):  # lane by lane of the panel: few lines of the source are read at a time
                here = b.at(source, b.mul("%stride", first))
                there = b.at(target, 4 * first)
                with b.loop(0, done, lanes) as c:
                    start = b.at(here, b.mul(c.index, cell.size))
                    rows = [cell.load(b, b.at(start, b.mul("%stride", i)), lanes) if first + i < width else "zeroinitializer" for i in range(lanes)]
                    _store_rows(b, transpose(b, rows), b.at(there, b.mul(c.index, 4 * width)), width, lanes)
                if shape.masks:
                    # Where no line is left for this vector, tiles of one vector are used, which do not read it.
                    any_line = b.test("sgt", lines, first)
                    with b.loop(done, b.op(f"select i1 {any_line}, i64 {cells}, i64 0"), lanes) as c:
                        start = b.at(here, b.mul(c.index, cell.size))
                        left = b.sub("%depth", b.mul(c.index, span))
                        mask = b.mask(lanes * span, left)
                        rows = []
                        for i in range(lanes):
                            if first + i < width:
                                there_is = b.test("sgt", lines, first + i)
                                own = b.op(f"select i1 {there_is}, <{lanes * span} x i1> {mask}, <{lanes * span} x i1> zeroinitializer")
                                rows.append(cell.load(b, b.at(start, b.mul("%stride", i)), lanes, own))
                            else:
                                rows.append("zeroinitializer")
                        _store_rows(b, transpose(b, rows), b.at(there, b.mul(c.index, 4 * width)), width, lanes)
            if not shape.masks:
                with b.loop(done, cells) as c:
                    row = b.at(target, b.mul(c.index, 4 * width))
                    _store_zeros(b, row, width, lanes)
                    with b.loop(0, lines) as one:
                        value = load(b, cell.element, b.at(source, b.add(b.mul(one.index, "%stride"), b.mul(c.index, cell.size))))
                        b.line(f"store float {value}, ptr {b.at(row, b.mul(one.index, 4))}, align 4")
    else:
        whole = b.mul(b.div("%count", width), width)
        left = b.sub("%count", whole)
        ragged = b.test("sgt", left, 0)
        last = b.at("%target", b.mul(b.div("%count", width), "%panel"))
        masks = {first: b.mask(lanes, b.sub(b.min(left, width), first)) for first in range(0, width, lanes)} if shape.masks else {}
        with b.loop(0, cells) as c:
            row = b.at("%source", b.mul(c.index, b.mul("%stride", span)))
            offset = b.mul(c.index, 4 * width)
            second = b.test("slt", b.add(b.mul(c.index, span), 1), "%depth")  # of two k that share a cell, is the second there?
            with b.loop(0, whole, width) as j:
                start = b.at(row, b.mul(j.index, cell.element.size))
                target = b.at("%target", b.add(b.mul(b.div(j.index, width), "%panel"), offset))
                for first in range(0, width, lanes):
                    n = min(lanes, width - first)
                    value = cell.load_across(b, b.at(start, cell.element.size * first), "%stride", n, second)
                    b.line(f"store <{n} x float> {value}, ptr {b.at(target, 4 * first)}, align 4")
            with b.when(ragged):
                start = b.at(row, b.mul(whole, cell.element.size))
                target = b.at(last, offset)
                if shape.masks:
                    for first, mask in masks.items():
                        value = cell.load_across(b, b.at(start, cell.element.size * first), "%stride", lanes, second, mask)
                        b.line(f"store <{lanes} x float> {value}, ptr {b.at(target, 4 * first)}, align 4")
                else:
                    _store_zeros(b, target, width, lanes)
                    with b.loop(0, left) as one:
                        value = load(b, cell.element, b.at(start, b.mul(one.index, cell.element.size)))
                        b.line(f"store float {value}, ptr {b.at(target, b.mul(one.index, 4))}, align 4")
    return function(name, "ptr %source, i64 %stride, i64 %count, i64 %depth, ptr %target, i64 %panel", b)


def _store_rows(b: Body, rows: list[str], target: str, width: int, lanes: int) -> None:
    """In ascending order: a vector that is wider than the panel is overwritten by the next row."""
    for i, row in enumerate(rows):
        b.line(f"store <{lanes} x float> {row}, ptr {b.at(target, 4 * width * i)}, align 4")


def _store_zeros(b: Body, target: str, width: int, lanes: int) -> None:
    for first in range(0, width, lanes):
        n = min(lanes, width - first)
        b.line(f"store <{n} x float> zeroinitializer, ptr {b.at(target, 4 * first)}, align 4")


@dataclass(frozen=True)
class Cell:
    """What a panel holds 4 bytes of: one number as float32 (`span` 1), or two bfloat16 of successive k (`span` 2)."""

    element: Element
    span: int = 1

    @property
    def size(self) -> int:
        """Bytes of the source that a cell takes, along k."""
        return self.element.size * self.span

    def load(self, b: Body, pointer: str, lanes: int, mask: str = "") -> str:
        """Cells that follow each other along k, as a vector of floats."""
        if self.span == 1:
            return load(b, self.element, pointer, lanes, mask)
        pairs = b.load_vector("i16", 2 * lanes, 2, pointer, mask)
        return b.op(f"bitcast <{2 * lanes} x i16> {pairs} to <{lanes} x float>")

    def load_across(self, b: Body, pointer: str, k_stride: str, lanes: int, second: str, mask: str = "") -> str:
        """The cells of one k (or of two, if there is a `second`), of lines side by side."""
        if self.span == 1:
            return load(b, self.element, pointer, lanes, mask)
        other = b.op(f"select i1 {second}, ptr {b.at(pointer, k_stride)}, ptr {pointer}")
        low, high = (b.load_vector("i16", lanes, 2, x, mask) for x in (pointer, other))
        wide = f"<{lanes} x i32>"
        low, high = (b.op(f"zext <{lanes} x i16> {x} to {wide}") for x in (low, high))
        high = b.op(f"select i1 {second}, {wide} {b.op(f'shl {wide} {high}, {splat_constant(16, lanes)}')}, {wide} zeroinitializer")
        return b.op(f"bitcast {wide} {b.op(f'or {wide} {low}, {high}')} to <{lanes} x float>")


# --- the register tile ------------------------------------------------------------------------------------------------

TILE_ARGUMENTS = "ptr %a, i64 %as, ptr %b, i64 %bs, i64 %k, ptr %c, i64 %cs, i64 %rows, i64 %cols, i1 %more"


def tile_function(name: str, height: int, vectors: int, shape: Shape, strided: bool, pairs: bool) -> str:
    """`c[height][vectors * lanes] (+)= a @ b` over `k` cells; strides in bytes; C's first `rows` rows and `cols` columns are written.

    `strided`: `as` leads from row to row of A, k is its fast axis; otherwise rows lie side by side and `as` leads from k to k.
    """
    b = Body()
    lanes = shape.lanes
    v = f"<{lanes} x float>"
    zero = tuple((v, "zeroinitializer") for _ in range(height * vectors))
    # Rows in threes share a pointer: base, base + stride, base + 2 * stride are x86 addressing modes.
    bases = ["%a"]
    if strided:
        triple = b.mul("%as", 3)
        for _ in range(3, height, 3):
            bases.append(b.at(bases[-1], triple))
    pointers = (*(("ptr", x) for x in bases), ("ptr", "%b"))
    row = "%c"
    for _ in range(height):  # C is wanted only at the end, by when it has come from memory
        for j in range(0, 4 * lanes * vectors, 64):
            b.line(f"call void @llvm.prefetch.p0(ptr {b.at(row, j)}, i32 1, i32 3, i32 1)")
        row = b.at(row, "%cs")
    with b.loop(0, "%k", 1, zero + pointers) as k:
        sums = k.values[: len(zero)]
        *a_now, b_now = k.values[len(zero) :]
        if strided:  # hides the pointers from loop strength reduction, which would make one pointer a row and spill them
            a_now = [b.op(f"call ptr @llvm.launder.invariant.group.p0(ptr {x})") for x in a_now]
        columns = [b.op(f"load {v}, ptr {b.at(b_now, 4 * lanes * j)}, align 4") for j in range(vectors)]
        sums = list(sums)
        for i in range(height):
            if strided:
                where = a_now[i // 3] if i % 3 == 0 else b.at(a_now[i // 3], "%as" if i % 3 == 1 else b.op("shl i64 %as, 1"))
            else:
                where = b.at(a_now[0], 4 * i)
            x = broadcast(b, b.op(f"load float, ptr {where}, align 2"), lanes)
            for j in range(vectors):
                at = i * vectors + j
                sums[at] = _multiply_add(b, x, columns[j], sums[at], lanes, pairs)
        k.next = [*sums, *(b.at(x, 4 if strided else "%as") for x in a_now), b.at(b_now, "%bs")]
    sums = k.values[: len(zero)]
    leftover = height == shape.heights[-1]  # only the lowest tile is ever asked for fewer rows than it has
    whole = b.test("sge", "%cols", vectors * lanes)
    if leftover:
        whole = b.op(f"and i1 {b.test('sge', '%rows', height)}, {whole}")
    with b.when(whole):
        with b.when("%more"):
            _store_tile(b, sums, height, vectors, lanes, "%c", "%cs", more=True)
        with b.otherwise("%more"):
            _store_tile(b, sums, height, vectors, lanes, "%c", "%cs", more=False)
    with b.otherwise(whole):
        if shape.masks:
            masks = [b.mask(lanes, b.sub("%cols", lanes * j)) for j in range(vectors)]
            old = [b.op(f"select i1 %more, <{lanes} x i1> {x}, <{lanes} x i1> zeroinitializer") for x in masks]
            row = "%c"
            for i in range(height):
                with b.when(b.test("sgt", "%rows", i) if leftover else "true"):
                    for j in range(vectors):
                        where = b.at(row, 4 * lanes * j)
                        value = sums[i * vectors + j]
                        added = b.op(f"fadd {v} {b.load_vector('float', lanes, 4, where, old[j])}, {value}")
                        value = b.op(f"select i1 %more, {v} {added}, {v} {value}")
                        b.store_vector("float", lanes, 4, value, where, masks[j])
                row = b.at("%c", b.mul("%cs", i + 1))
        else:  # through memory
            b.lines.insert(0, f"  %tile = alloca [{height * vectors * lanes} x float], align 64")
            _store_tile(b, sums, height, vectors, lanes, "%tile", str(4 * vectors * lanes), more=False)
            rows = b.min("%rows", height)
            b.call("copy_tile", "ptr %tile", f"i64 {4 * vectors * lanes}", "ptr %c", "i64 %cs", f"i64 {rows}", "i64 %cols", "i1 %more")
    return function(name, TILE_ARGUMENTS, b)


def _multiply_add(b: Body, x: str, y: str, z: str, lanes: int, pairs: bool) -> str:
    """`x * y + z`, or of pairs `x1 * y1 + z`, then `x0 * y0 +` that: each step rounded like a fused multiply-add."""
    v = f"<{lanes} x float>"
    if not pairs:
        return b.op(f"call {v} @llvm.fma.v{lanes}f32({v} {x}, {v} {y}, {v} {z})")
    p = f"<{lanes} x i32>"
    x, y = (b.op(f"bitcast {v} {a} to {p}") for a in (x, y))
    return b.op(f"call {v} @llvm.x86.avx512bf16.dpbf16ps.512({v} {z}, {p} {x}, {p} {y})")


def _store_tile(b: Body, sums: list[str], height: int, vectors: int, lanes: int, c: str, cs: str, *, more: bool) -> None:
    v = f"<{lanes} x float>"
    row = c
    for i in range(height):
        for j in range(vectors):
            where = b.at(row, 4 * lanes * j)
            value = sums[i * vectors + j]
            if more:
                value = b.op(f"fadd {v} {b.op(f'load {v}, ptr {where}, align 4')}, {value}")
            b.line(f"store {v} {value}, ptr {where}, align 4")
        if i + 1 < height:
            row = b.at(row, cs)


def copy_tile_function() -> str:
    b = Body()
    f32 = ELEMENTS["float32"]
    with b.loop(0, "%rows") as i:
        source, target = b.at("%tile", b.mul(i.index, "%ts")), b.at("%c", b.mul(i.index, "%cs"))
        with b.when("%more"), b.loop(0, "%cols") as j:
            at = b.mul(j.index, 4)
            where = b.at(target, at)
            store(b, f32, b.op(f"fadd float {load(b, f32, where)}, {load(b, f32, b.at(source, at))}"), where)
        with b.otherwise("%more"), b.loop(0, "%cols") as j:
            at = b.mul(j.index, 4)
            store(b, f32, load(b, f32, b.at(source, at)), b.at(target, at))
    return function("copy_tile", "ptr %tile, i64 %ts, ptr %c, i64 %cs, i64 %rows, i64 %cols, i1 %more", b)


# --- after the sum: alpha, beta * D, rounding ---------------------------------------------------------------------------


def finish_function(e: Element, shape: Shape, addend: bool) -> str:
    """`finish`: C = round(alpha * sum + beta * d), or only the rounding without an addend. With beta = 0, D is not read."""
    b = Body()
    lanes = shape.lanes
    f32 = ELEMENTS["float32"]
    whole = b.op(f"and i64 %cols, {-lanes}")
    mask = b.mask(lanes, b.sub("%cols", whole)) if shape.masks else ""
    ragged = b.test("ne", whole, "%cols")
    wide_alpha = wide_beta = ""
    if addend:
        wide_alpha, wide_beta = broadcast(b, "%alpha", lanes), broadcast(b, "%beta", lanes)
        reads = b.op("fcmp une float %beta, 0.0")
        by_vector, spread = b.test("eq", "%dc", 1), b.test("eq", "%dc", 0)
        vectors = b.op(f"or i1 {by_vector}, {spread}")
    with b.loop(0, "%rows") as i:
        source, target = b.at("%s", b.mul(i.index, "%ss")), b.at("%c", b.mul(i.index, "%cs"))
        row = b.at("%d", b.mul(b.mul(i.index, "%dr"), e.size)) if addend else ""

        def step(j: str, n: int, cut: str, d: str) -> None:
            kind = _kind("float", n)
            value = load(b, f32, b.at(source, b.mul(j, 4)), n, cut)
            if addend:
                value = b.op(f"fmul {kind} {wide_alpha if n > 1 else '%alpha'}, {value}")
            if d:
                beta = wide_beta if n > 1 else "%beta"
                value = b.op(f"fadd {kind} {value}, {b.op(f'fmul {kind} {beta}, {d}')}")
            store(b, e, value, b.at(target, b.mul(j, e.size)), n, cut)

        def across(d_at: Callable[[str, int, str], str]) -> None:
            """The row in vectors, what is left over by mask or one by one."""
            with b.loop(0, whole, lanes) as j:
                step(j.index, lanes, "", d_at(j.index, lanes, ""))
            if shape.masks:
                with b.when(ragged):
                    step(whole, lanes, mask, d_at(whole, lanes, mask))
            else:
                with b.loop(whole, "%cols") as j:
                    step(j.index, 1, "", d_at(j.index, 1, ""))

        def beside(j: str, n: int, cut: str) -> str:
            return load(b, e, b.at(row, b.mul(j, e.size)), n, cut)

        if not addend:
            across(lambda j, n, cut: "")
        else:
            with b.otherwise(reads):
                across(lambda j, n, cut: "")
            with b.when(reads):
                with b.when(by_vector):
                    across(beside)
                with b.when(spread):
                    one = load(b, e, row)
                    many = broadcast(b, one, lanes)
                    across(lambda j, n, cut: many if n > 1 else one)
                with b.otherwise(vectors), b.loop(0, "%cols") as j:
                    step(j.index, 1, "", load(b, e, b.at(row, b.mul(b.mul(j.index, "%dc"), e.size))))
    more = ", ptr %d, i64 %dr, i64 %dc, float %alpha, float %beta" if addend else ""
    return function("finish", "ptr %s, i64 %ss, ptr %c, i64 %cs, i64 %rows, i64 %cols" + more, b)


# --- the walk over units ------------------------------------------------------------------------------------------------


@dataclass
class Unit:
    """One unit of C, as IR values: where it begins, its sizes, and the batch item's base addresses."""

    row: str
    col: str
    rows: str
    cols: str
    c: str
    a: str
    b: str
    d: str


@contextmanager
def units(b: Body, size: int, addend: bool, swap: bool = False) -> Iterator[Unit]:
    """The loop over `[begin, end)`: unit = (batch item, block of rows, block of columns), columns fastest.

    `swap`: the slots describe C' = B' A', so A's address is in B's slot and the other way round.
    """
    m, n = b.slot(ROWS), b.slot(COLS)
    unit_rows, unit_cols = b.slot(UNIT_ROWS), b.slot(UNIT_COLS)
    row_units, col_units = b.slot(ROW_UNITS), b.slot(COL_UNITS)
    base = [b.slot_pointer(i) for i in ((C, B, A, D) if swap else (C, A, B, D))]
    axes = b.slot(AXES)
    last = b.sub(axes, 1)
    with b.loop("%begin", "%end") as u:
        pair = b.div(u.index, col_units)
        col = b.mul(b.rem(u.index, col_units), unit_cols)
        item = b.div(pair, row_units)
        row = b.mul(b.rem(pair, row_units), unit_rows)
        offsets = tuple(("i64", "0") for _ in range(3))
        with b.loop(0, axes, 1, (("i64", item), *offsets)) as x:
            rest, *sums = x.values
            entry = b.at("%p", b.mul(b.add(b.mul(b.sub(last, x.index), 4), FIRST_AXIS), 8))
            extent = b.op(f"load i64, ptr {entry}")
            at = b.rem(rest, extent)
            new = [b.add(s, b.mul(at, b.op(f"load i64, ptr {b.at(entry, 8 * (i + 1))}"))) for i, s in enumerate(sums)]
            x.next = [b.div(rest, extent), *new]
        oa, ob, od = x.values[1:]
        yield Unit(
            row,
            col,
            b.min(unit_rows, b.sub(m, row)),
            b.min(unit_cols, b.sub(n, col)),
            b.at(base[0], b.mul(b.mul(item, b.mul(m, n)), size)),
            b.at(base[1], b.mul(oa, size)),
            b.at(base[2], b.mul(ob, size)),
            b.at(base[3], b.mul(od, size)) if addend else "null",
        )


def float_slot(b: Body, index: int) -> str:
    return b.op(f"fptrunc double {b.op(f'load double, ptr {b.at(chr(37) + chr(112), 8 * index)}')} to float")


ENTRY = "ptr %p, i64 %begin, i64 %end, i64 %worker"
HEADER = """\
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare ptr @llvm.launder.invariant.group.p0(ptr)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
"""


def header(shape: Shape) -> str:
    """Declarations of the intrinsics that this host's kernels use, in their older forms, which newer LLVMs translate."""
    n = shape.lanes
    v = f"<{n} x float>"
    text = HEADER + f"declare {v} @llvm.fma.v{n}f32({v}, {v}, {v})\ndeclare float @llvm.fma.f32(float, float, float)\n"
    if shape.masks:
        for scalar, lanes in (("float", n), ("half", n), ("i16", n), ("i16", 2 * n)):
            kind = f"<{lanes} x {scalar}>"
            text += f"declare {kind} @llvm.masked.load.v{lanes}{_SUFFIX[scalar]}.p0(ptr, i32, <{lanes} x i1>, {kind})\n"
            text += f"declare void @llvm.masked.store.v{lanes}{_SUFFIX[scalar]}.p0({kind}, ptr, i32, <{lanes} x i1>)\n"
    if shape.pairs:
        p = f"<{n} x i32>"
        text += f"declare {v} @llvm.x86.avx512bf16.dpbf16ps.512({v}, {p}, {p})\n"
    return text


def span_of(dtype: str, shape: Shape) -> int:
    """How many k a cell holds."""
    return 2 if dtype == "bfloat16" and shape.pairs else 1


def gemm_module(dtype: str, a_transposed: bool, b_transposed: bool, addend: bool, shape: Shape, attributes: str) -> tuple[str, str]:
    """IR text of one product module and the name of its entry."""
    e = ELEMENTS[dtype]
    cell = Cell(e, span_of(dtype, shape))
    pairs = cell.span == 2
    lanes, height, width, last = shape.lanes, shape.rows, shape.cols, shape.heights[-1]
    wide = e.size != 4  # C is summed in scratch and rounded at the end
    # Operands whose cells lie in memory as the tiles want them can be read in place.
    direct_a = cell.size == 4 and not (pairs and a_transposed)
    direct_b = not wide and not b_transposed
    name = f"matmul_{dtype}_{'t' if a_transposed else 'n'}{'t' if b_transposed else 'n'}{'_add' if addend else ''}"
    parts = [header(shape)]
    parts.append(pack_function("pack_a", cell, height, shape, not a_transposed))
    parts.append(pack_function("pack_b", cell, width, shape, b_transposed))
    if not shape.masks:
        parts.append(copy_tile_function())
    for h in shape.heights:
        for n in (1, 2):
            parts.append(tile_function(f"tile_{h}x{n}", h, n, shape, False, pairs))
            if direct_a and not a_transposed:
                parts.append(tile_function(f"rows_{h}x{n}", h, n, shape, True, pairs))
    if wide or addend:
        parts.append(finish_function(e, shape, addend))
    b = Body()
    a_stride, b_stride = b.mul(b.slot(A_STRIDE), e.size), b.mul(b.slot(B_STRIDE), e.size)
    depth, n_all, kc, flags = b.slot(DEPTH), b.slot(COLS), b.slot(KC), b.slot(FLAGS)
    pack_a = b.test("ne", b.op(f"and i64 {flags}, {PACK_A}"), 0)
    pack_b = b.test("ne", b.op(f"and i64 {flags}, {PACK_B}"), 0)
    # A worker's scratch: a panel for rows of A left over, a block of A, a block of B, and C's sums where they are wider than C.
    room = b.add(b.div(kc, cell.span), lanes)  # rows of a panel
    a_panel, b_panel = b.mul(room, 4 * height), b.mul(room, 4 * width)
    a_panels = b.div(b.add(b.min(b.slot(UNIT_ROWS), MAX_ROWS), height - 1), height)
    b_panels = b.div(b.add(b.slot(UNIT_COLS), width - 1), width)
    left_over = b.at(b.slot_pointer(SCRATCH), b.mul("%worker", b.slot(SCRATCH_STRIDE)))
    room_a = b.at(left_over, a_panel)
    room_b = b.at(room_a, b.mul(a_panels, a_panel))
    room_c = b.at(room_b, b.mul(b_panels, b_panel))
    if addend:
        alpha, beta, d_row, d_col = float_slot(b, ALPHA), float_slot(b, BETA), b.slot(D_ROW), b.slot(D_COL)
    k_end = b.op(f"call i64 @llvm.smax.i64(i64 {depth}, i64 1)")  # depth 0 takes one turn, which writes zeros
    with units(b, e.size, addend) as u:
        if wide:
            c, cs = room_c, b.mul(b_panels, 4 * width)
        else:
            c, cs = b.at(u.c, b.mul(b.add(b.mul(u.row, n_all), u.col), 4)), b.mul(n_all, 4)
        with b.loop(0, k_end, kc) as k:
            deep = b.min(kc, b.sub(depth, k.index))
            cells = b.div(b.add(deep, cell.span - 1), cell.span)
            more = b.test("sgt", k.index, 0)
            a_line, a_k = (str(e.size), a_stride) if a_transposed else (a_stride, str(e.size))
            b_line, b_k = (b_stride, str(e.size)) if b_transposed else (str(e.size), b_stride)
            a_from = b.at(u.a, b.add(b.mul(u.row, a_line), b.mul(k.index, a_k)))
            b_from = b.at(u.b, b.add(b.mul(u.col, b_line), b.mul(k.index, b_k)))
            # B: all panels, or only the last one where whole vectors would overrun it
            pack_from = "0"
            if direct_b:
                ragged = b.test("ne", b.op(f"and i64 {u.cols}, {lanes - 1}"), 0)
                unpacked = b.op(f"select i1 {ragged}, i64 {b.op(f'and i64 {u.cols}, {-width}')}, i64 {u.cols}")
                pack_from = b.op(f"select i1 {pack_b}, i64 0, i64 {unpacked}")
            target = b.at(room_b, b.mul(b.div(pack_from, width), b_panel))
            source = b.at(b_from, b.mul(pack_from, b_line))
            b.call("pack_b", f"ptr {source}", f"i64 {b_stride}", f"i64 {b.sub(u.cols, pack_from)}", f"i64 {deep}", f"ptr {target}", f"i64 {b_panel}")
            with b.loop(0, u.rows, MAX_ROWS) as i:
                some = b.min(MAX_ROWS, b.sub(u.rows, i.index))
                a_block, c_block = b.at(a_from, b.mul(i.index, a_line)), b.at(c, b.mul(i.index, cs))
                in_place = b.op(f"and i64 {some}, {-last}") if direct_a else "0"
                if direct_a:
                    in_place = b.op(f"select i1 {pack_a}, i64 0, i64 {in_place}")
                packed_a = b.op(f"select i1 {pack_a}, ptr {room_a}, ptr {left_over}") if direct_a else room_a
                source = b.at(a_block, b.mul(in_place, a_line))
                b.call("pack_a", f"ptr {source}", f"i64 {a_stride}", f"i64 {b.sub(some, in_place)}", f"i64 {deep}", f"ptr {packed_a}", f"i64 {a_panel}")
                with b.loop(0, u.cols, width) as j:
                    cols = b.min(width, b.sub(u.cols, j.index))
                    b_at, b_step = b.at(room_b, b.mul(b.div(j.index, width), b_panel)), str(4 * width)
                    if direct_b:
                        packed = b.test("sge", j.index, pack_from)
                        b_at = b.op(f"select i1 {packed}, ptr {b_at}, ptr {b.at(b_from, b.mul(j.index, b_line))}")
                        b_step = b.op(f"select i1 {packed}, i64 {b_step}, i64 {b_stride}")
                    narrow_panel = b.test("sle", cols, lanes)
                    c_col = b.at(c_block, b.mul(j.index, 4))

                    def tiles(prefix: str, begin: str, end: str, a_of: Callable[[str], str], a_step: str) -> None:
                        """Tiles over the rows, tallest first."""
                        at = begin
                        for h in shape.heights:
                            stop = end if h == last and prefix == "tile" else b.add(b.sub(end, h), 1)
                            with b.loop(at, stop, h) as r:
                                args = (
                                    f"ptr {a_of(r.index)}", f"i64 {a_step}", f"ptr {b_at}", f"i64 {b_step}", f"i64 {cells}",
                                    f"ptr {b.at(c_col, b.mul(r.index, cs))}", f"i64 {cs}", f"i64 {b.sub(end, r.index)}",
                                    f"i64 {width if wide else cols}", f"i1 {more}",
                                )  # fmt: skip
                                with b.when(narrow_panel):
                                    b.call(f"{prefix}_{h}x1", *args)
                                with b.otherwise(narrow_panel):
                                    b.call(f"{prefix}_{h}x2", *args)
                            at = r.index

                    if direct_a:
                        tiles("tile" if a_transposed else "rows", "0", in_place, lambda r: b.at(a_block, b.mul(r, a_line)), a_stride)

                    def panel_of(r: str) -> str:
                        r = b.sub(r, in_place)
                        return b.at(packed_a, b.add(b.mul(b.div(r, height), a_panel), b.mul(b.rem(r, height), 4)))

                    tiles("tile", in_place, some, panel_of, str(4 * height))
        if wide or addend:
            target = b.at(u.c, b.mul(b.add(b.mul(u.row, n_all), u.col), e.size))
            args = [f"ptr {c}", f"i64 {cs}", f"ptr {target}", f"i64 {b.mul(n_all, e.size)}", f"i64 {u.rows}", f"i64 {u.cols}"]
            if addend:
                d = b.at(u.d, b.mul(b.add(b.mul(u.row, d_row), b.mul(u.col, d_col)), e.size))
                args += [f"ptr {d}", f"i64 {d_row}", f"i64 {d_col}", f"float {alpha}", f"float {beta}"]
            b.call("finish", *args)
    parts.append(function(name, ENTRY, b, linkage=""))
    return name, "\n".join(parts) + f"\nattributes #0 = {{ {attributes} }}\n"


def scratch_bytes(dtype: str, shape: Shape, kc: int, unit_rows: int, unit_cols: int) -> int:
    """Scratch of one worker for `gemm_module`'s entry: the sum of its rooms, whether or not a product uses them all."""
    room = kc // span_of(dtype, shape) + shape.lanes
    rows = (1 + -(-min(unit_rows, MAX_ROWS) // shape.rows)) * shape.rows
    cols = -(-unit_cols // shape.cols) * shape.cols
    sums = 0 if dtype == "float32" else 4 * (unit_rows + shape.heights[-1]) * cols
    return 4 * room * (rows + cols) + sums
