"""Matrix products by kernels of our own: `C[b] = alpha * A[b] @ B[b] + beta * D[b]`, layouts as of the CPU's products.

They take any strides, and read addresses, sizes and numbers from the table, so a graph that holds one is never captured
anew. Two forms, by the number of 64 by 64 tiles in C:

- *small*: a block does a tile of 32 by 32; its 8 warps share k in slices of 16, and their totals are added in a fixed
  order. For products that would leave most of the chip idle in larger tiles. Where k is long and tiles are few (*shared*,
  on chips with clusters), 8 blocks share k, and add their totals through each other's shared memory.
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
SMALL_TILE = 32
SHARERS = 8  # blocks of a cluster that share k,
SHARED_FROM = 257  # from this k on,
SHARED_TILES = 128  # for at most so many tiles
LARGE_TILE = 64
FEW_TILES = 128  # tiles of the large form that keep the chip busy
FEW_AXES = 4  # of a batch, that parameters which come with the launch have room for
# Multiply-adds from which on cuBLASLt does it, where it is installed.
FEW_STEPS = {"float32": 1 << 25, "float16": 1 << 21, "bfloat16": 1 << 21, "float64": 1 << 21, "complex64": 1 << 23}

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
INLINE Args read(const i64* p, int side, i64 unit) {
    Args g;
    g.c = (T*)slot(p); g.a = (const T*)slot(p + 1); g.b = (const T*)slot(p + 2); g.d = (const T*)slot(p + 3);
    g.m = slot(p + 4); g.n = slot(p + 5); g.k = slot(p + 6); g.as_ = slot(p + 7); g.bs = slot(p + 8); g.d_row = slot(p + 9); g.d_col = slot(p + 10);
    g.alpha = __longlong_as_double(slot(p + 11)); g.beta = __longlong_as_double(slot(p + 12)); g.axes = slot(p + 22);
    g.row_tiles = (g.m + side - 1) / side; g.col_tiles = (g.n + side - 1) / side;
    i64 line = quotient(unit, g.col_tiles), item = quotient(line, g.row_tiles);
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
#define S (sizeof(R) == 8 ? 8 : 16)   // of k, for a warp at a time
#define PITCH 36   // of a line of 32, so that packs of 16 bytes stay whole and banks differ
extern "C" __global__ void CLUSTER __launch_bounds__(256, sizeof(R) == 8 ? 1 : 2) SYMBOL(PARAMETERS(SLOTS)) {
    RELEASE
    Args g = read(p, 32, blockIdx.x / BLOCKS);
    AWAIT
    if (g.done) return;
    __shared__ __align__(16) R pool[2 * 8 * S * PITCH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = blockIdx.x % BLOCKS;
    R (*as_)[PITCH] = (R (*)[PITCH])(pool + warp * S * PITCH), (*bs)[PITCH] = (R (*)[PITCH])(pool + (8 + warp) * S * PITCH);
    const i64 i0 = g.tile_row * 32, j0 = g.tile_col * 32;
    const int row = lane / 4 * 4, col = lane % 4 * 8;
    R acc[4][8];
#pragma unroll
    for (int e = 0; e < 32; e++) acc[e / 8][e % 8] = R{};
    // A slice of k is fetched while the one before it is worked on. Bit e of a mask: whether this lane's e-th element is there.
    R ra[S], rb[S];
    i64 k0 = i64(part * 8 + warp) * S;
    const i64 round = 8 * BLOCKS * S;
    const int across = lane % int(S), down = lane / int(S), lines = 32 / S;
    const T* pa = A_TURNED ? &A_AT(i0 + lane, k0) : &A_AT(i0 + down, k0 + across);
    const T* pb = B_TURNED ? &B_AT(k0 + across, j0 + down) : &B_AT(k0, j0 + lane);
    const i64 step_a = A_TURNED ? g.as_ : lines * g.as_, step_b = B_TURNED ? lines * g.bs : g.bs;
    u32 in_a = 0, in_b = 0;
#pragma unroll
    for (int e = 0; e < S; e++) {
        in_a |= u32(i0 + (A_TURNED ? lane : down + lines * e) < g.m) << e;
        in_b |= u32(j0 + (B_TURNED ? down + lines * e : lane) < g.n) << e;
    }
    auto fetch = [&]() {
        const u32 along = k0 + S <= g.k ? ~0u : k0 < g.k ? (1u << int(g.k - k0)) - 1 : 0u;   // of k0 + e
        const u32 at = k0 + across < g.k ? ~0u : 0u;
        const u32 ma = in_a & (A_TURNED ? along : at), mb = in_b & (B_TURNED ? at : along);
#pragma unroll
        for (int e = 0; e < S; e++) {
            ra[e] = ma >> e & 1 ? get(pa[e * step_a]) : R{};
            rb[e] = mb >> e & 1 ? get(pb[e * step_b]) : R{};
        }
        pa += A_TURNED ? round * g.as_ : round;
        pb += B_TURNED ? round : round * g.bs;
    };
    fetch();
    while (k0 < g.k) {
#pragma unroll
        for (int e = 0; e < S; e++) {
            if (A_TURNED) as_[e][lane] = ra[e]; else as_[across][down + lines * e] = ra[e];
            if (B_TURNED) bs[across][down + lines * e] = rb[e]; else bs[e][lane] = rb[e];
        }
        __syncwarp();
        k0 += round;
        if (k0 < g.k) fetch();
#pragma unroll 4
        for (int kk = 0; kk < S; kk++) {
            R a[4], b[8];
#pragma unroll
            for (int r = 0; r < 4; r++) a[r] = as_[kk][row + r];
#pragma unroll
            for (int c = 0; c < 8; c++) b[c] = bs[kk][col + c];
#pragma unroll
            for (int e = 0; e < 32; e++) acc[e / 8][e % 8] = step(a[e / 8], b[e % 8], acc[e / 8][e % 8]);
        }
        __syncwarp();
    }
    // The totals of the warps: of w and w + 4, then w and w + 2, then both.
#pragma unroll
    for (int half = 4; half >= 1; half /= 2) {
        __syncthreads();
        if (warp >= half && warp < 2 * half)
#pragma unroll
            for (int e = 0; e < 32; e++) pool[((warp - half) * 32 + e) * 32 + lane] = acc[e / 8][e % 8];
        __syncthreads();
        if (warp < half)
#pragma unroll
            for (int e = 0; e < 32; e++) acc[e / 8][e % 8] = plus(acc[e / 8][e % 8], pool[(warp * 32 + e) * 32 + lane]);
    }
    __syncthreads();
    if (warp == 0)
#pragma unroll
        for (int e = 0; e < 32; e++) pool[(row + e / 8) * 32 + col + e % 8] = acc[e / 8][e % 8];
#if BLOCKS > 1
    cluster_sync();
    const int e = part * (1024 / BLOCKS) + threadIdx.x;
    if (threadIdx.x < 1024 / BLOCKS) {
        R x = of_block(pool + e, 0);
#pragma unroll
        for (int other = 1; other < BLOCKS; other++) x = plus(x, of_block(pool + e, other));
        write(g, i0 + e / 32, j0 + e % 32, x);
    }
    cluster_sync();   // the others have read this block's
#else
    __syncthreads();
#pragma unroll
    for (int e = threadIdx.x; e < 1024; e += 256) write(g, i0 + e / 32, j0 + e % 32, pool[e]);
#endif
}
"""

LARGE = r"""
extern "C" __global__ void __launch_bounds__(256) SYMBOL(PARAMETERS(SLOTS)) {
    RELEASE
    Args g = read(p, 64, blockIdx.x);
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

    def __init__(self, dtype: str, a_transposed: bool, b_transposed: bool, addend: bool, library: bool, clusters: bool) -> None:
        self.library = library  # whether cuBLASLt may do it
        self.clusters = clusters  # whether blocks can share memory
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
        blocks = items * -(-m // side) * -(-n // side)
        form = "large" if large else "small"
        if form == "small" and self.clusters and k >= SHARED_FROM and blocks <= SHARED_TILES:
            form, blocks = "shared", blocks * SHARERS
        number = gemm_function(form, len(batch) > FEW_AXES, *self.structure)
        if self.library and items * m * n * k >= FEW_STEPS[self.structure[0]]:
            found = plan_call(self.structure, SIZE[self.structure[0]], m, n, k, batch, a_stride, b_stride, d_row, d_col, (number, blocks, BLOCK))
            if found is not None:
                return Launch(found, 1, 1, slots, 0)
        return Launch(number, blocks, BLOCK, slots, 0)


@functools.cache
def gemm_function(form: str, many_axes: bool, dtype: str, a_transposed: bool, b_transposed: bool, addend: bool) -> int:
    symbol = f"gemm_{form}{'_many_axes' if many_axes else ''}_{dtype}_{'nt'[a_transposed]}{'nt'[b_transposed]}{'_add' if addend else ''}"
    memory, register = TYPES[dtype]
    slots = 0 if many_axes else FIRST_AXIS + 4 * FEW_AXES
    blocks = SHARERS if form == "shared" else 1
    cluster = f"__cluster_dims__({blocks}, 1, 1)" if blocks > 1 else ""
    defines = {"SLOTS": slots or 1, "BLOCKS": blocks, "CLUSTER": cluster, "TYPE": memory, "ACC": register, "A_TURNED": int(a_transposed), "B_TURNED": int(b_transposed), "ADDEND": int(addend), "SYMBOL": symbol}
    text = "".join(f"#define {name} {value}\n" for name, value in defines.items()) + COMMON + (LARGE if form == "large" else SMALL)
    return number_of(Function(symbol, text, functools.partial(meaning, dtype, a_transposed, b_transposed, addend), blocks, slots))


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
