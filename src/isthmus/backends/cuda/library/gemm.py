"""Matrix products by kernels of our own: `C[b] = alpha * A[b] @ B[b] + beta * D[b]`, layouts as of the CPU's products.

They take any strides, and read addresses, sizes and numbers from the table, so a graph that holds one is never captured
anew. Two forms, by the number of 64 by 64 tiles in C:

- *small*: a block does a tile of 16 by 16; its 8 warps share k in slices of 32, and their totals are added in order. For
  products that would leave most of the chip idle in larger tiles.
- *large*: a block does a tile of 64 by 64 in steps of 16 along k, a thread 4 by 4. cuBLASLt is 10 times faster here where
  it is installed (library/cublaslt.py).

16-bit values are multiplied and added in float32, by fused multiply-adds in order of k.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from isthmus.backends.cpu.library.gemm_ir import ALPHA, BETA, FIRST_AXIS, SCRATCH
from isthmus.backends.cuda.functions import Function, number_of
from isthmus.backends.cuda.library.calls import plan_call
from isthmus.graph import dtype as dtypes

TYPES = {"float32": ("f32", "f32"), "float16": ("f16", "f32"), "bfloat16": ("b16", "f32"), "float64": ("f64", "f64"), "complex64": ("c64", "c64")}
SIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "complex64": 8}
BLOCK = 256
SMALL_TILE = 16
LARGE_TILE = 64
FEW_TILES = 128  # tiles of the large form that keep the chip busy
FEW_AXES = 4  # of a batch, that parameters which come with the launch have room for
FEW_STEPS = 1 << 21  # multiply-adds from which on cuBLASLt does it, where it is installed

COMMON = r"""
typedef TYPE T; typedef ACC R;
INLINE float step(float a, float b, float c) { return __fmaf_rn(a, b, c); }
INLINE double step(double a, double b, double c) { return __fma_rn(a, b, c); }
INLINE c64 step(c64 a, c64 b, c64 c) {
    return c64{__fmaf_rn(-a.im, b.im, __fmaf_rn(a.re, b.re, c.re)), __fmaf_rn(a.im, b.re, __fmaf_rn(a.re, b.im, c.im))};
}
INLINE float plus(float a, float b) { return a + b; }
INLINE double plus(double a, double b) { return a + b; }
INLINE c64 plus(c64 a, c64 b) { return c64{a.re + b.re, a.im + b.im}; }
INLINE float times(double a, float b) { return float(a) * b; }
INLINE double times(double a, double b) { return a * b; }
INLINE c64 times(double a, c64 b) { return c64{float(a) * b.re, float(a) * b.im}; }
INLINE void round_to(f32& to, float x) { to = x; }
INLINE void round_to(f64& to, double x) { to = x; }
INLINE void round_to(c64& to, c64 x) { to = x; }
INLINE void round_to(f16& to, float x) { to.bits = to_h(x); }
INLINE void round_to(b16& to, float x) { to.bits = to_b(x); }
struct Args {
    T* c; const T* a; const T* b; const T* d;
    i64 m, n, k, as_, bs, d_row, d_col; double alpha, beta; i64 axes, row_tiles, col_tiles, tile_row, tile_col; bool done;
};
INLINE Args read(const i64* p, int side) {
    Args g;
    g.c = (T*)slot(p); g.a = (const T*)slot(p + 1); g.b = (const T*)slot(p + 2); g.d = (const T*)slot(p + 3);
    g.m = slot(p + 4); g.n = slot(p + 5); g.k = slot(p + 6); g.as_ = slot(p + 7); g.bs = slot(p + 8); g.d_row = slot(p + 9); g.d_col = slot(p + 10);
    g.alpha = __longlong_as_double(slot(p + 11)); g.beta = __longlong_as_double(slot(p + 12)); g.axes = slot(p + 22);
    g.row_tiles = (g.m + side - 1) / side; g.col_tiles = (g.n + side - 1) / side;
    i64 unit = blockIdx.x, line = quotient(unit, g.col_tiles), item = quotient(line, g.row_tiles);
    g.tile_col = unit - line * g.col_tiles; g.tile_row = line - item * g.row_tiles;
    i64 rest = item, ao = 0, bo = 0, d_o = 0;
    for (i64 axis = g.axes - 1; axis >= 0; axis--) {
        const i64* s = p + 23 + 4 * axis;
        const i64 q = quotient(rest, slot(s)), at = rest - q * slot(s);
        ao += at * slot(s + 1); bo += at * slot(s + 2); d_o += at * slot(s + 3);
        rest = q;
    }
    g.done = rest > 0;
    g.a += ao; g.b += bo; g.d += d_o; g.c += item * g.m * g.n;
    return g;
}
INLINE void write(const Args& g, i64 i, i64 j, R x) {
    if (i >= g.m || j >= g.n) return;
#if ADDEND
    x = plus(times(g.alpha, x), times(g.beta, get(g.d[i * g.d_row + j * g.d_col])));
#endif
    round_to(g.c[i * g.n + j], x);
}
#if A_TURNED
#define A_AT(i, kk) g.a[(kk) * g.as_ + (i)]
#else
#define A_AT(i, kk) g.a[(i) * g.as_ + (kk)]
#endif
#if B_TURNED
#define B_AT(kk, j) g.b[(j) * g.bs + (kk)]
#else
#define B_AT(kk, j) g.b[(kk) * g.bs + (j)]
#endif
"""

SMALL = r"""
extern "C" __global__ void __launch_bounds__(256) SYMBOL(PARAMETERS(SLOTS)) {
    RELEASE
    Args g = read(p, 16);
    AWAIT
    if (g.done) return;
    constexpr int S = sizeof(R) == 8 ? 16 : 32;   // of k, for a warp at a time
    __shared__ R as_[8][16][S + 1], bs[8][S][17];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 i0 = g.tile_row * 16, j0 = g.tile_col * 16;
    R acc[8];
#pragma unroll
    for (int c = 0; c < 8; c++) acc[c] = R{};
    for (i64 k0 = warp * S; k0 < g.k; k0 += 8 * S) {
#pragma unroll
        for (int e = 0; e < S / 2; e++) {
            const int at = lane + 32 * e;
#if A_TURNED
            const int i = at % 16, kk = at / 16;
#else
            const int i = at / S, kk = at % S;
#endif
            as_[warp][i][kk] = i0 + i < g.m && k0 + kk < g.k ? get(A_AT(i0 + i, k0 + kk)) : R{};
        }
#pragma unroll
        for (int e = 0; e < S / 2; e++) {
            const int at = lane + 32 * e;
#if B_TURNED
            const int j = at / S, kk = at % S;
#else
            const int j = at % 16, kk = at / 16;
#endif
            bs[warp][kk][j] = j0 + j < g.n && k0 + kk < g.k ? get(B_AT(k0 + kk, j0 + j)) : R{};
        }
        __syncwarp();
#pragma unroll 8
        for (int kk = 0; kk < S; kk++) {
            const R a = as_[warp][lane / 2][kk];
#pragma unroll
            for (int c = 0; c < 8; c++) acc[c] = step(a, bs[warp][kk][(lane % 2) * 8 + c], acc[c]);
        }
        __syncwarp();
    }
    __syncthreads();
    R* const part = &as_[0][0][0];   // [8][256], in what holds 8 * 16 * (S + 1)
#pragma unroll
    for (int c = 0; c < 8; c++) part[warp * 256 + (lane / 2) * 16 + (lane % 2) * 8 + c] = acc[c];
    __syncthreads();
    R x = part[threadIdx.x];
#pragma unroll
    for (int w = 1; w < 8; w++) x = plus(x, part[w * 256 + threadIdx.x]);
    write(g, i0 + threadIdx.x / 16, j0 + threadIdx.x % 16, x);
}
"""

LARGE = r"""
extern "C" __global__ void __launch_bounds__(256) SYMBOL(PARAMETERS(SLOTS)) {
    RELEASE
    Args g = read(p, 64);
    AWAIT
    if (g.done) return;
    __shared__ R as_[16][65], bs[16][65];
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const i64 i0 = g.tile_row * 64, j0 = g.tile_col * 64;
    R acc[4][4];
#pragma unroll
    for (int e = 0; e < 16; e++) acc[e / 4][e % 4] = R{};
    for (i64 k0 = 0; k0 < g.k; k0 += 16) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int at = threadIdx.x + e * 256;
#if A_TURNED
            const int i = at % 64, kk = at / 64;
#else
            const int i = at / 16, kk = at % 16;
#endif
            as_[kk][i] = i0 + i < g.m && k0 + kk < g.k ? get(A_AT(i0 + i, k0 + kk)) : R{};
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int at = threadIdx.x + e * 256;
#if B_TURNED
            const int j = at / 16, kk = at % 16;
#else
            const int j = at % 64, kk = at / 64;
#endif
            bs[kk][j] = j0 + j < g.n && k0 + kk < g.k ? get(B_AT(k0 + kk, j0 + j)) : R{};
        }
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < 16; kk++) {
            R a[4], b[4];
#pragma unroll
            for (int e = 0; e < 4; e++) { a[e] = as_[kk][ty + 16 * e]; b[e] = bs[kk][tx + 16 * e]; }
#pragma unroll
            for (int e = 0; e < 16; e++) acc[e / 4][e % 4] = step(a[e / 4], b[e % 4], acc[e / 4][e % 4]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < 16; e++) write(g, i0 + ty + 16 * (e / 4), j0 + tx + 16 * (e % 4), acc[e / 4][e % 4]);
}
"""


class Launch(NamedTuple):
    """As of the CPU's products: `address` is the number of a function, `units` blocks, `grain` threads of a block."""

    address: int
    units: int
    grain: int
    slots: list[int]
    scratch_bytes: int


class Gemm:
    """A product whose structure is known."""

    def __init__(self, dtype: str, a_transposed: bool, b_transposed: bool, addend: bool, library: bool) -> None:
        self.library = library  # whether cuBLASLt may do it
        self.structure = (dtype, a_transposed, b_transposed, addend)

    def slots(self, axes: int) -> int:
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
        """See backends/cpu/library/matmul.py for the arguments."""
        items = 1
        for axis in batch:
            items *= axis[0]
        large = items * -(-m // LARGE_TILE) * -(-n // LARGE_TILE) >= FEW_TILES
        side = LARGE_TILE if large else SMALL_TILE
        slots = [0, 0, 0, 0, m, n, k, a_stride, b_stride, d_row, d_col, *[0] * 11, len(batch)]
        for axis in batch:
            slots += axis
        number, blocks = gemm_function(large, len(batch) > FEW_AXES, *self.structure), items * -(-m // side) * -(-n // side)
        if self.library and items * m * n * k >= FEW_STEPS:
            found = plan_call(self.structure, SIZE[self.structure[0]], m, n, k, batch, a_stride, b_stride, d_row, d_col, (number, blocks, BLOCK))
            if found is not None:
                return Launch(found, 1, 1, slots, 0)
        return Launch(number, blocks, BLOCK, slots, 0)


@functools.cache
def gemm_function(large: bool, many_axes: bool, dtype: str, a_transposed: bool, b_transposed: bool, addend: bool) -> int:
    symbol = f"gemm_{'large' if large else 'small'}{'_many_axes' if many_axes else ''}_{dtype}_{'nt'[a_transposed]}{'nt'[b_transposed]}{'_add' if addend else ''}"
    memory, register = TYPES[dtype]
    slots = 0 if many_axes else FIRST_AXIS + 4 * FEW_AXES
    defines = {"SLOTS": slots or 1, "TYPE": memory, "ACC": register, "A_TURNED": int(a_transposed), "B_TURNED": int(b_transposed), "ADDEND": int(addend), "SYMBOL": symbol}
    text = "".join(f"#define {name} {value}\n" for name, value in defines.items()) + COMMON + (LARGE if large else SMALL)
    return number_of(Function(symbol, text, functools.partial(meaning, dtype, a_transposed, b_transposed, addend), slots=slots))


def meaning(dtype: str, a_transposed: bool, b_transposed: bool, addend: bool, memory: Any, p: Any) -> None:
    """What the kernels do, in NumPy: on the simulated device."""
    kind = getattr(dtypes, dtype).numpy
    wide = {"float64": np.float64, "complex64": np.complex64}.get(dtype, np.float32)
    c, a, b, d, m, n, k, a_stride, b_stride, d_row, d_col, alpha, beta = p[:13].tolist()
    batch = p[FIRST_AXIS : FIRST_AXIS + 4 * p[FIRST_AXIS - 1]].reshape(-1, 4).tolist()
    sizes = [x[0] for x in batch]

    def operand(address: int, shape: tuple[int, int], strides: tuple[int, int], which: int) -> Any:
        at = np.zeros((1,) * len(sizes) + (1, 1), np.int64)
        for axis, (size, stride) in enumerate(zip((*sizes, *shape), (*[x[which] for x in batch], *strides), strict=True)):
            at = at + (np.arange(size) * stride).reshape([-1 if x == axis else 1 for x in range(len(sizes) + 2)])
        first = min(int(at.min()), 0)  # axes may run backwards
        raw = memory.view(address + first * kind.itemsize)
        values = raw[: len(raw) // kind.itemsize * kind.itemsize].view(kind)
        return values[at - first].astype(wide)

    left = operand(a, (m, k), (1, a_stride) if a_transposed else (a_stride, 1), 1)
    right = operand(b, (k, n), (1, b_stride) if b_transposed else (b_stride, 1), 2)
    out = left @ right
    if addend:
        alpha_beta = np.array([alpha, beta], np.int64).view(np.float64).astype(np.float64 if dtype == "float64" else np.float32)
        out = alpha_beta[0] * out + alpha_beta[1] * operand(d, (m, n), (d_row, d_col), 3)
    memory.view(c, out.size * kind.itemsize).view(kind)[:] = out.astype(kind).ravel()


__all__ = ["ALPHA", "BETA", "SCRATCH", "Gemm", "Launch"]
