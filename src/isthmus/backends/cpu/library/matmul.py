"""Batched matrix products as entries: `C[b] = alpha * A[b] @ B[b] + beta * D[b]`.

What is known of a product comes in two steps. `plan_matmul` gets its structure (dtype, which operands are transposed, whether
there is an addend) and gives `Product`s, to run in order; `Product.bind` gets the sizes and gives a `Launch`: the entry's address,
how many units it has, and its parameter slots. The algorithm is a function of sizes, dtype, layout and the host, never of time:

- float32, float16, bfloat16: the kernels of `gemm_ir`, packed or not; `gemv` for a vector times a matrix. Every element is one
  chain of fused multiply-adds a block of k, blocks in order: the same bits on any number of threads.
- float64, complex64: BLAS (SciPy's OpenBLAS, held to one thread; the pool does the rest) over panels that depend on sizes alone.

Layouts. C is row-major and contiguous, batch items too. In A, B (and D) a batch axis may have any stride, 0 for broadcast. Of A's
and B's two axes one has stride 1: the last (`transposed` false) or the first but one (true); the other's stride is `a_stride`,
`b_stride`, at least the length of a line unless there is only one line. Everything else is copied by the caller.
D has two strides of its own, 0 for broadcast. All strides are in elements.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import os
import platform
from typing import NamedTuple

from isthmus.backends.cpu import compile as compiler
from isthmus.backends.cpu.library import blas_ir, gemm_ir, gemv_ir
from isthmus.backends.cpu.library.gemm_ir import ALPHA, AXES, BETA, FIRST_AXIS, SCRATCH, A, B, C, D

__all__ = ["ALPHA", "AXES", "BETA", "DTYPES", "FIRST_AXIS", "SCRATCH", "A", "B", "C", "D", "Launch", "Product", "plan_matmul"]

DTYPES = ("float32", "float16", "bfloat16", "float64", "complex64")
_SIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "complex64": 8}

# A product goes to several threads from this many multiply-adds on (about 2 us of work), in pieces of at least half of it.
_SPREAD = 1 << 19
_PIECE = 1 << 18
_SPREAD_READS = 1 << 17  # the same for products that read a number for each multiply-add
_INT32 = (1 << 31) - 1


class Launch(NamedTuple):
    """One entry of a plan. Slots C, A, B, D, ALPHA, BETA and SCRATCH are 0: the plan's patches fill them."""

    address: int
    units: int
    grain: int
    slots: list[int]
    scratch_bytes: int  # for all workers together; the address in slot SCRATCH is to be a multiple of 64


def plan_matmul(dtype: str, a_transposed: bool, b_transposed: bool, addend: bool = False) -> list[Product]:
    """The entries of one matrix product, to run in order (at present always one).

    Raises:
        ValueError: `dtype` is not one of `DTYPES`; integers are to be widened, or refused, by the op.
    """
    if dtype not in _SIZE:
        raise ValueError(f"[matmul] products are of {', '.join(DTYPES)}; got {dtype}.")
    return [_product(dtype, bool(a_transposed), bool(b_transposed), bool(addend))]


class Product:
    """A product whose structure is known; its entries are compiled when a size first asks for them."""

    def __init__(self, dtype: str, a_transposed: bool, b_transposed: bool, addend: bool) -> None:
        self.dtype = dtype
        self.a_transposed = a_transposed
        self.b_transposed = b_transposed
        self.addend = addend
        self.size = _SIZE[dtype]
        self.shape = _shape()
        self.span = gemm_ir.span_of(dtype, self.shape)
        self.blas = dtype in ("float64", "complex64")
        self._address = 0
        self._blas_function = 0
        self._few_rows: dict[tuple[str, bool, bool], int] = {}

    def slots(self, axes: int) -> int:
        """How many parameter slots a product with this many batch axes takes at most."""
        return FIRST_AXIS + 4 * axes

    def bind(
        self,
        m: int,
        n: int,
        k: int,
        batch: tuple[tuple[int, int, int, int], ...],
        a_stride: int,
        b_stride: int,
        d_row: int = 0,
        d_col: int = 0,
        threads: int = 1,
    ) -> Launch:
        """Choose the algorithm for these sizes.

        Args:
            m: Rows of C. All of `m`, `n` and the batch sizes are at least 1 (an empty C has nothing to launch); `k` may be 0.
            n: Columns of C.
            k: Columns of A, rows of B.
            batch: `(size, stride of A, stride of B, stride of D)` of each batch axis, outermost first.
            a_stride: Stride of A's other axis: from row to row, or if `a_transposed` from k to k.
            b_stride: Stride of B's other axis: from k to k, or if `b_transposed` from column to column.
            d_row: Stride of D along the rows of C.
            d_col: Stride of D along its columns.
            threads: Threads of the pool.
        """
        # Batch axes that only lengthen A (one B for all) become rows: (B, L, D) @ (D, O).
        while batch and not self.a_transposed:
            size, sa, sb, sd = batch[-1]
            if size == 1:
                pass
            elif sb == 0 and (sa == m * a_stride or m == 1) and (not self.addend or sd == m * d_row or m == 1):
                if m == 1:
                    a_stride, d_row = sa, sd
                m *= size
            else:
                break
            batch = batch[:-1]
        items = 1
        for axis in batch:
            items *= axis[0]
        if self.blas:
            return self._bind_blas(m, n, k, batch, items, a_stride, b_stride, d_row, d_col, threads)
        if m <= 4 or n == 1 or (m <= gemv_ir.MAX_ROWS and k * n >= 1 << 16):
            launch = self._bind_few_rows(m, n, k, batch, items, a_stride, b_stride, d_row, d_col, threads)
            if launch is not None:
                return launch
        height, width = self.shape.rows, self.shape.cols
        work = m * n * (k or 1)
        # What to pack. Lines a multiple of 4 KiB apart share cache sets, so a tile of such lines evicts itself.
        flags = 0
        unit_rows, unit_cols = m, n
        if self.size == 2:
            # Pairs of bfloat16 along k are read from the rows of A as they lie there.
            flags = gemm_ir.PACK_B if self.span == 2 and not self.a_transposed and k % 2 == 0 else gemm_ir.PACK_A | gemm_ir.PACK_B
            if unit_rows > 768:
                unit_rows = 768
        else:
            # Reading B's rows in order beats reading it tile by tile when it comes from memory, or from L2 often enough.
            if self.b_transposed or k * n >= 1 << 23 or (m > 128 and (k * n >= 1 << 20 or b_stride % 1024 == 0)):
                flags = gemm_ir.PACK_B
            if self.a_transposed and n >= 256 and (a_stride >= 2048 or a_stride % 1024 == 0 or self.shape.lanes < 16):
                flags |= gemm_ir.PACK_A
        if unit_cols > 1024:
            unit_cols = 1024
        grain = pieces = 1
        spread = threads > 1 and work * items >= _SPREAD
        if spread:
            pieces = min(4 * threads, work * items // _PIECE)
            if items < pieces:
                # Halve the longer side, in whole tiles, until there are enough.
                while items * -(-m // unit_rows) * -(-n // unit_cols) < pieces:
                    if unit_rows >= unit_cols and unit_rows > height:
                        unit_rows = -(-unit_rows // (2 * height)) * height
                    elif unit_cols > width:
                        unit_cols = -(-unit_cols // (2 * width)) * width
                    elif unit_rows > height:
                        unit_rows = -(-unit_rows // (2 * height)) * height
                    else:
                        break
        row_units, col_units = -(-m // unit_rows), -(-n // unit_cols)
        units = items * row_units * col_units
        grain = -(-units // pieces)
        kc = _depth(k, gemm_ir.MAX_KC * self.span)
        per_worker = -(-gemm_ir.scratch_bytes(self.dtype, self.shape, kc, unit_rows, unit_cols) // 4096) * 4096 + 64
        slots = [
            0, 0, 0, 0, m, n, k, a_stride, b_stride, d_row, d_col, 0, 0, unit_rows, unit_cols, row_units, col_units,
            0, per_worker, flags, kc, 0, len(batch),
        ]  # fmt: skip
        for axis in batch:
            slots += axis
        return Launch(self._address or self._compile(), units, grain, slots, per_worker * (threads if spread else 1))

    def _bind_few_rows(
        self,
        m: int,
        n: int,
        k: int,
        batch: tuple[tuple[int, int, int, int], ...],
        items: int,
        a_stride: int,
        b_stride: int,
        d_row: int,
        d_col: int,
        threads: int,
    ) -> Launch | None:
        """A product bound by reading its one large matrix; None where the register tiles do as well."""
        a_along_k = not self.a_transposed or (m == 1 and a_stride == 1)
        b_along_k = self.b_transposed or (n == 1 and b_stride == 1)
        swap = n == 1 and m > 1
        x_transposed = False
        if a_along_k and b_along_k:
            kind = "dot"
        elif swap and self.a_transposed:
            kind, x_transposed = "row", not self.b_transposed
        elif m <= gemv_ir.MAX_ROWS and not self.b_transposed and n > 1:
            kind, x_transposed = "row", self.a_transposed
        else:
            return None
        if swap:
            m, n, a_stride, b_stride, d_row, d_col = n, m, b_stride, a_stride, d_col, d_row
            batch = tuple((size, sb, sa, sd) for size, sa, sb, sd in batch)
        work = m * n * (k or 1)
        unit_cols = n if n < gemv_ir.MAX_COLS or kind == "dot" and threads == 1 else gemv_ir.MAX_COLS
        grain = units = items * -(-n // unit_cols)
        spread = threads > 1 and work * items >= _SPREAD_READS
        if spread:
            pieces = min(4 * threads, work * items // (_SPREAD_READS // 2))
            while items * -(-n // unit_cols) < pieces and unit_cols > 64:
                unit_cols = (unit_cols + 127) // 128 * 64
            units = items * -(-n // unit_cols)
            grain = -(-units // pieces)
        if kind == "dot":
            per_worker = gemv_ir.dot_scratch_bytes(m, unit_cols)
        else:
            per_worker = gemv_ir.row_scratch_bytes(unit_cols, self.shape)
        per_worker = (per_worker + 127) // 64 * 64
        slots = [
            0, 0, 0, 0, m, n, k, a_stride, b_stride, d_row, d_col, 0, 0, m, unit_cols, 1, -(-n // unit_cols),
            0, per_worker, 0, _depth(k, gemm_ir.MAX_KC), 0, len(batch),
        ]  # fmt: skip
        for axis in batch:
            slots += axis
        key = kind, x_transposed, swap
        return Launch(self._few_rows.get(key) or self._compile_few_rows(*key), units, grain, slots, per_worker * (threads if spread else 1))

    def _compile_few_rows(self, kind: str, x_transposed: bool, swap: bool) -> int:
        if kind == "dot":
            name, text = gemv_ir.dot_module(self.dtype, self.addend, swap, self.shape, compiler.FUNCTION_ATTRIBUTES)
        else:
            name, text = gemv_ir.row_module(self.dtype, x_transposed, self.addend, swap, self.shape, compiler.FUNCTION_ATTRIBUTES)
        address = self._few_rows[kind, x_transposed, swap] = compiler.compile_module(text, [name])[name]
        return address

    def _compile(self) -> int:
        name, text = gemm_ir.gemm_module(self.dtype, self.a_transposed, self.b_transposed, self.addend, self.shape, compiler.FUNCTION_ATTRIBUTES)
        self._address = compiler.compile_module(text, [name])[name]
        return self._address

    def _bind_blas(
        self,
        m: int,
        n: int,
        k: int,
        batch: tuple[tuple[int, int, int, int], ...],
        items: int,
        a_stride: int,
        b_stride: int,
        d_row: int,
        d_col: int,
        threads: int,
    ) -> Launch:
        a_stride = max(a_stride, m if self.a_transposed else k, 1)
        b_stride = max(b_stride, k if self.b_transposed else n, 1)
        if max(k, a_stride, b_stride, n) > _INT32:
            raise ValueError(f"[matmul] {self.dtype} products have dimensions and strides below 2^31; got k {k}, strides {a_stride}, {b_stride}.")
        # Panels by sizes alone, so that bits do not depend on threads: about eight along the longer side, of whole tiles.
        unit_rows, unit_cols = m, n
        if m * n * k >= 1 << 21:
            if m >= n:
                unit_rows = min(m, max(64, (m + 255) // 256 * 32))
            else:
                unit_cols = min(n, max(64, (n + 255) // 256 * 32))
        row_units, col_units = -(-m // unit_rows), -(-n // unit_cols)
        units = items * row_units * col_units
        grain = max(1, _PIECE // (unit_rows * unit_cols * max(k, 1)))
        if threads == 1 or m * n * k * items < _SPREAD:
            grain = units
        if not self._address:
            name, text = blas_ir.blas_module(self.dtype, self.a_transposed, self.b_transposed, self.addend, compiler.FUNCTION_ATTRIBUTES)
            self._blas_function = blas_function("dgemm" if self.dtype == "float64" else "cgemm")
            self._address = compiler.compile_module(text, [name])[name]
        slots = [
            0, 0, 0, 0, m, n, k, a_stride, b_stride, d_row, d_col, 0, 0, unit_rows, unit_cols, row_units, col_units,
            0, 0, 0, 0, self._blas_function, len(batch),
        ]  # fmt: skip
        for axis in batch:
            slots += axis
        return Launch(self._address, units, grain, slots, 0)


@functools.cache
def _product(dtype: str, a_transposed: bool, b_transposed: bool, addend: bool) -> Product:
    return Product(dtype, a_transposed, b_transposed, addend)


@functools.cache
def _shape() -> gemm_ir.Shape:
    host = compiler.host()
    many = host.simd_bytes == 64 or platform.machine() in ("aarch64", "arm64")
    return gemm_ir.shape_for(host.simd_bytes, 32 if many else 16, host.has("avx512bf16"))


def _depth(k: int, most: int) -> int:
    """The block of k: equal blocks of at most `most`, in fours. Part of what a product's bits depend on."""
    blocks = (k + most - 1) // most or 1
    return ((k + blocks - 1) // blocks + 3) // 4 * 4 or 4


# --- BLAS -------------------------------------------------------------------------------------------------------------


@functools.cache
def blas_function(name: str) -> int:
    """Address of a BLAS function with the Fortran interface and 32-bit integers.

    From the OpenBLAS that SciPy's wheel brings, opened by itself (importing `scipy.linalg` takes 300 ms), else from the table that
    `scipy.linalg.cython_blas` exports. NumPy's BLAS is another copy and is left alone.
    """
    library = _openblas()
    if library is not None:
        for symbol in (f"scipy_{name}_", f"{name}_"):
            found = getattr(library, symbol, None)
            if found is not None:
                return ctypes.cast(found, ctypes.c_void_p).value or 0
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)) or 0


@functools.cache
def _openblas() -> ctypes.CDLL | None:
    """SciPy's OpenBLAS, told to use one thread: the pool's threads call it at the same time."""
    spec = importlib.util.find_spec("scipy")
    if spec is None or not spec.submodule_search_locations:
        return None
    package = spec.submodule_search_locations[0]
    for pattern in ("../scipy.libs/*openblas*", ".dylibs/*openblas*"):
        for path in glob.glob(os.path.join(package, pattern)):
            try:
                library = ctypes.CDLL(path)
            except OSError:
                continue
            for symbol in ("scipy_openblas_set_num_threads", "openblas_set_num_threads"):
                setter = getattr(library, symbol, None)
                if setter is not None:
                    setter(ctypes.c_int(1))
                    return library
    return None
