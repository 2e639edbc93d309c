"""What is asked of cuBLASLt, answered by a column-major product in NumPy; `tests/gpu/check_cublaslt.py` asks the library itself."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from isthmus.backends.cuda.library import cublaslt
from isthmus.backends.cuda.library.cublaslt import Handle, NoAlgorithm, Product, Spec, layouts

NUMPY = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64, "complex64": np.complex64}
DATA_TYPES = {"CUDA_R_32F": np.float32, "CUDA_R_16F": np.float16, "CUDA_R_16BF": ml_dtypes.bfloat16, "CUDA_R_64F": np.float64, "CUDA_C_32F": np.complex64}
DATA_NUMBERS = {name: number for number, name in enumerate(DATA_TYPES)}
COMPUTE_NUMBERS = {"COMPUTE_32F": 68, "COMPUTE_64F": 70, "COMPUTE_32F_FAST_TF32": 77}
ADDENDS = ("none", "matrix", "row")


class Names(dict[str, int]):
    """An enumeration: names by attribute or by item."""

    __getattr__ = dict.__getitem__


class LtError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class ColumnMajor:
    """The functions of nvmath.bindings.cublasLt, working on host memory."""

    cuBLASLtError = LtError
    Epilogue = SimpleNamespace(BIAS=4)
    ReductionScheme = SimpleNamespace(COMPUTE_TYPE=2)
    MatmulDescAttribute = Names(TRANSA=3, TRANSB=4, EPILOGUE=7, BIAS_POINTER=8, BIAS_BATCH_STRIDE=10)
    MatrixLayoutAttribute = Names(BATCH_COUNT=5, STRIDED_BATCH_OFFSET=6)
    MatmulPreferenceAttribute = Names(
        MAX_WORKSPACE_BYTES=1, REDUCTION_SCHEME_MASK=3, MIN_ALIGNMENT_A_BYTES=5, MIN_ALIGNMENT_B_BYTES=6, MIN_ALIGNMENT_C_BYTES=7, MIN_ALIGNMENT_D_BYTES=8
    )
    matmul_heuristic_result_dtype = np.dtype(
        [("algo", [("data_", "<u8", (8,))]), ("workspace_size", "<u8"), ("state", "<i4"), ("waves_count", "<f4"), ("reserved", "<i4", (4,))]
    )

    def __init__(self, results: int = 2, fails: int = 0) -> None:
        self.made: dict[int, dict[Any, int]] = {}
        self.results, self.fails, self.asked, self.bias_written = results, fails, 0, 0

    def create(self) -> int:
        return 1

    def get_version(self) -> int:
        return 130100

    def new(self, **fields: int) -> int:
        address = 1000 + 16 * (len(self.made) + self.asked)
        while address in self.made:
            address += 16
        self.made[address] = dict(fields)
        return address

    def put(self, owner: int, attribute: int, buffer: int, size: int) -> None:
        assert size in (4, 8)
        self.made[owner][attribute] = (ctypes.c_int32 if size == 4 else ctypes.c_int64).from_address(buffer).value
        self.bias_written += attribute == 8 and size == 8 and "compute" in self.made[owner]

    def matrix_layout_create(self, data_type: int, rows: int, columns: int, ld: int) -> int:
        return self.new(type=data_type, rows=rows, columns=columns, ld=ld)

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self.new(compute=compute, scale=scale)

    def matmul_preference_create(self) -> int:
        return self.new()

    def destroy(self, address: int) -> None:
        del self.made[address]

    matrix_layout_set_attribute = matmul_desc_set_attribute = matmul_preference_set_attribute = put
    matrix_layout_destroy = matmul_desc_destroy = matmul_preference_destroy = destroy

    def matmul_algo_get_heuristic(self, handle: int, op: int, a: int, b: int, c: int, d: int, preference: int, wanted: int, results: int, count: int) -> None:
        if self.fails:
            raise LtError(self.fails)
        self.asked += 1
        self.preference = dict(self.made[preference])
        size = self.matmul_heuristic_result_dtype.itemsize
        found = np.frombuffer((ctypes.c_byte * (wanted * size)).from_address(results), self.matmul_heuristic_result_dtype)
        for k in range(min(self.results, wanted)):
            found[k]["algo"]["data_"][:] = k + 7
            found[k]["workspace_size"] = 4096 * k
            found[k]["state"] = 15 if k == 0 else 0  # the first cannot be run after all
        ctypes.c_int32.from_address(count).value = self.results

    def matmul_algo_check(self, handle: int, op: int, a: int, b: int, c: int, d: int, algo: int, result: int) -> None:
        size = self.matmul_heuristic_result_dtype.itemsize
        found = np.frombuffer((ctypes.c_byte * size).from_address(result), self.matmul_heuristic_result_dtype)
        found[0]["workspace_size"] = 4096

    def matmul(self, handle: int, op: int, alpha: int, a: int, la: int, b: int, lb: int, beta: int, c: int, lc: int, d: int, ld: int,
               algo: int, workspace: int, workspace_bytes: int, stream: int) -> None:  # fmt: skip
        assert (handle, workspace, workspace_bytes, stream) == (1, 256, 4096, 77)
        assert (ctypes.c_uint64 * 8).from_address(algo)[:] == [8] * 8
        operation = self.made[op]
        left, right, out = self.matrices(a, la), self.matrices(b, lb), self.matrices(d, ld)
        number = list(DATA_TYPES.values())[operation["scale"]]
        size = np.dtype(number).itemsize
        x, y = (np.frombuffer((ctypes.c_byte * size).from_address(p), number)[0] for p in (alpha, beta))
        added = [y * wide(m) for m in self.matrices(c, lc)] if y else [0.0] * len(out)
        if operation.get(7) == 4:
            stride = operation.get(10, 0)
            rows = out[0].shape[0]
            added = [added[k] + wide(view(operation[8] + k * stride * out[0].itemsize, out[0].dtype, (rows, 1), (1, 0))) for k in range(len(out))]
        for k, (p, q, r) in enumerate(zip(left, right, out, strict=True)):
            p, q = (p.T if operation[3] else p), (q.T if operation[4] else q)
            r[...] = x * (wide(p) @ wide(q)) + added[k]

    def matrices(self, address: int, layout: int) -> list[np.ndarray]:
        """The members of a batch."""
        made = self.made[layout]
        dtype = np.dtype(list(DATA_TYPES.values())[made["type"]])
        assert made["ld"] >= made["rows"]
        return [view(address + k * made.get(6, 0) * dtype.itemsize, dtype, (made["rows"], made["columns"]), (1, made["ld"])) for k in range(made.get(5, 1))]


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def view(address: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """An array over memory, strides in elements."""
    dtype = np.dtype(dtype)
    size = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    flat = np.frombuffer((ctypes.c_byte * (size * dtype.itemsize)).from_address(address), dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, [s * dtype.itemsize for s in strides])


@pytest.fixture(autouse=True)
def _cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_CACHE_DIR", str(tmp_path))


def made(spec: Spec, lt: ColumnMajor | None = None) -> Product:
    return Product(spec, Handle("sm_90", lt or ColumnMajor(), COMPUTE_NUMBERS, DATA_NUMBERS))


def drawn(rng: np.random.Generator, dtype: str, a_transposed: bool, b_transposed: bool, addend: str, batch: int, repeated: str = "") -> Spec:
    """A spec with gaps after rows and between members of the batch; `repeated` names operands that a batch shares."""
    m, n, k = (int(x) for x in rng.integers(1, 9, 3))
    gap, gaps = rng.integers(0, 4, 4), rng.integers(0, 5, 4)
    lda, ldb, ldc = int((m if a_transposed else k) + gap[0]), int((k if b_transposed else n) + gap[1]), int(n + gap[2])
    ldd = {"none": -1, "row": 0, "matrix": int(n + gap[3])}[addend]
    strides = {
        "a": (k if a_transposed else m) * lda + gaps[0], "b": (n if b_transposed else k) * ldb + gaps[1],
        "c": m * ldc + gaps[2], "d": (m * ldd if ldd else n) + gaps[3],
    }  # fmt: skip
    strides = {name: 0 if name in repeated else int(stride) for name, stride in strides.items()}
    return Spec(dtype, m, n, k, a_transposed, b_transposed, lda, ldb, ldc, ldd, batch, strides["a"], strides["b"], strides["c"], strides["d"], False)


def check(rng: np.random.Generator, spec: Spec, alpha: float = 0.75, beta: float = -0.5) -> None:
    """A product by NumPy's column-major answers, against its definition; what lies between rows of C stays as it was."""
    dtype, length = NUMPY[spec.dtype], 1 + spec.batch * 200
    a, b, c, d = (rng.integers(-3, 4, length).astype(dtype) for _ in "abcd")
    if spec.dtype == "complex64":
        a, b, d = (x + 1j * rng.integers(-3, 4, length).astype(np.float32) for x in (a, b, d))
    before = c.copy()
    product = made(spec)
    product.run(c.ctypes.data, a.ctypes.data, b.ctypes.data, d.ctypes.data, alpha, beta, 256, 77)
    expected = wide(before)
    for q, i, j in itertools.product(range(spec.batch), range(spec.m), range(spec.n)):
        total = 0.0
        for kk in range(spec.k):
            x = a[q * spec.stride_a + (kk * spec.lda + i if spec.a_transposed else i * spec.lda + kk)]
            y = b[q * spec.stride_b + (j * spec.ldb + kk if spec.b_transposed else kk * spec.ldb + j)]
            total += wide(x) * wide(y)
        total *= alpha
        if spec.ldd > 0:
            total += beta * wide(d[q * spec.stride_d + i * spec.ldd + j])
        elif spec.ldd == 0:
            total += wide(d[q * spec.stride_d + j])
        expected[q * spec.stride_c + i * spec.ldc + j] = total
    np.testing.assert_array_equal(c, expected.astype(dtype))


@pytest.mark.parametrize("addend", ADDENDS)
@pytest.mark.parametrize(("a_transposed", "b_transposed"), list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("batch", [1, 3])
def test_a_row_major_product_is_the_column_major_product_of_the_transposes(a_transposed, b_transposed, addend, batch):
    rng = np.random.default_rng(0)
    for _ in range(10):
        check(rng, drawn(rng, "float64", a_transposed, b_transposed, addend, batch))


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("addend", ADDENDS)
def test_every_dtype(dtype, addend):
    rng = np.random.default_rng(1)
    check(rng, drawn(rng, dtype, False, True, addend, 2))


@pytest.mark.parametrize("repeated", ["a", "b", "ab", "d"])
@pytest.mark.parametrize("addend", ADDENDS)
def test_a_stride_of_0_repeats_an_operand_over_the_batch(repeated, addend):
    rng = np.random.default_rng(2)
    check(rng, drawn(rng, "float32", True, False, addend, 4, repeated))


def test_a_single_row_needs_no_stride():
    shape = layouts(Spec("float32", 1, 5, 3, False, False, 0, 5, 1, -1, 1, 0, 0, 0, 0, False))
    assert (shape.right, shape.out) == ((3, 1, 3, 0), (5, 1, 5, 0))


@pytest.mark.parametrize("change", [dict(lda=2), dict(ldb=4), dict(ldc=4), dict(ldd=4), dict(lda=-3), dict(m=0), dict(k=0), dict(batch=0)])
def test_what_cublaslt_does_not_take_has_no_algorithm(change):
    spec = Spec("float32", 4, 5, 3, False, False, 3, 5, 5, 5, 1, 0, 0, 0, 0, False)
    layouts(spec)
    with pytest.raises(NoAlgorithm, match="float32"):
        layouts(spec._replace(**change))


SMALL = Spec("bfloat16", 4, 5, 3, False, False, 3, 5, 5, -1, 1, 0, 0, 0, 0, False, 4)


def test_the_heuristic_hears_of_workspace_alignment_and_sums_in_float32():
    lt = ColumnMajor()
    made(SMALL, lt)
    assert lt.preference == {1: cublaslt.WORKSPACE_BYTES, 3: 2, 5: 4, 6: 4, 7: 4, 8: 4}
    made(SMALL._replace(dtype="float32"), lt)
    assert 3 not in lt.preference


def test_tf32_is_for_float32_alone():
    for dtype, tf32, number in [("float32", True, 77), ("float32", False, 68), ("bfloat16", True, 68), ("float64", True, 70)]:
        lt = ColumnMajor()
        kept = made(SMALL._replace(dtype=dtype, tf32=tf32), lt)
        assert [x["compute"] for x in lt.made.values() if "compute" in x] == [number]
        del kept


def test_an_algorithm_on_disk_is_not_asked_for_again():
    lt = ColumnMajor()
    first, again = made(SMALL, lt), made(SMALL, lt)
    assert lt.asked == 1
    assert bytes(first._algorithm) == bytes(again._algorithm) and first.workspace_bytes == again.workspace_bytes == 4096
    made(SMALL._replace(align=2), lt)
    assert lt.asked == 2


def test_no_algorithm_and_failures_are_told_apart():
    with pytest.raises(NoAlgorithm, match="bfloat16"):
        made(SMALL, ColumnMajor(results=1))  # one that cannot be run
    with pytest.raises(NoAlgorithm, match="status 15"):
        made(SMALL, ColumnMajor(fails=15))
    with pytest.raises(RuntimeError, match=r"bfloat16.* failed with status 7") as failed:
        made(SMALL, ColumnMajor(fails=7))
    assert not isinstance(failed.value, NoAlgorithm)


def test_a_failing_call_names_the_spec_and_the_status():
    class Failing(ColumnMajor):
        def matmul(self, *arguments: int) -> None:
            raise LtError(13)

    with pytest.raises(RuntimeError, match=r"bfloat16.* failed with status 13"):
        made(SMALL, Failing()).run(0, 0, 0, 0, 1.0, 0.0, 256, 77)


def test_a_product_is_made_once_and_its_refusal_remembered(monkeypatch):
    lt = ColumnMajor()
    monkeypatch.setattr(cublaslt, "handle", lambda index, chip: Handle(chip, lt, COMPUTE_NUMBERS, DATA_NUMBERS))
    cublaslt._made.cache_clear()
    try:
        assert cublaslt.product(SMALL, 0, "sm_90") is cublaslt.product(SMALL, 0, "sm_90")
        lt.results = 1
        for _ in range(2):
            with pytest.raises(NoAlgorithm):
                cublaslt.product(SMALL._replace(k=2), 0, "sm_90")
        assert lt.asked == 2
    finally:
        cublaslt._made.cache_clear()


def test_descriptors_go_with_the_product():
    lt = ColumnMajor()
    product = made(SMALL._replace(ldd=5), lt)
    assert len(lt.made) == 5
    del product
    assert not lt.made


def test_the_bias_pointer_is_set_when_it_changes():
    lt = ColumnMajor()
    spec = SMALL._replace(dtype="float32", ldd=0)
    product = made(spec, lt)
    a, b, c, d = (np.ones(20, np.float32) for _ in "abcd")
    written = lt.bias_written
    for bias in (d, d, a, d):
        product.run(c.ctypes.data, a.ctypes.data, b.ctypes.data, bias.ctypes.data, 1.0, 9.0, 256, 77)
        assert c.tolist() == [4.0] * 20
    assert lt.bias_written - written == 3


def test_importing_does_not_import_nvmath():
    code = "import sys, isthmus.backends.cuda.library.cublaslt; assert not any(m.startswith('nvmath') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(p for p in sys.path if p)})


def test_the_names_and_numbers_here_are_the_package_s():
    lt = pytest.importorskip("nvmath.bindings.cublasLt")
    cublas, data_types = pytest.importorskip("nvmath.bindings.cublas"), pytest.importorskip("nvmath").CudaDataType
    for enumeration in ("MatmulDescAttribute", "MatrixLayoutAttribute", "MatmulPreferenceAttribute", "Epilogue", "ReductionScheme"):
        ours = getattr(ColumnMajor, enumeration)
        for name, number in (ours if isinstance(ours, dict) else vars(ours)).items():
            assert getattr(lt, enumeration)[name] == number
    for stored, added_up, scaled, _ in cublaslt.TYPES.values():
        assert data_types[stored] is not None and data_types[scaled] is not None
        assert cublas.ComputeType[added_up] == COMPUTE_NUMBERS[added_up]
    assert (cublas.Operation.N, cublas.Operation.T, cublas.Status.NOT_SUPPORTED) == (0, 1, cublaslt.NOT_SUPPORTED)
    assert lt.matmul_heuristic_result_dtype == ColumnMajor.matmul_heuristic_result_dtype
    assert lt.matmul_algo_dtype.itemsize + 8 == cublaslt.STORED.size
    for name in [name for name in vars(ColumnMajor) if name.startswith(("matmul", "matrix_"))]:
        assert hasattr(lt, name)
