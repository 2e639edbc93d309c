"""LLVM IR of products with few rows, which are bound by reading the one large matrix: each of its numbers is read once, in order.

`dot_module`: k is the fast axis of both operands (x @ W.T). Lane `k % lanes` is one chain of fused multiply-adds over all of k;
then the lanes are folded. `row_module`: B's rows are contiguous (x @ W). Sums as in `gemm_ir`: a chain a block of k, blocks in order,
so a row has the bits that it would have in a product of many rows (but for pairs of bfloat16).

With `swap` the operands change places (C' = B' A', for one column): the caller exchanges sizes and strides, the entry the addresses.
Slots are those of `gemm_ir`; in `row_module` the stride of A leads from k to k if `x_transposed`, else from row to row.
"""

from __future__ import annotations

from isthmus.backends.cpu.library.gemm_ir import (
    A_STRIDE,
    ALPHA,
    B_STRIDE,
    BETA,
    COLS,
    D_COL,
    D_ROW,
    DEPTH,
    ELEMENTS,
    ENTRY,
    KC,
    SCRATCH,
    SCRATCH_STRIDE,
    UNIT_COLS,
    Body,
    Element,
    Shape,
    Unit,
    broadcast,
    finish_function,
    float_slot,
    function,
    header,
    load,
    units,
)

MAX_ROWS = 8  # of C; from there on the register tiles of `gemm_ir` are as fast
MAX_COLS = 1024  # of a unit of `row_module`: 8 rows of sums are then 32 kB
_LINES = 4  # lines of B that a dot tile takes
_DEEP = 8  # rows of B that `row_module` takes at a time


def dot_module(dtype: str, addend: bool, swap: bool, shape: Shape, attributes: str) -> tuple[str, str]:
    """C = A @ B.T for A and B with contiguous rows; units as in `gemm_ir`."""
    e = ELEMENTS[dtype]
    name = f"matmul_{dtype}_dot{'_swap' if swap else ''}{'_add' if addend else ''}"
    heights = (4, 2, 1)
    parts = [header(shape), finish_function(e, shape, addend)]
    parts += [_dot_tile(h, e, shape) for h in heights]
    b = Body()
    a_stride, b_stride, depth = b.mul(b.slot(A_STRIDE), e.size), b.mul(b.slot(B_STRIDE), e.size), b.slot(DEPTH)
    sums = b.at(b.slot_pointer(SCRATCH), b.mul("%worker", b.slot(SCRATCH_STRIDE)))
    sums_stride = b.mul(b.slot(UNIT_COLS), 4)
    ends = _scalars(b, addend)
    with units(b, e.size, addend, swap) as u:
        a, bb = b.at(u.a, b.mul(u.row, a_stride)), b.at(u.b, b.mul(u.col, b_stride))
        with b.loop(0, u.cols, _LINES) as j:
            left = b.sub(u.cols, j.index)
            line = b.at(bb, b.mul(j.index, b_stride))
            at = "0"
            for h in heights:
                with b.loop(at, b.add(b.sub(u.rows, h), 1), h) as i:
                    b.call(
                        f"dot_{h}", f"ptr {b.at(a, b.mul(i.index, a_stride))}", f"i64 {a_stride}", f"ptr {line}", f"i64 {b_stride}",
                        f"i64 {depth}", f"ptr {b.at(sums, b.add(b.mul(i.index, sums_stride), b.mul(j.index, 4)))}", f"i64 {sums_stride}",
                        f"i64 {left}",
                    )  # fmt: skip
                at = i.index
        _finish(b, e, u, sums, sums_stride, ends)
    parts.append(function(name, ENTRY, b, linkage=""))
    return name, "\n".join(parts) + f"\nattributes #0 = {{ {attributes} }}\n"


def _dot_tile(height: int, e: Element, shape: Shape) -> str:
    """`c[height][4] = a @ b.T`, of which `count` columns are written; lines of B past `count` are the last one again."""
    b = Body()
    lanes = shape.lanes
    v = f"<{lanes} x float>"
    rows = ["%a"]
    for _ in range(1, height):
        rows.append(b.at(rows[-1], "%as"))
    last = b.sub("%count", 1)
    lines = [b.at("%b", b.mul(b.min(last, i), "%bs")) for i in range(_LINES)]
    whole = b.op(f"and i64 %k, {-lanes}")

    def turn(sums: list[str], at: str, mask: str) -> list[str]:
        x = [load(b, e, b.at(row, at), lanes, mask) for row in rows]
        y = [load(b, e, b.at(line, at), lanes, mask) for line in lines]
        return [b.op(f"call {v} @llvm.fma.v{lanes}f32({v} {x[i]}, {v} {y[j]}, {v} {sums[i * _LINES + j]})") for i in range(height) for j in range(_LINES)]

    with b.loop(0, whole, lanes, tuple((v, "zeroinitializer") for _ in range(height * _LINES))) as k:
        k.next = turn(k.values, b.mul(k.index, e.size), "")
    sums = k.values
    if shape.masks:
        sums = turn(sums, b.mul(whole, e.size), b.mask(lanes, b.sub("%k", whole)))
    for i in range(height):
        four = _fold(b, sums[i * _LINES : (i + 1) * _LINES], lanes)
        values = [b.op(f"extractelement {v} {four}, i64 {j}") for j in range(_LINES)]
        if not shape.masks:
            with b.loop(whole, "%k", 1, tuple(("float", x) for x in values)) as k:
                at = b.mul(k.index, e.size)
                x = load(b, e, b.at(rows[i], at))
                k.next = [
                    b.op(f"call float @llvm.fma.f32(float {x}, float {load(b, e, b.at(line, at))}, float {s})") for line, s in zip(lines, k.values, strict=True)
                ]
            values = k.values
        target = b.at("%c", b.mul("%cs", i))
        for j, value in enumerate(values):
            with b.when(b.test("sgt", "%count", j)):
                b.line(f"store float {value}, ptr {b.at(target, 4 * j)}, align 4")
    return function(f"dot_{height}", "ptr %a, i64 %as, ptr %b, i64 %bs, i64 %k, ptr %c, i64 %cs, i64 %count", b)


def _fold(b: Body, sums: list[str], lanes: int) -> str:
    """The sums of four vectors, in lanes 0 to 3: interleave two and add their halves, until a vector holds parts of all four."""
    v = f"<{lanes} x float>"

    def shuffle(x: str, y: str, order: list[int]) -> str:
        return b.op(f"shufflevector {v} {x}, {v} {y}, <{lanes} x i32> <{', '.join(f'i32 {i}' for i in order)}>")

    half = lanes // 2

    def join(x: str, y: str, group: int) -> str:
        """Groups of lanes of `x` and `y` in turn; lane `i` of each gets lane `i + half` added."""
        low = [i for g in range(0, half, group) for i in (*range(g, g + group), *range(lanes + g, lanes + g + group))]
        return b.op(f"fadd {v} {shuffle(x, y, low)}, {shuffle(x, y, [i + half for i in low])}")

    all_four = join(join(sums[0], sums[1], 1), join(sums[2], sums[3], 1), 2)
    width = half
    while width >= 4:
        all_four = b.op(f"fadd {v} {all_four}, {shuffle(all_four, 'poison', [(i + width) % lanes for i in range(lanes)])}")
        width //= 2
    return all_four


def row_module(dtype: str, x_transposed: bool, addend: bool, swap: bool, shape: Shape, attributes: str) -> tuple[str, str]:
    """C = A @ B for B with contiguous rows; a unit takes all rows of C (at most `MAX_ROWS`) and at most `MAX_COLS` columns."""
    e = ELEMENTS[dtype]
    name = f"matmul_{dtype}_row{'_t' if x_transposed else ''}{'_swap' if swap else ''}{'_add' if addend else ''}"
    heights = (4, 2, 1)
    parts = [header(shape), finish_function(e, shape, addend)]
    parts += [_row_tile(h, e, shape) for h in heights]
    b = Body()
    stride = b.mul(b.slot(A_STRIDE), e.size)
    x_row, x_k = (str(e.size), stride) if x_transposed else (stride, str(e.size))
    b_stride, depth, kc = b.mul(b.slot(B_STRIDE), e.size), b.slot(DEPTH), b.slot(KC)
    # Sums of this block of k, then sums of all; a row is a little longer than its columns so that rows are not 4 KiB apart.
    room = b.at(b.slot_pointer(SCRATCH), b.mul("%worker", b.slot(SCRATCH_STRIDE)))
    room_stride = b.mul(b.add(b.slot(UNIT_COLS), 2 * shape.lanes), 4)
    total = b.at(room, b.mul(room_stride, MAX_ROWS))
    k_end = b.op(f"call i64 @llvm.smax.i64(i64 {depth}, i64 1)")
    ends = _scalars(b, addend)
    v = f"<{shape.lanes} x float>"
    with units(b, e.size, addend, swap) as u:
        a_from, b_from = b.at(u.a, b.mul(u.row, x_row)), b.at(u.b, b.mul(u.col, e.size))
        with b.loop(0, k_end, kc) as k:
            k_stop = b.min(b.add(k.index, kc), depth)
            more = b.test("sgt", k.index, 0)
            with b.loop(0, u.rows) as i, b.loop(0, u.cols, shape.lanes) as j:
                at = b.add(b.mul(i.index, room_stride), b.mul(j.index, 4))
                b.line(f"store {v} zeroinitializer, ptr {b.at(room, at)}, align 4")
            with b.loop(k.index, k_stop, _DEEP) as q:  # few rows of B at a time, so that all rows of C find them in L1
                x, rows = b.at(a_from, b.mul(q.index, x_k)), b.at(b_from, b.mul(q.index, b_stride))
                at = "0"
                for h in heights:
                    with b.loop(at, b.add(b.sub(u.rows, h), 1), h) as i:
                        b.call(
                            f"row_{h}", f"ptr {b.at(x, b.mul(i.index, x_row))}", f"i64 {x_row}", f"i64 {x_k}", f"ptr {rows}", f"i64 {b_stride}",
                            f"i64 {b.min(_DEEP, b.sub(k_stop, q.index))}", f"ptr {b.at(room, b.mul(i.index, room_stride))}",
                            f"i64 {room_stride}", f"i64 {u.cols}",
                        )  # fmt: skip
                    at = i.index
            with b.loop(0, u.rows) as i, b.loop(0, u.cols, shape.lanes) as j:
                at = b.add(b.mul(i.index, room_stride), b.mul(j.index, 4))
                value = b.op(f"load {v}, ptr {b.at(room, at)}, align 4")
                old = b.op(f"load {v}, ptr {b.at(total, at)}, align 4")  # before the second block: anything, and not taken
                value = b.op(f"select i1 {more}, {v} {b.op(f'fadd {v} {old}, {value}')}, {v} {value}")
                b.line(f"store {v} {value}, ptr {b.at(total, at)}, align 4")
        _finish(b, e, u, total, room_stride, ends)
    parts.append(function(name, ENTRY, b, linkage=""))
    return name, "\n".join(parts) + f"\nattributes #0 = {{ {attributes} }}\n"


def _row_tile(height: int, e: Element, shape: Shape) -> str:
    """`c[height][cols] += x[height][k] @ b[k][cols]`: numbers of x stay in registers, `group` k of them at a time."""
    b = Body()
    lanes = shape.lanes
    v = f"<{lanes} x float>"
    group = min(_DEEP, (16 if shape.rows > 6 else 8) // height)
    whole = b.op(f"and i64 %cols, {-lanes}")
    mask = b.mask(lanes, b.sub("%cols", whole)) if shape.masks else ""
    ragged = b.test("ne", whole, "%cols")

    def rows(deep: int, k: str) -> None:
        numbers = [[load(b, e, b.at(b.at("%x", b.mul(b.add(k, q), "%xk")), b.mul("%xr", i))) for i in range(height)] for q in range(deep)]
        vectors = [[broadcast(b, x, lanes) for x in line] for line in numbers]
        lines = [b.at("%b", b.mul(b.add(k, q), "%bs")) for q in range(deep)]

        def step(at: str, n: int, cut: str) -> None:
            kind = v if n > 1 else "float"
            suffix = f"v{lanes}f32" if n > 1 else "f32"
            offset = b.mul(at, 4)
            targets = [b.at(b.at("%c", b.mul("%cs", i)), offset) for i in range(height)]
            sums = [b.op(f"load {kind}, ptr {t}, align 4") for t in targets]
            for q in range(deep):
                y = load(b, e, b.at(lines[q], b.mul(at, e.size)), n, cut)
                for i in range(height):
                    x = (vectors if n > 1 else numbers)[q][i]
                    sums[i] = b.op(f"call {kind} @llvm.fma.{suffix}({kind} {x}, {kind} {y}, {kind} {sums[i]})")
            for t, value in zip(targets, sums, strict=True):
                b.line(f"store {kind} {value}, ptr {t}, align 4")

        with b.loop(0, whole, lanes) as j:
            step(j.index, lanes, "")
        if mask:
            with b.when(ragged):
                step(whole, lanes, mask)
        else:
            with b.loop(whole, "%cols") as j:
                step(j.index, 1, "")

    with b.loop(0, b.add(b.sub("%k", group), 1), group) as k:
        rows(group, k.index)
    with b.loop(k.index, "%k") as one:
        rows(1, one.index)
    return function(f"row_{height}", "ptr %x, i64 %xr, i64 %xk, ptr %b, i64 %bs, i64 %k, ptr %c, i64 %cs, i64 %cols", b)


def row_scratch_bytes(unit_cols: int, shape: Shape) -> int:
    """Scratch of one worker of a `row_module` entry."""
    return 2 * MAX_ROWS * 4 * (unit_cols + 2 * shape.lanes)


def dot_scratch_bytes(unit_rows: int, unit_cols: int) -> int:
    """Scratch of one worker of a `dot_module` entry."""
    return 4 * unit_rows * unit_cols


def _scalars(b: Body, addend: bool) -> tuple[str, ...]:
    return (b.slot(D_ROW), b.slot(D_COL), float_slot(b, ALPHA), float_slot(b, BETA)) if addend else ()


def _finish(b: Body, e: Element, u: Unit, sums: str, stride: str, ends: tuple[str, ...]) -> None:
    """Write the unit's part of C from its sums."""
    n_all = b.slot(COLS)
    target = b.at(u.c, b.mul(b.add(b.mul(u.row, n_all), u.col), e.size))
    args = [f"ptr {sums}", f"i64 {stride}", f"ptr {target}", f"i64 {b.mul(n_all, e.size)}", f"i64 {u.rows}", f"i64 {u.cols}"]
    if ends:
        d_row, d_col, alpha, beta = ends
        d = b.at(u.d, b.mul(b.add(b.mul(u.row, d_row), b.mul(u.col, d_col)), e.size))
        args += [f"ptr {d}", f"i64 {d_row}", f"i64 {d_col}", f"float {alpha}", f"float {beta}"]
    b.call("finish", *args)
