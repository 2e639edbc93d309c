"""LLVM IR of entries that call BLAS's gemm, for the products of `matmul` that have no kernel of their own."""

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
    ENTRY,
    FUNCTION,
    HEADER,
    Body,
    function,
    units,
)

# name -> (type of the parts of a number, how many parts, letter of BLAS's routines)
_NUMBERS = {"float32": ("float", 1, "s"), "float64": ("double", 1, "d"), "complex64": ("float", 2, "c")}


def blas_module(dtype: str, a_transposed: bool, b_transposed: bool, addend: bool, attributes: str) -> tuple[str, str]:
    """IR text of the module and the name of its entry; slot FUNCTION holds the address of `?gemm` (Fortran, 32-bit integers)."""
    part, parts, letter = _NUMBERS[dtype]
    size = {"float": 4, "double": 8}[part] * parts
    name = f"matmul_{letter}gemm_{'t' if a_transposed else 'n'}{'t' if b_transposed else 'n'}{'_add' if addend else ''}"
    b = Body()
    gemm = b.slot_pointer(FUNCTION)
    boxes = {}
    # Row-major C = A B is column-major C' = B' A': the operands change places, and each keeps its flag.
    for key, kind, value in (
        ("first", "i8", ord("T" if b_transposed else "N")),
        ("second", "i8", ord("T" if a_transposed else "N")),
        ("n", "i32", 0),
        ("m", "i32", 0),
        ("k", "i32", b.op(f"trunc i64 {b.slot(DEPTH)} to i32")),
        ("lda", "i32", b.op(f"trunc i64 {b.slot(A_STRIDE)} to i32")),
        ("ldb", "i32", b.op(f"trunc i64 {b.slot(B_STRIDE)} to i32")),
        ("ldc", "i32", b.op(f"trunc i64 {b.slot(COLS)} to i32")),
    ):
        boxes[key] = b.op(f"alloca {kind}")
        b.line(f"store {kind} {value}, ptr {boxes[key]}")
    for key, value in (("one", "1.0"), ("zero", "0.0")):
        boxes[key] = b.op(f"alloca [2 x {part}]")
        b.line(f"store {part} {value}, ptr {boxes[key]}")
        b.line(f"store {part} 0.0, ptr {b.at(boxes[key], size // parts)}")
    a_stride, b_stride, n_all = b.slot(A_STRIDE), b.slot(B_STRIDE), b.slot(COLS)
    if addend:
        alpha, beta = (b.op(f"load double, ptr {b.at('%p', 8 * slot)}") for slot in (ALPHA, BETA))
        if part == "float":
            alpha, beta = (b.op(f"fptrunc double {x} to float") for x in (alpha, beta))
        reads = b.op(f"fcmp une {part} {beta}, 0.0")
        d_row, d_col = b.slot(D_ROW), b.slot(D_COL)
    with units(b, size, addend) as u:
        b.line(f"store i32 {b.op(f'trunc i64 {u.rows} to i32')}, ptr {boxes['m']}")
        b.line(f"store i32 {b.op(f'trunc i64 {u.cols} to i32')}, ptr {boxes['n']}")
        a = b.at(u.a, b.mul(u.row if a_transposed else b.mul(u.row, a_stride), size))
        bb = b.at(u.b, b.mul(b.mul(u.col, b_stride) if b_transposed else u.col, size))
        c = b.at(u.c, b.mul(b.add(b.mul(u.row, n_all), u.col), size))
        order = ("first", "second", "n", "m", "k", "one", bb, "ldb", a, "lda", "zero", c, "ldc")
        b.line(f"call void {gemm}({', '.join(f'ptr {boxes.get(x, x)}' for x in order)})")
        if addend:
            with b.loop(0, u.rows) as i, b.loop(0, u.cols) as j:
                here = b.at(c, b.mul(b.add(b.mul(i.index, n_all), j.index), size))
                at = b.add(b.mul(b.add(u.row, i.index), d_row), b.mul(b.add(u.col, j.index), d_col))
                there = b.at(u.d, b.mul(at, size))
                for p in range(parts):
                    target = b.at(here, p * size // parts)
                    scaled = b.op(f"fmul {part} {alpha}, {b.op(f'load {part}, ptr {target}')}")
                    b.line(f"store {part} {scaled}, ptr {target}")
                    with b.when(reads):
                        d = b.op(f"load {part}, ptr {b.at(there, p * size // parts)}")
                        b.line(f"store {part} {b.op(f'fadd {part} {scaled}, ' + b.op(f'fmul {part} {beta}, {d}'))}, ptr {target}")
    return name, HEADER + function(name, ENTRY, b, linkage="") + f"\nattributes #0 = {{ {attributes} }}\n"
