"""Matrix products by NVIDIA's cuBLASLt: `C[b] = alpha * A[b] @ B[b] + beta * D[b]`, all row-major.

cuBLASLt thinks in column-major matrices, and a row-major matrix read so is its transpose. `C.T = B.T @ A.T`, so our B goes
in as its first operand and our A as its second, and nothing is copied: `layouts` is that translation, in plain numbers.
What it calls C (added) is our D, what it calls D (result) is our C.

A `Product` is made once for a `Spec`: its descriptors and the algorithm that cuBLASLt's heuristic names for it. Calling it
takes addresses only. `nvmath.bindings` is imported when the first one is made (0.4 s). Algorithms are kept on disk as well,
since the heuristic takes 70 to 360 us for each.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import struct
import weakref
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from isthmus.backends import disk_cache

WORKSPACE_BYTES: Final = 32 << 20  # offered to the heuristic; most algorithms want none of it
CANDIDATES: Final = 4
MOST_PRODUCTS: Final = 4096  # kept in a process; each holds four small descriptors on the host
NOT_SUPPORTED: Final = 15  # CUBLAS_STATUS_NOT_SUPPORTED
REPEATED_ROW: Final = 0  # as `ldd`
CHOICE: Final = 1  # a change of how algorithms are chosen takes a new number, so that those on disk are not found
STORED: Final = struct.Struct("<64sQ")  # an algorithm and its workspace, on disk

# How a dtype is stored, added up, and scaled: names in CudaDataType, ComputeType, CudaDataType; and the type of alpha.
TYPES: Final[dict[str, tuple[str, str, str, Any]]] = {
    "float32": ("CUDA_R_32F", "COMPUTE_32F", "CUDA_R_32F", ctypes.c_float),
    "float16": ("CUDA_R_16F", "COMPUTE_32F", "CUDA_R_32F", ctypes.c_float),
    "bfloat16": ("CUDA_R_16BF", "COMPUTE_32F", "CUDA_R_32F", ctypes.c_float),
    "float64": ("CUDA_R_64F", "COMPUTE_64F", "CUDA_R_64F", ctypes.c_double),
    "complex64": ("CUDA_C_32F", "COMPUTE_32F", "CUDA_C_32F", ctypes.c_float),
}


class NoAlgorithm(RuntimeError):
    """cuBLASLt has nothing for a product; other kernels must do it."""


class Spec(NamedTuple):
    """One product of row-major matrices, `C[b] = alpha * A[b] @ B[b] (+ beta * D[b])`; A is (m, k), B (k, n), C and D (m, n).

    Strides are in elements: `ld*` from row to row of what lies in memory, `stride_*` from one member of the batch to the
    next (0 repeats it).
    """

    dtype: str  # "float32", "float16", "bfloat16", "float64" or "complex64"
    m: int
    n: int
    k: int
    a_transposed: bool  # element (i, kk) of A lies at a[kk * lda + i] instead of a[i * lda + kk]
    b_transposed: bool  # element (kk, j) of B lies at b[j * ldb + kk] instead of b[kk * ldb + j]
    lda: int
    ldb: int
    ldc: int
    ldd: int  # 0: D is a row of n numbers, added to every row with beta taken as 1; below 0: no D
    batch: int
    stride_a: int
    stride_b: int
    stride_c: int
    stride_d: int
    tf32: bool  # float32 alone: operands may be rounded to TF32's 11 bits
    align: int = 16  # bytes; the largest power of two, up to 16, that divides all the addresses (D's row too)


class Matrix(NamedTuple):
    """A column-major matrix, as cuBLASLt describes one."""

    rows: int
    columns: int
    ld: int
    stride: int  # from one member of the batch to the next


class Layouts(NamedTuple):
    """A product as cuBLASLt describes it: `out = op(left) @ op(right)`, plus `addend`, or plus the bias in every column."""

    left: Matrix
    right: Matrix
    addend: Matrix | None
    out: Matrix
    left_transposed: bool
    right_transposed: bool
    bias: bool


def layouts(spec: Spec) -> Layouts:
    """The column-major matrices of a product.

    Raises:
        NoAlgorithm: rows overlap, or there is nothing to multiply; cuBLASLt takes neither.
    """
    m, n, k = spec.m, spec.n, spec.k
    if min(m, n, k, spec.batch) < 1:
        raise NoAlgorithm(f"[cublaslt] an empty product: {spec}.")

    def matrix(rows: int, columns: int, ld: int, stride: int) -> Matrix:
        if columns == 1:  # no stride is taken, so one that cuBLASLt would refuse does not matter
            ld = max(ld, rows)
        if ld < rows:
            raise NoAlgorithm(f"[cublaslt] rows of {rows} numbers lie {ld} apart: {spec}.")
        return Matrix(rows, columns, ld, stride)

    left = matrix(k, n, spec.ldb, spec.stride_b) if spec.b_transposed else matrix(n, k, spec.ldb, spec.stride_b)
    right = matrix(m, k, spec.lda, spec.stride_a) if spec.a_transposed else matrix(k, m, spec.lda, spec.stride_a)
    addend = matrix(n, m, spec.ldd, spec.stride_d) if spec.ldd > 0 else None
    out = matrix(n, m, spec.ldc, spec.stride_c)
    return Layouts(left, right, addend, out, spec.b_transposed, spec.a_transposed, spec.ldd == REPEATED_ROW)


class Handle:
    """cuBLASLt for the device whose context is current when this is made. `chip` names it: what an algorithm is chosen for."""

    def __init__(self, chip: str, lt: Any, compute_types: Any, data_types: Any) -> None:
        self.chip = chip
        self.lt = lt  # nvmath.bindings.cublasLt
        self.compute_types = compute_types
        self.data_types = data_types
        self.address: int = lt.create()
        self.version: int = lt.get_version()


@functools.cache
def handle(device_index: int, chip: str) -> Handle:
    """The handle of a device, whose context must be current.

    Raises:
        ImportError: nvmath-python is not installed.
        RuntimeError: cuBLASLt is not, or cannot be started.
    """
    from nvmath import CudaDataType  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from nvmath.bindings import cublas, cublasLt  # type: ignore[import-not-found, import-untyped, unused-ignore]

    try:
        return Handle(chip, cublasLt, cublas.ComputeType, CudaDataType)
    except cublasLt.cuBLASLtError as error:
        raise RuntimeError(f"[cublaslt] cuBLASLt cannot be started on GPU {device_index}: {error}") from None


def product(spec: Spec, device_index: int, chip: str) -> Product:
    """The product of a spec on a device, whose context must be current; made once.

    Args:
        spec: What to multiply.
        device_index: Which GPU.
        chip: Its kind, as far as the best algorithm depends on it: architecture and number of processors.

    Raises:
        NoAlgorithm: cuBLASLt does not offer this product.
        ImportError: nvmath-python is not installed.
        RuntimeError: cuBLASLt is not, or fails.
    """
    made = _made(spec, device_index, chip)
    if isinstance(made, str):
        raise NoAlgorithm(made)
    return made


@functools.lru_cache(maxsize=MOST_PRODUCTS)
def _made(spec: Spec, device_index: int, chip: str) -> Product | str:
    """The product, or why there is none: that is not asked twice either."""
    try:
        return Product(spec, handle(device_index, chip))
    except NoAlgorithm as error:
        return str(error)


class Product:
    """A Spec with its chosen algorithm, ready to be called by one thread at a time."""

    __slots__ = (
        "_addend", "_algorithm", "_algorithm_address", "_alpha", "_beta", "_bias", "_bias_address", "_error", "_handle", "_has_addend", "_has_bias",
        "_left", "_lt", "_matmul", "_numbers", "_operation", "_out", "_right", "spec", "workspace_bytes", "__weakref__",
    )  # fmt: skip

    def __init__(self, spec: Spec, handle: Handle) -> None:
        lt = handle.lt
        shape = layouts(spec)
        stored, added_up, scaled, number = TYPES[spec.dtype]
        if spec.tf32 and spec.dtype == "float32":
            added_up = "COMPUTE_32F_FAST_TF32"
        self.spec = spec
        self._lt, self._matmul, self._error, self._handle = lt, lt.matmul, lt.cuBLASLtError, handle.address
        self._numbers = (number * 4)()  # alpha and beta, room for a complex number each
        self._alpha = ctypes.addressof(self._numbers)
        self._beta = self._alpha + 2 * ctypes.sizeof(number)
        self._bias = ctypes.c_int64(spec.align)  # no address yet, but one of the alignment that is promised
        self._bias_address = ctypes.addressof(self._bias)
        self._has_addend, self._has_bias = shape.addend is not None, shape.bias

        owned: list[tuple[Callable[[int], None], int]] = []
        weakref.finalize(self, _destroy, owned).atexit = False
        try:
            data_type = int(handle.data_types[stored])

            def described(matrix: Matrix) -> int:
                made: int = lt.matrix_layout_create(data_type, matrix.rows, matrix.columns, matrix.ld)
                owned.append((lt.matrix_layout_destroy, made))
                if spec.batch > 1:
                    _put(lt.matrix_layout_set_attribute, made, lt.MatrixLayoutAttribute.BATCH_COUNT, ctypes.c_int32(spec.batch))
                    _put(lt.matrix_layout_set_attribute, made, lt.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, ctypes.c_int64(matrix.stride))
                return made

            self._left, self._right, self._out = described(shape.left), described(shape.right), described(shape.out)
            self._addend = described(shape.addend) if shape.addend else self._out
            self._operation: int = lt.matmul_desc_create(int(handle.compute_types[added_up]), int(handle.data_types[scaled]))
            owned.append((lt.matmul_desc_destroy, self._operation))
            put = functools.partial(_put, lt.matmul_desc_set_attribute, self._operation)
            put(lt.MatmulDescAttribute.TRANSA, ctypes.c_int32(shape.left_transposed))  # CUBLAS_OP_N is 0, CUBLAS_OP_T is 1
            put(lt.MatmulDescAttribute.TRANSB, ctypes.c_int32(shape.right_transposed))
            if shape.bias:
                put(lt.MatmulDescAttribute.EPILOGUE, ctypes.c_uint32(lt.Epilogue.BIAS))
                put(lt.MatmulDescAttribute.BIAS_POINTER, self._bias)
                if spec.batch > 1:
                    put(lt.MatmulDescAttribute.BIAS_BATCH_STRIDE, ctypes.c_int64(spec.stride_d))
            chosen, self.workspace_bytes = self._remembered_or_chosen(handle)
        except lt.cuBLASLtError as error:
            if error.status == NOT_SUPPORTED:
                raise NoAlgorithm(f"[cublaslt] no algorithm for {spec}: {error}") from None
            raise RuntimeError(f"[cublaslt] {spec} failed with status {error.status}: {error}") from None
        self._algorithm = (ctypes.c_uint64 * 8).from_buffer_copy(chosen)
        self._algorithm_address = ctypes.addressof(self._algorithm)

    def run(self, c: int, a: int, b: int, d: int, alpha: float, beta: float, workspace: int, stream: int) -> None:
        """Enqueue the product.

        Args:
            c, a, b, d: Addresses on the device, divisible by `spec.align`; `d` is not read where there is no D. It may be `c`
                where their strides agree; else C must not overlap the others.
            alpha, beta: `beta` counts only for a D that is a matrix.
            workspace: Address of `workspace_bytes`, divisible by 256, for this stream alone.
            stream: A CUstream.

        Raises:
            RuntimeError: cuBLASLt fails.
        """
        self._numbers[0] = alpha
        addend = c
        if self._has_addend:
            self._numbers[2] = beta
            addend = d
        try:
            if self._has_bias and d != self._bias.value:
                self._bias.value = d
                self._lt.matmul_desc_set_attribute(self._operation, self._lt.MatmulDescAttribute.BIAS_POINTER, self._bias_address, 8)
            self._matmul(self._handle, self._operation, self._alpha, b, self._left, a, self._right, self._beta, addend, self._addend, c, self._out,
                         self._algorithm_address, workspace, self.workspace_bytes, stream)  # fmt: skip
        except self._error as error:
            self._bias.value = 0  # what the descriptor holds is not known
            raise RuntimeError(f"[cublaslt] {self.spec} failed with status {error.status}: {error}") from None

    def _remembered_or_chosen(self, handle: Handle) -> tuple[bytes, int]:
        """The 64 bytes of an algorithm, from disk or from the heuristic, and the workspace it wants."""
        digest = hashlib.sha256(repr(("cublaslt", CHOICE, handle.version, handle.chip, self.spec)).encode()).digest()
        kept = disk_cache.read(digest)
        if kept is not None and len(kept) == STORED.size:
            algorithm, workspace_bytes = STORED.unpack(kept)
            if self._check(algorithm, workspace_bytes):
                return algorithm, workspace_bytes
        algorithm, workspace_bytes = self._choose()
        disk_cache.write(digest, STORED.pack(algorithm, workspace_bytes))
        return algorithm, workspace_bytes

    def _check(self, algorithm: bytes, workspace_bytes: int) -> bool:
        """Whether cuBLASLt can do the product by this algorithm, with this much workspace."""
        lt = self._lt
        code = (ctypes.c_uint64 * 8).from_buffer_copy(algorithm)
        result = np.zeros(1, lt.matmul_heuristic_result_dtype)
        try:
            lt.matmul_algo_check(self._handle, self._operation, self._left, self._right, self._addend, self._out, ctypes.addressof(code), result.ctypes.data)
        except lt.cuBLASLtError:
            return False
        return bool(result[0]["state"] == 0 and result[0]["workspace_size"] <= workspace_bytes)

    def _choose(self) -> tuple[bytes, int]:
        """The algorithm that the heuristic puts first, and the workspace it wants."""
        lt, spec = self._lt, self.spec
        preference = lt.matmul_preference_create()
        try:
            put = functools.partial(_put, lt.matmul_preference_set_attribute, preference)
            put(lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES, ctypes.c_uint64(WORKSPACE_BYTES))
            for operand in "ABCD":
                put(lt.MatmulPreferenceAttribute[f"MIN_ALIGNMENT_{operand}_BYTES"], ctypes.c_uint32(spec.align))
            if spec.dtype in ("float16", "bfloat16"):
                # Parts of k may be added up in float32 alone, not in 16 bits.
                put(lt.MatmulPreferenceAttribute.REDUCTION_SCHEME_MASK, ctypes.c_uint32(lt.ReductionScheme.COMPUTE_TYPE))
            results = np.zeros(CANDIDATES, lt.matmul_heuristic_result_dtype)
            count = ctypes.c_int32()
            lt.matmul_algo_get_heuristic(self._handle, self._operation, self._left, self._right, self._addend, self._out, preference,
                                         CANDIDATES, results.ctypes.data, ctypes.addressof(count))  # fmt: skip
        finally:
            lt.matmul_preference_destroy(preference)
        for result in results[: count.value]:
            if result["state"] == 0:
                return result["algo"].tobytes(), int(result["workspace_size"])
        raise NoAlgorithm(f"[cublaslt] no algorithm for {spec}.")


def _put(set_attribute: Callable[[int, int, int, int], None], owner: int, attribute: int, value: Any) -> None:
    set_attribute(owner, attribute, ctypes.addressof(value), ctypes.sizeof(value))


def _destroy(owned: list[tuple[Callable[[int], None], int]]) -> None:
    for destroy, address in owned:
        destroy(address)
