"""The CPU renderer against the interpreter: values, and the bits of everything that is exact."""

from __future__ import annotations

import ctypes
import itertools
import mmap

import numpy as np
import pytest

from isthmus.backends.cpu import render as renderer
from isthmus.graph.dtype import (
    ALL,
    Dtype,
    bfloat16,
    bool_,
    complex64,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from isthmus.kernel import scalar as s
from isthmus.kernel.interpret import interpret
from isthmus.kernel.loops import Axis, Index, Kernel, Load, Reduce, Side, Slot, Stage, Store
from isthmus.kernel.scalar import Expr

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
GUARD = 256  # bytes around a buffer that must not change


def run(kernel, numbers, buffers, sizes, threads=1, grain=None):
    """Run a kernel as the driver would; `numbers` are the slots after the buffers' addresses."""
    made = renderer.render(kernel)
    launch = made.bind(tuple(sizes), threads)
    scratch = np.full(launch.scratch_bytes + 128, 0xAB, np.uint8)
    start = -(-scratch.ctypes.data // 64) * 64
    slots = [b.ctypes.data for b in buffers] + list(numbers)
    assert len(slots) == kernel.n_slots
    p = np.array([*slots, start, *launch.extra], np.uint64).view(np.int64)
    assert len(p) == made.n_slots
    for address, units, wanted in launch.phases:
        step = wanted if kernel.form == "scatter" and wanted == units else grain or wanted
        for k, begin in enumerate(range(0, units, step)):
            ENTRY(address)(p.ctypes.data, begin, min(units, begin + step), k % threads)
    assert (scratch[start - scratch.ctypes.data + launch.scratch_bytes :] == 0xAB).all(), "wrote past the scratch"


def check(kernel, numbers, buffers, sizes, tolerance=0, written=None):
    """The renderer's results are the interpreter's, and do not depend on threads or grain.

    `tolerance` is in units of the last place of float32 (or of the buffer's own type, if that is coarser).
    """
    numbers = [n & 0xFFFF_FFFF_FFFF_FFFF for n in numbers]
    signed = [n - (1 << 64) if n >> 63 else n for n in numbers]
    expected = [b.copy() for b in buffers]
    interpret(kernel, [*range(len(buffers)), *signed], expected)
    first = None
    for threads, grain in ((1, None), (2, None), (2, 1), (3, 7), (8, None)):
        padded = []
        for b in buffers:
            raw = np.full(b.nbytes + 2 * GUARD, 0xCD, np.uint8)
            raw[GUARD : GUARD + b.nbytes] = b.view(np.uint8)
            padded.append(raw)
        views = [raw[GUARD : GUARD + b.nbytes].view(b.dtype) for raw, b in zip(padded, buffers)]
        if grain is not None and np.prod(sizes) / grain > 20000:
            grain = 64
        run(kernel, numbers, views, sizes, threads, grain)
        for raw in padded:
            assert (raw[:GUARD] == 0xCD).all() and (raw[-GUARD:] == 0xCD).all(), "wrote outside a buffer"
        if first is None:
            first = views
            for k, (got, want) in enumerate(zip(views, expected)):
                assert_same(got, want, tolerance, f"buffer {k}, sizes {sizes}\n{kernel.text()}")
        for got, want in zip(views, first):
            assert same_bits(got, want), f"threads {threads}, grain {grain} change bits, sizes {sizes}\n{kernel.text()}"


def same_bits(a, b):
    """Equal bits but for the sign and payload of NaN, which are the machine's business."""
    if a.dtype.kind == "c":
        a, b = a.view(np.float32), b.view(np.float32)
    if a.dtype.kind in "biu":
        return a.tobytes() == b.tobytes()
    nan = np.isnan(a.astype(np.float64))
    return (nan == np.isnan(b.astype(np.float64))).all() and np.where(nan, 0, a).tobytes() == np.where(nan, 0, b).tobytes()


def assert_same(got, want, tolerance, what):
    if got.dtype.kind in "biu":
        assert (got == want).all(), f"{what}\n{got}\n{want}"
        return
    if got.dtype.kind == "c":
        assert (np.isnan(got) == np.isnan(want)).all(), f"{what}\n{got}\n{want}"
        got, want = (x[~np.isnan(x)].view(np.float32) for x in (got, want))
    with np.errstate(invalid="ignore"):
        wide, wider = got.astype(np.float64), want.astype(np.float64)
    assert (np.isnan(wide) == np.isnan(wider)).all(), f"{what}\n{got}\n{want}"
    fine = ~np.isnan(wide)
    wide, wider = wide[fine], wider[fine]
    if not tolerance:
        bad = wide != wider
    else:
        unit = {2: 2.0**-8, 4: 2.0**-23, 8: 2.0**-52}[got.dtype.itemsize]
        if got.dtype == np.float16:
            unit = 2.0**-10
        with np.errstate(invalid="ignore"):
            bad = ~((np.abs(wide - wider) <= tolerance * unit * np.abs(wider) + 1e-38) | (wide == wider))
    assert not bad.any(), f"{what}\n{wide[bad][:8]}\n{wider[bad][:8]}"


def load(buffer, dtype, *terms, offset=0, values=(), mask=None):
    return Expr("load", dtype, (), Load(buffer, Index(offset, tuple(terms), tuple(values)), mask))


def axis(k):
    return Expr("axis", int64, (), k)


def row(k, dtype):
    return Expr("row", dtype, (), k)


def sample(dtype: Dtype, n: int, seed: int = 0, special: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype is bool_:
        return rng.integers(0, 2, n).astype(bool)
    if dtype.rank == 1:
        values = rng.integers(0, 1 << 63, n, dtype=np.uint64) * np.uint64(2) + rng.integers(0, 2, n).astype(np.uint64)
        values = values >> rng.integers(0, 63, n).astype(np.uint64)  # all sizes
        if dtype.category == "signed":
            values = np.where(rng.integers(0, 2, n) == 1, values, ~values)
        return values.astype(dtype.numpy)
    if dtype is complex64:
        return sample(float32, 2 * n, seed, special).view(np.complex64)
    values = rng.standard_normal(n) * np.exp(rng.standard_normal(n) * 1.5)
    if special:
        for k, v in enumerate([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]):
            values[7 * k + 3 :: 61] = v
    with np.errstate(over="ignore"):
        return values.astype(dtype.numpy)


def flat_map(value, n_inputs, inputs, out):
    """One axis; the inputs are read in place."""
    buffers = (*inputs, out)
    return Kernel("map", (Axis(Slot(len(buffers)), False),), buffers, (Stage((Store(n_inputs, Index(0, ((0, 1),)), value),)),), len(buffers) + 1)


# -- primitives

INTEGERS = [d for d in ALL if d.rank == 1]
REAL = [float32, float64]
UNARY = {
    **dict.fromkeys("floor ceil trunc rint sqrt exp expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan".split(), REAL),
    **dict.fromkeys("sinh cosh tanh arcsinh arccosh arctanh erf erfinv sigmoid".split(), REAL),
    "neg": INTEGERS + REAL, "abs": [d for d in INTEGERS if d.category == "signed"] + REAL, "not": [*INTEGERS, bool_],
}  # fmt: skip
BINARY = {
    **dict.fromkeys("add sub mul min max".split(), INTEGERS + REAL),
    **dict.fromkeys("idiv imod ipow shl shr".split(), INTEGERS),
    **dict.fromkeys("div copysign fmod pow arctan2".split(), REAL),
    **{op: [*INTEGERS, bool_] for op in "and or xor".split()},
}
COMPARE = "eq ne lt le gt ge".split()
EXACT = {*"floor ceil trunc rint sqrt neg abs not add sub mul min max idiv imod ipow shl shr div copysign fmod and or xor".split()}


@pytest.mark.parametrize("op", UNARY)
def test_unary(op):
    for dtype in UNARY[op]:
        x = load(0, dtype, (0, 1))
        kernel = flat_map(Expr(op, dtype, (x,)), 1, (dtype,), dtype)
        for n in (1, 100):
            check(kernel, [n], [sample(dtype, n), np.zeros(n, dtype.numpy)], [n], 0 if op in EXACT else 8)


@pytest.mark.parametrize("op", BINARY)
def test_binary(op):
    for dtype in BINARY[op]:
        a, b = load(0, dtype, (0, 1)), load(1, dtype, (0, 1))
        kernel = flat_map(Expr(op, dtype, (a, b)), 2, (dtype, dtype), dtype)
        for n in (1, 200):
            second = sample(dtype, n, 1)
            if op == "ipow":
                second = np.clip(second.astype(np.float64), 0, 9).astype(dtype.numpy)
            if op in ("shl", "shr"):
                second[::3] = np.arange(len(second[::3])) % (dtype.bits + 2)
            check(kernel, [n], [sample(dtype, n), second, np.zeros(n, dtype.numpy)], [n], 0 if op in EXACT else 8)


@pytest.mark.parametrize("op", COMPARE)
def test_compare(op):
    for dtype in [*INTEGERS, *REAL, bool_]:
        a, b = load(0, dtype, (0, 1)), load(1, dtype, (0, 1))
        kernel = flat_map(Expr(op, bool_, (a, b)), 2, (dtype, dtype), bool_)
        second = sample(dtype, 100, 1)
        second[::4] = sample(dtype, 100)[::4]
        check(kernel, [100], [sample(dtype, 100), second, np.zeros(100, bool)], [100])


@pytest.mark.parametrize("from_", ALL, ids=lambda d: d.name)
def test_cast_and_copy(from_):
    for to in ALL:
        kernel = flat_map(s.cast(load(0, from_, (0, 1)), to), 1, (from_,), to)
        for n in (1, 131):
            check(kernel, [n], [sample(from_, n), np.zeros(n, to.numpy)], [n])


def test_float64_rounds_once_to_half():
    x = np.array([1 + 2.0**-9 + 2.0**-40, 1 + 2.0**-11 + 2.0**-40, 65519.99999, 65520.0, 1e308, 2.0**-25 * 1.0000001, -1e-300, np.nan, 3.4e38])
    for to in (float16, bfloat16):
        check(flat_map(s.cast(load(0, float64, (0, 1)), to), 1, (float64,), to), [len(x)], [x, np.zeros(len(x), to.numpy)], [len(x)])


def test_half_arithmetic_rounds_each_operation():
    for dtype in (float16, bfloat16):
        a, b = load(0, dtype, (0, 1)), load(1, dtype, (0, 1))
        value = s.add(s.mul(a, b), s.div(a, b))
        check(flat_map(value, 2, (dtype, dtype), dtype), [257], [sample(dtype, 257), sample(dtype, 257, 1), np.zeros(257, dtype.numpy)], [257])


@pytest.mark.parametrize("op", [op for op in UNARY if UNARY[op] == REAL or op in ("neg", "abs")])
def test_every_bfloat16(op):
    x = np.arange(1 << 16).astype(np.uint16).view(bfloat16.numpy)
    value = getattr(s, "abs_" if op == "abs" else op)(load(0, bfloat16, (0, 1)))
    y = np.zeros(1 << 16, bfloat16.numpy)
    run(flat_map(value, 1, (bfloat16,), bfloat16), [1 << 16], [x, y], [1 << 16])
    x = np.where(np.isnan(x.astype(np.float32)), np.array(np.nan, bfloat16.numpy), x)  # NumPy warns of signalling ones
    expected = y.copy()
    with np.errstate(all="ignore"):
        interpret(flat_map(value, 1, (bfloat16,), bfloat16), [0, 0, 1 << 16], [x, expected])
    assert_same(y, expected, 1, op)


def test_nan_of_any_payload_stays_nan():
    x = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FC00000, 0x7FFF8000], np.uint32).view(np.float32)
    for value in (load(0, float32, (0, 1)), s.mul(load(0, float32, (0, 1)), s.const(2, float32))):
        for to in (bfloat16, float16):
            y = np.zeros(5, to.numpy)
            run(flat_map(s.cast(value, to), 1, (float32,), to), [5], [x, y], [5])
            assert np.isnan(y.astype(np.float32)).all()


def test_bitcast():
    for a, b in itertools.product(ALL, ALL):
        if a.size == b.size and bool_ not in (a, b):
            data = np.random.default_rng(0).integers(0, 256, 70 * a.size).astype(np.uint8).view(a.numpy)
            if a.rank >= 2 or b.rank >= 2:
                data = sample(a, 70, special=False)
                if a.rank < 2:
                    data = sample(b, 70, special=False).view(a.numpy)
            check(flat_map(s.bitcast(load(0, a, (0, 1)), b), 1, (a,), b), [70], [data, np.zeros(70, b.numpy)], [70])


def test_complex():
    a, b = load(0, complex64, (0, 1)), load(1, complex64, (0, 1))
    x, y = sample(complex64, 100, special=False), sample(complex64, 100, 1, special=False)
    for value in (s.add(a, b), s.mul(a, b), s.div(a, b), s.neg(a), s.select(s.lt(a, b), a, b), s.const(2 + 3j, complex64)):
        check(flat_map(value, 2, (complex64, complex64), complex64), [100], [x, y, np.zeros(100, np.complex64)], [100])
    for value in (s.abs_(a), s.imag(a)):
        check(flat_map(value, 2, (complex64, complex64), float32), [100], [x, y, np.zeros(100, np.float32)], [100])


def test_param():
    import struct

    for dtype in ALL:
        bits = struct.unpack("<q", struct.pack("<d", 1 / 3))[0] if dtype.rank >= 2 else 77
        kernel = Kernel("map", (Axis(Slot(1), False),), (dtype,), (Stage((Store(0, Index(0, ((0, 1),)), Expr("param", dtype, (), 2)),)),), 3)
        check(kernel, [37, bits], [np.zeros(37, dtype.numpy)], [37])


# -- places

@pytest.mark.parametrize("dtype", [uint8, bool_, float16, bfloat16, float32, float64, complex64, int64], ids=lambda d: d.name)
def test_strides(dtype):
    for n in [*range(1, 20), 31, 32, 33, 63, 64, 65, 99]:
        for literal, stride, offset in ((True, 1, 3), (True, 0, 2), (True, -1, n + 1), (True, 2, 1), (False, 1, 0), (False, -3, 3 * n), (False, 0, 0)):
            x = load(0, dtype, (0, stride if literal else Slot(3)), offset=Slot(4))
            kernel = Kernel("map", (Axis(Slot(2), False),), (dtype, dtype), (Stage((Store(1, Index(0, ((0, 1),)), x),)),), 5)
            check(kernel, [n, stride, offset], [sample(dtype, 4 * n + 8), np.zeros(n, dtype.numpy)], [n])
            if n in (1, 17, 99) and stride:
                store = Store(1, Index(Slot(4), ((0, stride if literal else Slot(3)),)), load(0, dtype, (0, 1)))
                kernel = Kernel("map", (Axis(Slot(2), False),), (dtype, dtype), (Stage((store,)),), 5)
                check(kernel, [n, stride, offset], [sample(dtype, n), np.zeros(4 * n + 8, dtype.numpy)], [n])


@pytest.mark.parametrize("dtype", [float32, bfloat16, int8, float64], ids=lambda d: d.name)
def test_broadcast_and_transposed_axes(dtype):
    # y[i, j, k] = x[j, i, k'] + w[k] + v[i]: slots are sizes 3, 4, 5, strides 6.. of x, then the output's
    x = load(0, dtype, (0, Slot(7)), (1, Slot(8)), (2, Slot(9)))
    value = s.add(s.add(x, load(1, dtype, (2, 1))), load(2, dtype, (0, 1)))
    kernel = Kernel(
        "map", tuple(Axis(Slot(k), False) for k in (4, 5, 6)), (dtype,) * 4,
        (Stage((Store(3, Index(0, ((0, Slot(10)), (1, Slot(6)), (2, 1))), value),)),), 11,
    )  # fmt: skip
    for a, b, c in ((1, 1, 1), (2, 3, 5), (3, 2, 33), (5, 1, 40), (1, 7, 64), (40, 40, 3), (33, 2, 1), (17, 18, 19)):
        buffers = [sample(dtype, a * b * c), sample(dtype, c, 1), sample(dtype, a, 2), np.zeros(a * b * c, dtype.numpy)]
        check(kernel, [a, b, c, c, a * c, 1, b * c], buffers, [a, b, c])
        check(kernel, [a, b, c, 1, a * c, a, b * c], buffers, [a, b, c])


def test_transposed_operand_with_literal_strides():
    for dtype in (float32, uint8, float64, bfloat16):
        value = s.add(load(0, dtype, (0, 1), (1, Slot(3))), load(1, dtype, (0, Slot(4)), (1, 1)))
        kernel = Kernel("map", (Axis(Slot(3), False), Axis(Slot(4), False)), (dtype,) * 3, (Stage((Store(2, Index(0, ((0, Slot(4)), (1, 1))), value),)),), 5)
        for a, b in ((1, 1), (3, 5), (16, 16), (17, 33), (40, 100), (100, 7), (130, 67)):
            check(kernel, [a, b], [sample(dtype, a * b), sample(dtype, a * b, 1), np.zeros(a * b, dtype.numpy)], [a, b])


def test_short_last_axis():
    for dtype in (float32, bfloat16, uint8, float64, complex64, bool_):
        x, w = load(0, dtype, (0, Slot(5)), (1, 1)), load(1, dtype, (1, Slot(6)))
        value = s.add(s.mul(x, w), load(0, dtype, offset=1)) if dtype is not bool_ else s.and_(x, w)
        kernel = Kernel("map", (Axis(Slot(3), False), Axis(Slot(4), False)), (dtype,) * 3, (Stage((Store(2, Index(0, ((0, Slot(4)), (1, 1))), value),)),), 7)
        for a, b in ((1, 2), (1, 1), (5, 3), (40, 3), (100, 1), (33, 17), (7, 63)):
            for gap, stride in ((0, 1), (2, 1), (0, 2)):
                check(kernel, [a, b, b + gap, stride], [sample(dtype, a * (b + gap) + 1, 0, False), sample(dtype, b * 2, 1, False), np.zeros(a * b, dtype.numpy)], [a, b])


def test_gather_embedding_and_masks():
    # rows of a table at computed places: y[i, j] = table[ids[i], j] where j < limit[i]
    ids = s.cast(load(1, int32, (0, 1)), int64)
    mask = s.lt(axis(1), load(2, int64, (0, 1)))
    for dtype in (float32, bfloat16, uint8, complex64, bool_):
        for masked in (None, mask):
            x = load(0, dtype, (1, 1), values=((ids, Slot(5)),), mask=masked)
            kernel = Kernel("map", (Axis(Slot(4), False), Axis(Slot(5), False)), (dtype, int32, int64, dtype), (Stage((Store(3, Index(0, ((0, Slot(5)), (1, 1))), x),)),), 6)
            for a, b in ((1, 1), (5, 3), (7, 16), (4, 50)):
                rng = np.random.default_rng(a)
                check(kernel, [a, b], [sample(dtype, 9 * b), rng.integers(0, 9, a).astype(np.int32), rng.integers(0, b + 2, a), np.zeros(a * b, dtype.numpy)], [a, b])


def test_gather_along_the_vector_axis():
    for dtype in (float32, bfloat16, uint8, complex64, float64):
        place = s.cast(load(1, uint32, (0, 1)), int64)
        mask = load(2, bool_, (0, 1))
        kernel = flat_map(load(0, dtype, values=((place, 1),), mask=mask), 3, (dtype, uint32, bool_), dtype)
        for n in (1, 15, 16, 17, 70):
            places = np.random.default_rng(n).integers(0, 30, n).astype(np.uint32)
            masks = sample(bool_, n)
            places[~masks] = 1 << 30  # what a mask hides may be anywhere
            check(kernel, [n], [sample(dtype, 30), places, masks, np.zeros(n, dtype.numpy)], [n])


def test_masked_store_and_pad():
    # y[i] = x[i - 2] where 2 <= i < n - 3, else 0; and a store only where i is odd
    i = axis(0)
    inside = s.and_(s.ge(i, s.index_const(2)), s.lt(i, s.sub(Expr("param", int64, (), 2), s.index_const(3))))
    for dtype in (float32, float16, uint8, complex64):
        x = load(0, dtype, (0, 1), offset=-2, mask=inside)
        odd = s.eq(s.imod(i, s.index_const(2)), s.index_const(1))
        kernel = Kernel("map", (Axis(Slot(2), False),), (dtype, dtype), (Stage((Store(1, Index(0, ((0, 1),)), x, mask=odd),)),), 3)
        for n in (1, 5, 6, 16, 37, 64):
            check(kernel, [n], [sample(dtype, max(1, n - 5)), sample(dtype, n, 1)], [n])


def test_scalar_kernel_and_literal_sizes():
    kernel = Kernel("map", (), (float32, float32), (Stage((Store(1, Index(0, ()), s.exp(load(0, float32))),)),), 2)
    check(kernel, [], [np.array([2.0], np.float32), np.zeros(1, np.float32)], [], 4)
    kernel = Kernel("map", (Axis(3, False), Axis(1, False)), (float32, float32), (Stage((Store(1, Index(0, ((0, 1), (1, 1))), load(0, float32, (0, 2), (1, 7))),)),), 2)
    check(kernel, [], [sample(float32, 6), np.zeros(3, np.float32)], [3, 1])
    kernel = Kernel("row", (Axis(5, True),), (float32, float32), (Stage((Store(1, Index(0, ()), row(0, float32), False),), (Reduce(0, "sum", load(0, float32, (0, 1)), float32),)),), 2)
    check(kernel, [], [sample(float32, 5, special=False), np.zeros(1, np.float32)], [5])


def test_output_in_place_of_an_input():
    kernel = flat_map(s.mul(load(0, float32, (0, 1)), load(0, float32, (0, 1))), 1, (float32,), float32)
    x = sample(float32, 100)
    y = x.copy()
    run(kernel, [100], [y, y], [100])
    assert_same(y, x * x, 0, "")


def test_nothing_is_read_past_the_end():
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        pytest.skip("needs mmap")
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None)
    for k in (0, 2):
        assert libc.mprotect(ctypes.c_void_p(start + k * page), ctypes.c_size_t(page), 0) == 0
    try:
        for dtype in (float32, float16, uint8, complex64, float64):
            for n in (1, 3, 17, 33, 65):
                for at in (0, page - n * dtype.size):
                    x = np.frombuffer((ctypes.c_uint8 * (n * dtype.size)).from_address(start + page + at), dtype.numpy)
                    for stride, offset in ((1, 0), (-1, n - 1)):
                        kernel = Kernel("map", (Axis(Slot(2), False),), (dtype, dtype), (Stage((Store(1, Index(0, ((0, 1),)), load(0, dtype, (0, stride), offset=Slot(3))),)),), 4)
                        run(kernel, [n, offset], [x, np.zeros(n, dtype.numpy)], [n])
    finally:
        libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(3 * page), 3)


# -- rows

def row_kernel(kind, value, dtype, acc, out=None):
    """out[i] = kind over j of value(x[i, j])."""
    result = s.cast(row(0, acc), out or acc)
    store = Store(1, Index(0, ((0, 1),)), result, False)
    return Kernel("row", (Axis(Slot(2), False), Axis(Slot(3), True)), (dtype, out or acc), (Stage((store,), (Reduce(0, kind, value, acc),)),), 4)


def accumulator(kind, dtype):
    if kind.startswith("arg"):
        return uint32
    if kind in ("all", "any"):
        return bool_
    return float32 if s.is_half(dtype) else dtype


KINDS = "sum prod max min all any argmax argmin".split()
LENGTHS = [1, 2, 5, 31, 32, 33, 64, 100, 129]


def small(dtype, n, seed=0, special=False):
    """Values whose products neither vanish nor overflow too soon, many of them equal."""
    rng = np.random.default_rng(seed)
    x = sample(dtype, n, seed, special)
    if dtype.rank >= 2:
        x = (x.real.clip(-2, 2) if dtype is not complex64 else x)
        x = x.astype(dtype.numpy)
        x[rng.integers(0, n, n // 3)] = x[0]
    return x


@pytest.mark.parametrize("kind", KINDS)
def test_row_reductions(kind):
    for dtype in ALL:
        if kind in ("all", "any") and dtype is not bool_ or kind == "sum" and dtype is bool_ or kind == "prod" and dtype is bool_:
            continue
        acc = accumulator(kind, dtype)
        value = load(0, dtype, (0, Slot(3)), (1, 1))
        kernel = row_kernel(kind, value if kind.startswith("arg") else s.cast(value, acc), dtype, acc)
        for rows, n in [*((3, n) for n in LENGTHS), (70, 3), (2, 5000), (1, 40000)]:
            for special in (False, True):
                if special and (dtype.rank < 2 or dtype is complex64 and kind in ("sum", "prod")):
                    continue
                with np.errstate(all="ignore"):
                    check(kernel, [rows, n], [small(dtype, rows * n, n, special), np.zeros(rows, acc.numpy)], [rows, n])


@pytest.mark.parametrize("kind", ["sum", "max", "argmin"])
def test_row_reductions_of_several_axes(kind):
    # x[a, r, s, t] with r and t reduced, not mergeable
    for dtype in (float32, bfloat16, int32):
        acc = accumulator(kind, dtype)
        value = load(0, dtype, (0, Slot(6)), (1, Slot(7)), (2, Slot(8)))
        value = value if kind.startswith("arg") else s.cast(value, acc)
        kernel = Kernel(
            "row", (Axis(Slot(2), False), Axis(Slot(3), True), Axis(Slot(4), True)), (dtype, acc),
            (Stage((Store(1, Index(Slot(5), ((0, 1),)), row(0, acc), False),), (Reduce(0, kind, value, acc),)),), 9,
        )  # fmt: skip
        for a, b, c in ((1, 1, 1), (2, 3, 5), (3, 7, 33), (2, 100, 10), (1, 50, 100), (1, 300, 70), (2, 3, 9000)):
            x = small(dtype, a * b * (c + 2))
            check(kernel, [a, b, c, 0, b * (c + 2), c + 2, 1], [x, np.zeros(a, acc.numpy)], [a, b, c])


def softmax_kernel(dtype=float32):
    x = s.cast(load(0, dtype, (0, Slot(3)), (1, 1)), float32)
    e = s.exp(s.sub(x, row(0, float32)))
    y = s.cast(s.div(e, row(1, float32)), dtype)
    stages = (
        Stage((), (Reduce(0, "max", x, float32),)),
        Stage((), (Reduce(1, "sum", e, float32),)),
        Stage((Store(1, Index(0, ((0, Slot(3)), (1, 1))), y),)),
    )
    return Kernel("row", (Axis(Slot(2), False), Axis(Slot(3), True)), (dtype, dtype), stages, 4)


@pytest.mark.parametrize("dtype", [float32, bfloat16, float16], ids=lambda d: d.name)
def test_softmax(dtype):
    for rows, n in ((1, 1), (3, 5), (50, 10), (4, 100), (2, 4097), (1, 100_000), (9, 20_000)):
        check(softmax_kernel(dtype), [rows, n], [sample(dtype, rows * n, special=False), np.zeros(rows * n, dtype.numpy)], [rows, n], 4)


def test_softmax_in_place():
    x = sample(float32, 30 * 77, special=False)
    y = np.zeros_like(x)
    run(softmax_kernel(), [30, 77], [x, y], [30, 77])
    run(softmax_kernel(), [30, 77], [x, x], [30, 77])
    assert x.tobytes() == y.tobytes()


def test_layer_norm_gradient_with_side_sums():
    # x, ct -> mean, then ct * (x - mean): stored, summed a row, and summed over rows
    x, ct = load(0, float32, (0, Slot(6)), (1, 1)), load(1, bfloat16, (0, Slot(6)), (1, 1))
    mean = s.div(row(0, float32), s.cast(Expr("param", int64, (), 6), float32))
    product = s.mul(s.cast(ct, float32), s.sub(x, mean))
    for dtype in (float32, bfloat16):
        stages = (
            Stage((), (Reduce(0, "sum", x, float32),)),
            Stage(
                (Store(2, Index(0, ((0, Slot(6)), (1, 1))), product), Store(3, Index(0, ((0, 1),)), row(1, float32), False)),
                (Reduce(1, "sum", product, float32),),
                (Side(4, Index(0, ((1, 1),)), s.cast(product, dtype)),),
            ),
        )
        kernel = Kernel("row", (Axis(Slot(5), False), Axis(Slot(6), True)), (float32, bfloat16, float32, float32, dtype), stages, 7)
        for rows, n in ((1, 1), (3, 5), (64, 33), (65, 100), (200, 31), (4200, 3), (5, 5000)):
            buffers = [sample(float32, rows * n, 0, False), sample(bfloat16, rows * n, 1, False), np.zeros(rows * n, np.float32), np.zeros(rows, np.float32), np.zeros(n, dtype.numpy)]
            check(kernel, [rows, n], buffers, [rows, n])


def test_row_rule_is_the_written_one():
    def fold(lanes):
        lanes = list(lanes)
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [np.float32(lanes[k] + lanes[k + half]) for k in range(half)]
        return lanes[0]

    def by_lanes(values):
        lanes = [np.float32(0)] * 32
        for i, v in enumerate(values):
            lanes[i % 32] = np.float32(lanes[i % 32] + v)
        return fold(lanes)

    kernel = row_kernel("sum", load(0, float32, (0, Slot(3)), (1, 1)), float32, float32)
    for n in (1, 17, 32, 100, 4096, 4097, 150_000):
        x = sample(float32, n, n, False)
        totals = [by_lanes(x[k : k + 4096]) for k in range(0, n, 4096)]
        want = totals[0] if len(totals) == 1 else by_lanes(totals)
        for threads in (1, 2, 8):
            got = np.zeros(1, np.float32)
            run(kernel, [1, n], [x, got], [1, n], threads)
            assert got[0] == want


# -- columns

def column_kernel(kind, value, dtype, acc, axes=(True, False)):
    store = Store(1, Index(0, ((1, 1),)), row(0, acc), False)
    return Kernel("column", (Axis(Slot(2), True), Axis(Slot(3), False)), (dtype, acc), (Stage((store,), (Reduce(0, kind, value, acc),)),), 4)


@pytest.mark.parametrize("kind", KINDS)
def test_column_reductions(kind):
    for dtype in ALL:
        if kind in ("all", "any") and dtype is not bool_ or kind in ("sum", "prod") and dtype is bool_:
            continue
        acc = accumulator(kind, dtype)
        value = load(0, dtype, (0, Slot(3)), (1, 1))
        kernel = column_kernel(kind, value if kind.startswith("arg") else s.cast(value, acc), dtype, acc)
        for n, columns in ((1, 1), (3, 5), (64, 33), (65, 16), (130, 100), (5000, 3), (300, 70)):
            for special in (False, True):
                if special and (dtype.rank < 2 or dtype is complex64 and kind in ("sum", "prod")):
                    continue
                with np.errstate(all="ignore"):
                    check(kernel, [n, columns], [small(dtype, n * columns, n, special), np.zeros(columns, acc.numpy)], [n, columns])


@pytest.mark.parametrize("kind", ["sum", "max", "argmin"])
def test_column_reductions_of_several_axes(kind):
    # x[r, a, s, c] with r and s reduced, and a map of the result
    for dtype in (float32, bfloat16, int32):
        acc = accumulator(kind, dtype)
        value = load(0, dtype, (0, Slot(6)), (1, Slot(7)), (2, Slot(8)), (3, 1))
        value = value if kind.startswith("arg") else s.cast(value, acc)
        store = Store(1, Index(0, ((1, Slot(5)), (3, 1))), s.add(row(0, acc), s.const(1, acc)), False)
        kernel = Kernel(
            "column", (Axis(Slot(2), True), Axis(Slot(3), False), Axis(Slot(4), True), Axis(Slot(5), False)), (dtype, acc),
            (Stage((store,), (Reduce(0, kind, value, acc),)),), 9,
        )  # fmt: skip
        for r, a, t, c in ((1, 1, 1, 1), (2, 3, 4, 5), (70, 2, 3, 40), (3, 20, 50, 17), (9, 1, 900, 70)):
            x = small(dtype, r * a * t * c)
            check(kernel, [r, a, t, c, a * t * c, t * c, c], [x, np.zeros(a * c, acc.numpy)], [r, a, t, c])


def test_softmax_over_the_first_axis():
    x = load(0, float32, (0, Slot(3)), (1, 1))
    e = s.exp(s.sub(x, row(0, float32)))
    stages = (
        Stage((), (Reduce(0, "max", x, float32),)),
        Stage((), (Reduce(1, "sum", e, float32),)),
        Stage((Store(1, Index(0, ((0, Slot(3)), (1, 1))), s.div(e, row(1, float32))),)),
    )
    kernel = Kernel("column", (Axis(Slot(2), True), Axis(Slot(3), False)), (float32, float32), stages, 4)
    for n, columns in ((1, 1), (5, 3), (100, 16), (65, 70), (4200, 17)):
        check(kernel, [n, columns], [sample(float32, n * columns, 0, False), np.zeros(n * columns, np.float32)], [n, columns], 4)


# -- kernels drawn at random: everything beside everything

class Draw:
    """A kernel over random sizes, with random expressions of loads of every kind."""

    def __init__(self, seed, form):
        self.rng = np.random.default_rng(seed)
        self.form = form
        n_axes = int(self.rng.integers(1, 4)) if form in ("map", "row") else int(self.rng.integers(2, 4))
        reduced = [form == "row" and (k == n_axes - 1 or bool(self.rng.integers(0, 2))) for k in range(n_axes)]
        if form == "column":
            reduced = [bool(self.rng.integers(0, 2)) for _ in range(n_axes - 1)] + [False]
            reduced[int(self.rng.integers(0, n_axes - 1))] = True
        self.reduced = reduced
        top = int(self.rng.choice([3, 20, 90])) if n_axes > 1 else int(self.rng.choice([7, 300, 20000]))
        self.sizes = [int(self.rng.integers(1, top + 1)) for _ in range(n_axes)]
        if form == "column":
            self.sizes[reduced.index(True)] = int(self.rng.integers(1, 200))
        self.dtypes, self.arrays, self.slots = [], [], []
        self.rows = []

    def pick(self, *options):
        return options[int(self.rng.integers(0, len(options)))]

    def slot(self, value):
        self.slots.append(value)
        return ("slot", len(self.slots) - 1)

    def access(self, axes, shuffle=True, dense=False):
        """Terms of a new dense array over `axes`, in some order of memory, and its number of places."""
        order = list(axes)
        if shuffle and not dense and self.rng.integers(0, 3) == 0:
            self.rng.shuffle(order)
        terms, stride = [], 1
        for k in reversed(order):
            literal = stride == 1
            terms.append((k, 1 if literal else self.slot(stride)))
            stride *= self.sizes[k]
        return tuple(sorted(terms)), stride

    def leaf(self, dtype, axes):
        kind = int(self.rng.integers(0, 10))
        if kind == 0:
            return s.const(self.pick(0, 1, 2, 3), dtype)
        if kind == 1 and axes:
            return s.cast(axis(self.pick(*axes)), dtype)
        if kind == 2 and self.rows:
            return s.cast(self.pick(*self.rows), dtype)
        chosen = [k for k in axes if self.rng.integers(0, 4)] if self.rng.integers(0, 2) else list(axes)
        terms, n = self.access(chosen)
        offset = 0
        if kind == 3 and chosen == list(axes) and chosen and terms[-1][1] == 1:
            terms = (*terms[:-1], (terms[-1][0], -1))
            offset = self.slot(self.sizes[terms[-1][0]] - 1)
        mask = None
        if kind in (4, 5) and axes:
            mask = s.lt(axis(self.pick(*axes)), s.index_const(int(self.rng.integers(0, 20))))
        values = ()
        if kind in (5, 6):
            ids_terms, m = self.access([k for k in axes if self.rng.integers(0, 2)])
            ids = self.buffer(int32, self.rng.integers(0, 4, m).astype(np.int32))
            values = ((s.cast(Expr("load", int32, (), Load(ids, Index(0, ids_terms))), int64), self.slot(n)),)
            n *= 4
        data = sample(dtype, n, int(self.rng.integers(0, 1000)), False)
        if dtype.rank >= 2 and dtype is not complex64:
            data = data.clip(-4, 4).astype(dtype.numpy)
        return Expr("load", dtype, (), Load(self.buffer(dtype, data), Index(offset, terms, values), mask))

    def buffer(self, dtype, data):
        self.dtypes.append(dtype)
        self.arrays.append(data)
        return len(self.arrays) - 1

    def value(self, dtype, axes, depth=3):
        if depth == 0 or self.rng.integers(0, 6) == 0:
            return self.leaf(dtype, axes)
        kind = int(self.rng.integers(0, 8))
        if kind == 0:
            condition = s.lt(self.value(int32, axes, depth - 1), self.value(int32, axes, depth - 1))
            return s.select(condition, self.value(dtype, axes, depth - 1), self.value(dtype, axes, depth - 1))
        if kind == 1 and dtype.rank == 2:
            return s.cast(self.value(self.pick(int32, float32, bfloat16, float16, uint8, bool_), axes, depth - 1), dtype)
        if kind == 2 and dtype.rank == 2 and dtype is not complex64:
            return self.pick(s.sqrt, s.abs_, s.neg, s.floor)(self.value(dtype, axes, depth - 1))
        if kind == 3 and dtype is not bool_:
            return self.pick(s.max_, s.min_)(self.value(dtype, axes, depth - 1), self.value(dtype, axes, depth - 1))
        if kind == 4 and dtype is bool_:
            return s.le(self.value(float32, axes, depth - 1), self.value(float32, axes, depth - 1))
        return self.pick(s.add, s.sub, s.mul)(self.value(dtype, axes, depth - 1), self.value(dtype, axes, depth - 1))

    def output(self, dtype, axes, value, full=True):
        terms, n = self.access(axes, dense=bool(self.rng.integers(0, 3)))
        mask = self.value(bool_, axes, 1) if self.rng.integers(0, 6) == 0 else None
        return Store(self.buffer(dtype, np.zeros(n, dtype.numpy)), Index(0, terms), value, full, mask=mask)

    def kernel(self):
        every = list(range(len(self.sizes)))
        parallel = [k for k in every if not self.reduced[k]]
        stages = []
        dtypes = (float32, float32, bfloat16, float16, int32, uint8, float64, bool_, int64)
        for t in range(1 if self.form == "map" else int(self.rng.integers(1, 4))):
            stores, reduces, sides, new = [], [], [], []
            if self.form == "map" or self.rng.integers(0, 2):
                for _ in range(int(self.rng.integers(1, 3))):
                    dtype = self.pick(*dtypes)
                    stores.append(self.output(dtype, every, self.value(dtype, every)))
            if self.form != "map":
                for _ in range(int(self.rng.integers(0 if stores else 1, 3))):
                    dtype = self.pick(float32, float32, int32, float64, bool_)
                    kind = self.pick("any", "all") if dtype is bool_ else self.pick("sum", "sum", "max", "min", "argmax", "argmin", "prod")
                    if kind == "prod" and dtype is not int32:
                        kind = "sum"
                    acc = uint32 if kind.startswith("arg") else dtype
                    number = len(self.rows) + len(new)
                    reduces.append(Reduce(number, kind, self.value(dtype, every), acc))
                    new.append(row(number, acc))
                if self.form == "row" and self.rng.integers(0, 3) == 0:
                    terms, n = self.access([k for k in every if self.reduced[k]])
                    dtype = self.pick(float32, int32)
                    sides.append(Side(self.buffer(dtype, np.zeros(n, dtype.numpy)), Index(0, terms), self.value(dtype, every)))
                self.rows += new
                if self.rows and self.rng.integers(0, 3):
                    dtype = self.pick(float32, bfloat16, int32)
                    last = s.cast(self.rows[-1], dtype)
                    stores.append(self.output(dtype, parallel, s.add(last, self.value(dtype, parallel, 1)), False))
            stages.append(Stage(tuple(stores), tuple(reduces), tuple(sides)))
        first = len(self.arrays)

        def real(x):
            return Slot(first + len(self.sizes) + x[1]) if isinstance(x, tuple) else x

        seen = {}

        def place(index):
            return Index(real(index.offset), tuple((k, real(st)) for k, st in index.terms), tuple((fix(v), real(st)) for v, st in index.values))

        def fix(e):
            if id(e) not in seen:
                if e.op == "load":
                    load_ = e.attr
                    made = Expr("load", e.dtype, (), Load(load_.buffer, place(load_.index), None if load_.mask is None else fix(load_.mask)))
                else:
                    made = Expr(e.op, e.dtype, tuple(map(fix, e.args)), e.attr)
                seen[id(e)] = (made, e)
            return seen[id(e)][0]

        stages = tuple(
            Stage(
                tuple(Store(st.buffer, place(st.index), fix(st.value), st.full, None, None if st.mask is None else fix(st.mask)) for st in stage.stores),
                tuple(Reduce(r.number, r.kind, fix(r.value), r.dtype) for r in stage.reduces),
                tuple(Side(d.buffer, place(d.index), fix(d.value)) for d in stage.sides),
            )
            for stage in stages
        )
        axes = tuple(Axis(Slot(first + k), r) for k, r in enumerate(self.reduced))
        return Kernel(self.form, axes, tuple(self.dtypes), stages, first + len(self.sizes) + len(self.slots))


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("form", ["map", "row", "column"])
def test_drawn_kernels(form, seed):
    draw = Draw(seed, form)
    kernel = draw.kernel()
    with np.errstate(all="ignore"):
        check(kernel, [*draw.sizes, *draw.slots], draw.arrays, draw.sizes)


# -- scatter

@pytest.mark.parametrize("combine", [None, "add", "mul", "max", "min"])
def test_scatter(combine):
    for dtype in (float32, bfloat16, int32, complex64, uint8, uint64, uint16):
        if dtype is complex64 and combine in ("max", "min"):
            continue
        place = s.cast(load(1, int32, (0, 1)), int64)
        store = Store(2, Index(0, ((1, 1),), ((place, Slot(4)),)), load(0, dtype, (0, Slot(4)), (1, 1)), combine=combine)
        kernel = Kernel("scatter", (Axis(Slot(3), False), Axis(Slot(4), False)), (dtype, int32, dtype), (Stage((store,)),), 5)
        for n, m in ((1, 1), (20, 3), (30, 40), (40, 200)):
            with np.errstate(all="ignore"):
                places = np.random.default_rng(n).integers(0, 6, n).astype(np.int32)
                check(kernel, [n, m], [small(dtype, n * m), places, small(dtype, 6 * m, 1)], [n, m])


def test_scatter_of_windows_that_overlap():
    for overlap in (0, 1):
        place = s.cast(load(1, int32, (0, 1)), int64)
        store = Store(2, Index(0, ((1, 1),), ((place, Slot(5)),)), load(0, float32, (0, Slot(4)), (1, 1)), combine="add")
        kernel = Kernel("scatter", (Axis(Slot(3), False), Axis(Slot(4), False)), (float32, int32, float32), (Stage((store,)),), 6)
        n, m = 50, 300
        places = np.random.default_rng(n).integers(0, 6, n).astype(np.int32)
        check(kernel, [n, m, 7 if overlap else m], [sample(float32, n * m, 0, False), places, sample(float32, 6 * m, 1, False)], [n, m])


def test_scatter_along_the_last_axis():
    place = s.cast(load(1, int32, (0, 1)), int64)
    for combine in (None, "add"):
        store = Store(2, Index(0, (), ((place, 1),)), load(0, float32, (0, 1)), combine=combine)
        kernel = Kernel("scatter", (Axis(Slot(3), False),), (float32, int32, float32), (Stage((store,)),), 4)
        places = np.random.default_rng(0).integers(0, 6, 100).astype(np.int32)
        check(kernel, [100], [sample(float32, 100, 0, False), places, sample(float32, 6, 1, False)], [100])
