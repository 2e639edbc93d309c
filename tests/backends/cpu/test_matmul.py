"""Matrix products of the CPU backend, against float64, and bit for bit over threads and partitions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from isthmus.backends.cpu import stream
from isthmus.backends.cpu.library import gemm_ir, matmul

NUMPY = {
    "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
    "float64": np.float64, "complex64": np.complex64,
}  # fmt: skip
EPS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53, "complex64": 2.0**-23}
FORMS = list(itertools.product((False, True), repeat=2))


def _draw(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], transposed: bool = False) -> np.ndarray:
    """Random numbers; `transposed`: the last two axes lie the other way round in memory."""
    if transposed:
        shape = (*shape[:-2], shape[-1], shape[-2])
    x = rng.standard_normal(shape)
    if dtype == "complex64":
        x = x + 1j * rng.standard_normal(shape)
    x = x.astype(NUMPY[dtype])
    return x.swapaxes(-1, -2) if transposed else x


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype == np.complex64 else np.float64)


def _aligned(size_bytes: int) -> tuple[np.ndarray, int]:
    memory = np.full(size_bytes + 64, 0xFF, np.uint8)  # NaNs: what is read before it is written shows
    return memory, -(-memory.ctypes.data // 64) * 64


def _split(units: int, grain: int, how: str) -> Iterator[tuple[int, int]]:
    """Partitions of the units: as one, by grains from the front, one by one from the back."""
    if how == "whole":
        yield 0, units
    elif how == "grains":
        yield from ((i, min(i + grain, units)) for i in range(0, units, grain))
    else:
        yield from ((i, i + 1) for i in reversed(range(units)))


def product(
    a: np.ndarray,
    b: np.ndarray,
    d: np.ndarray | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    dtype: str,
    transposed: tuple[bool, bool] = (False, False),
    threads: int = 1,
    split: str = "whole",
) -> np.ndarray:
    """`alpha * a @ b + beta * d`: bind, fill the slots as a plan would, and run the units as `split` says ("pool": by the driver)."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = np.broadcast_to(a, (*batch, m, k))
    b = np.broadcast_to(b, (*batch, k, n))
    c = np.full((*batch, m, n), 7, NUMPY[dtype])
    size = c.itemsize
    d_full = None if d is None else np.broadcast_to(d, c.shape)
    strides_d = (0,) * c.ndim if d_full is None else d_full.strides
    axes = tuple((c.shape[i], a.strides[i] // size, b.strides[i] // size, strides_d[i] // size) for i in range(len(batch)))
    (plan,) = matmul.plan_matmul(dtype, *transposed, d is not None)
    launch = plan.bind(
        m, n, k, axes,
        a.strides[-1 if transposed[0] else -2] // size, b.strides[-1 if transposed[1] else -2] // size,
        strides_d[-2] // size, strides_d[-1] // size, threads,
    )  # fmt: skip
    assert len(launch.slots) <= plan.slots(len(axes))
    memory, scratch = _aligned(launch.scratch_bytes)
    slots = np.array(launch.slots, np.int64)
    slots[[matmul.C, matmul.A, matmul.B]] = c.ctypes.data, a.ctypes.data, b.ctypes.data
    slots[matmul.D] = 0 if d_full is None else d_full.ctypes.data
    slots[[matmul.ALPHA, matmul.BETA]] = np.array([alpha, beta]).view(np.int64)
    slots[matmul.SCRATCH] = scratch
    if split == "pool":
        program = np.array([launch.address, 0, launch.units, launch.grain], np.int64)
        stream.run(slots.ctypes.data, 0, 0, 0, program.ctypes.data, 1)
    else:
        entry = stream.ENTRY_TYPE(launch.address)
        workers = threads if launch.units > launch.grain else 1
        for worker, (begin, end) in enumerate(_split(launch.units, launch.grain, split)):
            entry(slots.ctypes.data, begin, end, worker % workers)
    del memory
    return c


def check(c: np.ndarray, a: np.ndarray, b: np.ndarray, dtype: str, d: np.ndarray | None = None, alpha: float = 1, beta: float = 0) -> None:
    """Within the error of a sum of k products in any order, and of one rounding to `dtype`."""
    a, b = _wide(a), _wide(b)
    want = alpha * (a @ b)
    size = abs(alpha) * (np.abs(a) @ np.abs(b))
    if d is not None:
        want, size = want + beta * _wide(d), size + np.abs(beta * _wide(d))
    k = a.shape[-1]
    inner = EPS["float64" if dtype == "float64" else "complex64" if dtype == "complex64" else "float32"]
    bound = inner * (4 + 2 * np.sqrt(k)) * size + 1.01 * EPS[dtype] * np.abs(want) + {"float16": 6e-8}.get(dtype, 1e-37)
    assert c.shape == want.shape
    worst = np.max(np.abs(_wide(c) - want) - bound, initial=-1.0)
    assert worst <= 0, worst


@pytest.mark.parametrize("transposed", FORMS, ids=["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", matmul.DTYPES)
def test_value_at_every_edge_size(dtype: str, transposed: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(0)
    sizes = (1, 2, 3, 7, 12, 13, 16, 31, 32, 33, 65)
    depths = (0, 1, 2, 5, 16, 33, 260)
    for m, n, k in itertools.product(sizes, sizes, depths):
        a, b = _draw(rng, dtype, (m, k), transposed[0]), _draw(rng, dtype, (k, n), transposed[1])
        check(product(a, b, dtype=dtype, transposed=transposed), a, b, dtype)


@pytest.mark.parametrize("transposed", FORMS, ids=["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", matmul.DTYPES)
@pytest.mark.parametrize("mnk", [(200, 130, 1100), (97, 1030, 40), (1, 500, 2100), (500, 1, 700), (3, 300, 300), (800, 40, 9), (150, 150, 1024)], ids=str)
def test_bits_are_the_same_on_any_number_of_threads(dtype: str, transposed: tuple[bool, bool], mnk: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    m, n, k = mnk
    a, b, d = _draw(rng, dtype, (m, k), transposed[0]), _draw(rng, dtype, (k, n), transposed[1]), _draw(rng, dtype, (n,))
    for addend in (None, d):
        first = product(a, b, addend, dtype=dtype, transposed=transposed)
        check(first, a, b, dtype, addend, beta=1)
        for threads, split in ((2, "grains"), (3, "single"), (8, "grains"), (2, "pool")):
            again = product(a, b, addend, dtype=dtype, transposed=transposed, threads=threads, split=split)
            assert again.tobytes() == first.tobytes(), (threads, split)


@pytest.mark.parametrize("dtype", matmul.DTYPES)
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 2, 5, 7), (3, 2, 7, 4)),
        ((3, 1, 5, 7), (2, 7, 4)),
        ((2, 5, 7), (7, 4)),
        ((5, 7), (4, 1, 7, 3)),
        ((6, 1, 1, 7), (7, 9)),
        ((64, 33, 34), (64, 34, 35)),
    ],
    ids=str,
)
def test_batch_axes_broadcast(dtype: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(2)
    for transposed in FORMS:
        a, b = _draw(rng, dtype, shapes[0], transposed[0]), _draw(rng, dtype, shapes[1], transposed[1])
        for threads, split in ((1, "whole"), (2, "single")):
            check(product(a, b, dtype=dtype, transposed=transposed, threads=threads, split=split), a, b, dtype)


@pytest.mark.parametrize("dtype", matmul.DTYPES)
@pytest.mark.parametrize("d_shape", [(), (35,), (33, 1), (33, 35), (2, 1, 35), (4, 2, 33, 35)], ids=str)
def test_addend_broadcasts(dtype: str, d_shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    a, b, d = _draw(rng, dtype, (4, 2, 33, 20)), _draw(rng, dtype, (20, 35)), _draw(rng, dtype, d_shape)
    for alpha, beta in ((1.0, 1.0), (0.5, -2.0), (0.0, 1.0)):
        check(product(a, b, d, alpha, beta, dtype=dtype), a, b, dtype, d, alpha, beta)


def test_addend_of_any_strides() -> None:
    rng = np.random.default_rng(4)
    a, b = _draw(rng, "float32", (20, 30)), _draw(rng, "float32", (30, 40))
    for d in (_draw(rng, "float32", (40, 20)).T, _draw(rng, "float32", (20, 120))[:, ::3], _draw(rng, "float32", (80, 40))[::4]):
        check(product(a, b, d, dtype="float32"), a, b, "float32", d, beta=1)


@pytest.mark.parametrize("dtype", matmul.DTYPES)
def test_parts_of_larger_matrices(dtype: str) -> None:
    rng = np.random.default_rng(5)
    for transposed in FORMS:
        a, b = _draw(rng, dtype, (60, 70), transposed[0])[3:40, 5:50], _draw(rng, dtype, (60, 70), transposed[1])[7:52, 9:60]
        check(product(a, b, dtype=dtype, transposed=transposed), a, b, dtype)


@pytest.mark.parametrize("dtype", matmul.DTYPES)
def test_no_depth_gives_zeros_or_the_addend(dtype: str) -> None:
    a, b = np.zeros((5, 0), NUMPY[dtype]), np.zeros((0, 6), NUMPY[dtype])
    d = _draw(np.random.default_rng(6), dtype, (6,))
    assert np.all(product(a, b, dtype=dtype) == 0)
    assert np.all(product(a, b, d, 1.0, 1.0, dtype=dtype) == d)


@pytest.mark.parametrize("dtype", matmul.DTYPES)
def test_nan_and_infinity_go_through(dtype: str) -> None:
    rng = np.random.default_rng(7)
    for m, n, k in ((1, 40, 50), (40, 1, 50), (20, 30, 50), (130, 140, 150)):
        for transposed in FORMS:
            a, b = _draw(rng, dtype, (m, k), transposed[0]), _draw(rng, dtype, (k, n), transposed[1])
            a[0, 3], b[4, n - 1] = np.nan, np.inf
            c = product(a, b, dtype=dtype, transposed=transposed)
            bad = ~np.isfinite(_wide(c))
            assert np.all(np.isnan(_wide(c)[0]))
            assert bad[:, n - 1].all()
            assert not bad[1:, : n - 1].any()


@pytest.mark.parametrize("dtype", matmul.DTYPES)
def test_beta_zero_does_not_read_the_addend(dtype: str) -> None:
    rng = np.random.default_rng(8)
    a, b = _draw(rng, dtype, (9, 20)), _draw(rng, dtype, (20, 21))
    c = product(a, b, np.full((9, 21), np.nan, NUMPY[dtype]), 1.0, 0.0, dtype=dtype)
    assert c.tobytes() == product(a, b, dtype=dtype).tobytes()


def test_sixteen_bits_round_once() -> None:
    # 2^12 terms of 1 in bfloat16: a 16-bit sum would stop at 256, float32 gives 4096 exactly.
    one = np.ones((2, 4096), ml_dtypes.bfloat16)
    assert np.all(product(one, one.T, dtype="bfloat16", transposed=(False, True)) == 4096)
    # 1 + 2^-9 + 2^-9 is a tie of neither sum; rounded after each term it would stay 1
    a = np.array([[1, 2**-9, 2**-9]], ml_dtypes.bfloat16)
    assert product(a, np.ones((3, 1), ml_dtypes.bfloat16), np.array([2.0**-8], ml_dtypes.bfloat16), dtype="bfloat16")[0, 0] == 1 + 2.0**-7


def test_deep_sums_keep_their_accuracy() -> None:
    a = np.full((1, 1 << 20), 0.1, np.float32)
    for m in (1, 8):
        c = product(np.repeat(a, m, 0), np.ones((1 << 20, 32), np.float32), dtype="float32")
        np.testing.assert_allclose(c, np.float64(np.float32(0.1)) * (1 << 20), rtol=5e-5)


@pytest.fixture(params=[(32, 16), (16, 32)], ids=["AVX2", "NEON"])
def narrower(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels as a host with smaller vectors, fewer registers and no masks gets them."""
    monkeypatch.setattr(matmul, "_shape", lambda: gemm_ir.shape_for(*request.param))
    matmul._product.cache_clear()
    yield
    matmul._product.cache_clear()


@pytest.mark.parametrize("transposed", FORMS, ids=["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_narrower_vectors(dtype: str, transposed: tuple[bool, bool], narrower: None) -> None:
    rng = np.random.default_rng(0)
    for m, n, k in [*itertools.product((1, 2, 5, 12, 17), (1, 3, 8, 12, 17), (0, 1, 7, 40)), (130, 300, 1100), (3, 1100, 20), (500, 1, 1030)]:
        a, b, d = _draw(rng, dtype, (m, k), transposed[0]), _draw(rng, dtype, (k, n), transposed[1]), _draw(rng, dtype, (m, 1))
        check(product(a, b, dtype=dtype, transposed=transposed), a, b, dtype)
        check(product(a, b, d, 0.5, 3.0, dtype=dtype, transposed=transposed), a, b, dtype, d, 0.5, 3.0)


def test_bits_do_not_depend_on_the_vector_width(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    a, b = _draw(rng, "float32", (50, 1500)), _draw(rng, "float32", (1500, 70))
    first = product(a, b, dtype="float32")
    assert product(a[7:8], b, dtype="float32").tobytes() == first[7:8].tobytes()  # nor on how many rows there are
    monkeypatch.setattr(matmul, "_shape", lambda: gemm_ir.shape_for(16, 32))
    matmul._product.cache_clear()
    again = product(a, b, dtype="float32")
    matmul._product.cache_clear()
    assert again.tobytes() == first.tobytes()


def test_integers_are_refused() -> None:
    with pytest.raises(ValueError, match="int32"):
        matmul.plan_matmul("int32", False, False)


def test_binding_is_cheap() -> None:
    import timeit

    (plan,) = matmul.plan_matmul("float32", False, True)
    plan.bind(256, 32, 784, (), 784, 784, 0, 0, 2)
    seconds = min(timeit.repeat(lambda: plan.bind(256, 32, 784, (), 784, 784, 0, 0, 2), number=1000, repeat=5)) / 1000
    assert seconds < 20e-6  # 1.5 us on the machine it was written on
