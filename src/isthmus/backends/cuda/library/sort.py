"""A stable sort of 32-bit keys, each with the number of the place that it came from: digits of 8 bits, the lowest first.

Three kernels a digit: how often each digit is in each tile of TILE keys; the sums of those counts before each, digit by
digit; and the keys to their new places, those of a tile in order (a warp finds its equal digits by `match_any`). Digits above
the largest key's are left out on the device, which alone knows it: then kernels end at once, and the result lies where the
last digit left it (`SORTED` in the texts of readers).

Scratch memory, in 32-bit words from its start: keys, keys, places, places (N each), counts (256 a tile), the largest key of
each tile, and the largest of all.
"""

from __future__ import annotations

import functools

from isthmus.backends.cuda.functions import Function, by_value, number_of

TILE = 4096
BLOCK = 256
SCAN_BLOCK = 1024
DIGITS = 4

# `scratch` and `N` are known where these are used.
LAYOUT = r"""
#define TILES ((N + 4095) / 4096)
#define KEYS(which) (scratch + (which) * N)
#define PLACES(which) (scratch + (2 + (which)) * N)
#define COUNTS (scratch + 4 * N)
#define TOPS (COUNTS + 256 * TILES)
#define TOP (TOPS[TILES])
#define SORTED ((TOP >> 8 == 0 ? 1 : TOP >> 16 == 0 ? 2 : TOP >> 24 == 0 ? 3 : 4) % 2)
"""

COMMON = r"""
#define BEGIN RELEASE u32* const scratch = (u32*)slot(p + SCRATCH); const i64 N = slot(p + SCRATCH + 1); AWAIT \
    if (DIGIT > 0 && TOP >> (8 * DIGIT) == 0) return;
"""

COUNT = r"""
extern "C" __global__ void __launch_bounds__(256) SYMBOL(PARAMETERS(SLOTS)) {
    BEGIN
    const u32* const keys = KEYS(DIGIT % 2);
    __shared__ u32 counts[256], top;
    counts[threadIdx.x] = 0;
    if (threadIdx.x == 0) top = 0;
    __syncthreads();
    const i64 tile = blockIdx.x;
    for (int e = 0; e < 16; e++) {
        const i64 i = tile * 4096 + e * 256 + threadIdx.x;
        if (i < N) {
            atomicAdd(&counts[keys[i] >> (8 * DIGIT) & 255], 1u);
            if (DIGIT == 0) atomicMax(&top, keys[i]);
        }
    }
    __syncthreads();
    if (tile >= TILES) return;
    COUNTS[threadIdx.x * TILES + tile] = counts[threadIdx.x];
    if (DIGIT == 0 && threadIdx.x == 0) TOPS[tile] = top;
}
"""

SUM = r"""
extern "C" __global__ void __launch_bounds__(1024) SYMBOL(PARAMETERS(SLOTS)) {
    RELEASE
    u32* const scratch = (u32*)slot(p + SCRATCH); const i64 N = slot(p + SCRATCH + 1);
    AWAIT
    if (blockIdx.x > 0) return;
    __shared__ u32 of_warp[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#if DIGIT == 0
    u32 top = 0;
    for (i64 k = threadIdx.x; k < TILES; k += 1024) top = TOPS[k] > top ? TOPS[k] : top;
    for (int by = 16; by; by >>= 1) { const u32 other = __shfl_xor_sync(0xffffffffu, top, by); top = other > top ? other : top; }
    if (lane == 0) of_warp[warp] = top;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 32; w++) top = of_warp[w] > top ? of_warp[w] : top;
        TOP = top;
    }
    __syncthreads();
#else
    if (TOP >> (8 * DIGIT) == 0) return;
#endif
    const i64 n = 256 * TILES;
    u32 before = 0;   // of all that came in earlier rounds
    for (i64 start = 0; start < n; start += 4096) {
        u32 x[4], own = 0;
        for (int e = 0; e < 4; e++) {
            const i64 k = start + threadIdx.x * 4 + e;
            x[e] = k < n ? COUNTS[k] : 0u;
            own += x[e];
        }
        u32 sum = own;   // up to this thread, in its warp
        for (int by = 1; by < 32; by <<= 1) { const u32 other = __shfl_up_sync(0xffffffffu, sum, by); if (lane >= by) sum += other; }
        if (lane == 31) of_warp[warp] = sum;
        __syncthreads();
        u32 warps = 0, all = 0;
        for (int w = 0; w < 32; w++) { if (w < warp) warps += of_warp[w]; all += of_warp[w]; }
        u32 at = before + warps + sum - own;
        for (int e = 0; e < 4; e++) {
            const i64 k = start + threadIdx.x * 4 + e;
            if (k < n) COUNTS[k] = at;
            at += x[e];
        }
        before += all;
        __syncthreads();
    }
}
"""

MOVE = r"""
extern "C" __global__ void __launch_bounds__(256) SYMBOL(PARAMETERS(SLOTS)) {
    BEGIN
    const i64 tile = blockIdx.x;
    if (tile >= TILES) return;
    const u32* const keys = KEYS(DIGIT % 2); const u32* const places = PLACES(DIGIT % 2);
    u32* const keys_to = KEYS(1 - DIGIT % 2); u32* const places_to = PLACES(1 - DIGIT % 2);
    __shared__ u32 counts[8][256];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int w = 0; w < 8; w++) counts[w][threadIdx.x] = 0;
    __syncthreads();
    // A warp's keys are 512 in a row, 32 at a time: `rank` is how many of its own come before with the same digit.
    const i64 first = tile * 4096 + warp * 512 + lane;
    u32 key[16], rank[16];
#pragma unroll
    for (int e = 0; e < 16; e++) {
        const bool there = first + e * 32 < N;
        key[e] = there ? keys[first + e * 32] : 0u;
        const u32 digit = there ? key[e] >> (8 * DIGIT) & 255 : 256u;
        const u32 peers = __match_any_sync(0xffffffffu, digit);
        const u32 before = there ? counts[warp][digit] : 0u;
        __syncwarp();
        rank[e] = before + __popc(peers & ((1u << lane) - 1));
        if (there && lane == 31 - __clz(peers)) counts[warp][digit] = before + __popc(peers);
        __syncwarp();
    }
    __syncthreads();
    u32 at = COUNTS[threadIdx.x * TILES + tile];   // of this thread's digit
    for (int w = 0; w < 8; w++) { const u32 n = counts[w][threadIdx.x]; counts[w][threadIdx.x] = at; at += n; }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 16; e++) {
        if (first + e * 32 >= N) continue;
        const u32 to = counts[warp][key[e] >> (8 * DIGIT) & 255] + rank[e];
        keys_to[to] = key[e];
        places_to[to] = places[first + e * 32];
    }
}
"""


@functools.cache
def sort_functions(n_slots: int) -> tuple[int, ...]:
    """The functions that sort, in order, for kernels whose scratch address is slot `n_slots` and N the one after it."""
    numbers = []
    for digit in range(DIGITS):
        for name, text in (("count", COUNT), ("sum", SUM), ("move", MOVE)):
            symbol = f"sort_{name}{digit}_{n_slots}"
            slots = by_value(n_slots + 3)
            defines = {"SYMBOL": symbol, "SLOTS": slots or 1, "SCRATCH": n_slots, "DIGIT": digit}
            head = "".join(f"#define {key} {value}\n" for key, value in defines.items())
            numbers.append(number_of(Function(symbol, head + LAYOUT + COMMON + text, None, slots=slots)))
    return tuple(numbers)


def sort_phases(n_slots: int, n: int) -> list[tuple[int, int, int]]:
    """The launches, as of a kernel's `phases`."""
    tiles = -(-n // TILE)
    shapes = ((tiles, BLOCK), (1, SCAN_BLOCK), (tiles, BLOCK))
    return [(number, *shapes[k % 3]) for k, number in enumerate(sort_functions(n_slots))]


def sort_words(n: int) -> int:
    """32-bit words of scratch memory."""
    tiles = -(-n // TILE)
    return 4 * n + 257 * tiles + 1
