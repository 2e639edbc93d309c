"""Products by cuBLASLt on a GPU, against NumPy in float64; then how fast. Run by hand: `python tests/gpu/check_cublaslt.py`.

A line for each spec; exit code 1 if one is wrong. Each product is run three times into fresh memory: captured in a CUDA
graph before anything else has run it, plainly, and from the algorithm kept on disk; all three must agree to the bit.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from typing import Any

import ml_dtypes
import numpy as np
from cuda.bindings import driver as cu  # type: ignore[import-untyped, unused-ignore]

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src"))

from isthmus.backends.cuda.library import cublaslt
from isthmus.backends.cuda.library.cublaslt import NoAlgorithm, Product, Spec, handle

NUMPY: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64, "complex64": np.complex64}
# Allowed error as a part of |alpha| |A| |B| + |beta| |D|: the result's rounding, and that of sums.
TOLERANCE = {"float32": 2e-6, "float16": 6e-4, "bfloat16": 5e-3, "float64": 4e-15, "complex64": 4e-6}
TF32_TOLERANCE = 2e-3
GUARD = 64  # elements around C that must stay as they are
MAY_LACK = {("float64", "row"), ("complex64", "row")}  # a bias of these is not promised by NVIDIA's documentation


def check(error: Any, *result: Any) -> Any:
    if error:
        raise RuntimeError(f"{cu.cuGetErrorString(error)[1]} ({int(error)})")
    return result[0] if result else None


def spec(dtype: str, m: int, n: int, k: int, form: str = "nn", addend: str = "none", batch: int = 1, gap: int = 0, repeated: str = "",
         tf32: bool = False, align: int = 16) -> Spec:  # fmt: skip
    """`form`: a letter each for A and B, n or t; `gap`: elements between rows and between members of the batch."""
    a, b = form[0] == "t", form[1] == "t"
    lda, ldb, ldc = (m if a else k) + gap, (k if b else n) + gap, n + gap
    ldd = {"none": -1, "row": 0, "matrix": n + 2 * gap}[addend]
    strides = {"a": (k if a else m) * lda + gap, "b": (n if b else k) * ldb + gap, "c": m * ldc + gap, "d": m * ldd if addend == "matrix" else n}
    sa, sb, sc, sd = (0 if name in repeated else strides[name] for name in "abcd")
    return Spec(dtype, m, n, k, a, b, lda, ldb, ldc, ldd, batch, sa, sb, sc, sd, tf32, align)


SPECS = [
    *(spec(dtype, 256, 192, 320, form) for dtype in NUMPY for form in ("nn", "nt", "tn", "tt")),
    *(spec(dtype, 128, 96, 64, "nt", addend) for dtype in NUMPY for addend in ("matrix", "row")),
    *(spec(dtype, 77, 53, 91, "nn", "matrix", gap=3, align=np.dtype(NUMPY[dtype]).itemsize) for dtype in NUMPY),
    *(spec(dtype, 64, 48, 80, "tn", "matrix", batch=5, gap=16) for dtype in NUMPY),
    spec("float32", 256, 192, 320, "nt", tf32=True),
    spec("bfloat16", 333, 1000, 777, "nn", align=2),
    spec("bfloat16", 1, 4096, 1024, "nt", "row"),
    spec("bfloat16", 16, 512, 4096, "nt"),  # split along k, summed in float32
    spec("bfloat16", 64, 64, 64, "nt", "row", batch=7),
    spec("float32", 33, 65, 17, "nn", "row", batch=3, gap=1, align=4),
    spec("float16", 40, 24, 56, "nn", batch=6, repeated="b"),
    spec("float32", 40, 24, 56, "tn", "matrix", batch=6, repeated="ad"),
    spec("bfloat16", 40, 24, 56, "nn", "row", batch=6, repeated="d"),
    spec("float32", 1, 1, 1000, "nt", align=4),
    spec("float64", 5, 1, 7, "tt", align=8),
    spec("float32", 3, 2, 1, "nn", "matrix", align=4),
    spec("float32", 700, 1, 300, "nn", align=4),
    spec("complex64", 31, 17, 23, "tt", "none", batch=2, gap=1, align=8),
]


class Gpu:
    def __init__(self) -> None:
        check(*cu.cuInit(0))
        device = check(*cu.cuDeviceGet(0))
        context = check(*cu.cuDevicePrimaryCtxRetain(device))
        check(*cu.cuCtxSetCurrent(context))
        get = cu.CUdevice_attribute
        major, minor, processors = (
            check(*cu.cuDeviceGetAttribute(which, device))
            for which in (
                get.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                get.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                get.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            )
        )
        self.chip = f"sm_{major}{minor}x{processors}"
        self.stream = check(*cu.cuStreamCreate(1))
        self.workspace = self.allocate(cublaslt.WORKSPACE_BYTES)

    def allocate(self, nbytes: int) -> int:
        return int(check(*cu.cuMemAlloc(nbytes)))

    def upload(self, x: np.ndarray, shift: int = 0) -> int:
        """The address of a copy; `shift` bytes past an address that cuMemAlloc aligns to 256."""
        address = self.allocate(x.nbytes + shift) + shift
        check(*cu.cuMemcpyHtoD(address, x.ctypes.data, x.nbytes))
        check(*cu.cuCtxSynchronize())  # the stream is not ordered with the copy, which may return before it has arrived
        return address

    def download(self, x: np.ndarray, address: int) -> np.ndarray:
        check(*cu.cuMemcpyDtoH(x.ctypes.data, address, x.nbytes))
        return x

    def wait(self) -> None:
        check(*cu.cuStreamSynchronize(self.stream))


def drawn(rng: np.random.Generator, dtype: str, length: int) -> np.ndarray:
    x = rng.standard_normal(length)
    if dtype == "complex64":
        x = x + 1j * rng.standard_normal(length)
    return x.astype(NUMPY[dtype])


def members(x: np.ndarray, start: int, batch: int, stride: int, rows: int, columns: int, ld: int, step: int = 1) -> np.ndarray:
    """(batch, rows, columns) of what lies in `x`, strides in elements."""
    size = x.itemsize
    return np.lib.stride_tricks.as_strided(x[start:], (batch, rows, columns), (stride * size, ld * size, step * size))


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def examine(gpu: Gpu, s: Spec, rng: np.random.Generator) -> tuple[float, int]:
    """The largest error as a part of what is allowed, and the workspace. Raises for what is otherwise wrong."""
    a = drawn(rng, s.dtype, (s.batch - 1) * s.stride_a + (s.k if s.a_transposed else s.m) * s.lda)
    b = drawn(rng, s.dtype, (s.batch - 1) * s.stride_b + (s.n if s.b_transposed else s.k) * s.ldb)
    c = drawn(rng, s.dtype, (s.batch - 1) * s.stride_c + s.m * s.ldc + 2 * GUARD)
    d = drawn(rng, s.dtype, (s.batch - 1) * s.stride_d + (s.m * s.ldd if s.ldd > 0 else s.n))
    alpha, beta = 0.75, -1.5

    x = members(a, 0, s.batch, s.stride_a, s.m, s.k, *((1, s.lda) if s.a_transposed else (s.lda, 1)))
    y = members(b, 0, s.batch, s.stride_b, s.k, s.n, *((1, s.ldb) if s.b_transposed else (s.ldb, 1)))
    expected, scale = alpha * (wide(x) @ wide(y)), alpha * (np.abs(wide(x)) @ np.abs(wide(y)))
    if s.ldd >= 0:
        factor = beta if s.ldd else 1.0
        added = factor * wide(members(d, 0, s.batch, s.stride_d, s.m, s.n, s.ldd))
        expected, scale = expected + added, scale + np.abs(added)

    shift = s.align if s.align < 16 else 0  # an address aligned so and no better
    at_a, at_b, at_d = gpu.upload(a, shift), gpu.upload(b, shift), gpu.upload(d, shift)
    guard = GUARD * c.itemsize
    results = []

    def fresh() -> int:
        return gpu.upload(c, shift)

    def run(product: Product, at_c: int) -> None:
        product.run(at_c + guard, at_a, at_b, at_d if s.ldd >= 0 else 0, alpha, beta, gpu.workspace, int(gpu.stream))

    product = cublaslt.product(s, 0, gpu.chip)
    at_c = fresh()
    check(*cu.cuStreamBeginCapture(gpu.stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    try:
        run(product, at_c)
    finally:
        graph = check(*cu.cuStreamEndCapture(gpu.stream))
    ready = check(*cu.cuGraphInstantiate(graph, 0))
    gpu.wait()
    untouched = gpu.download(np.empty_like(c), at_c)
    assert untouched.tobytes() == c.tobytes(), "the capture ran"
    check(*cu.cuGraphLaunch(ready, gpu.stream))
    gpu.wait()
    results.append(gpu.download(np.empty_like(c), at_c))
    check(*cu.cuMemFree(at_c - shift))
    for one in (product, Product(s, handle(0, gpu.chip))):  # the second finds its algorithm on disk
        at_c = fresh()
        run(one, at_c)
        gpu.wait()
        results.append(gpu.download(np.empty_like(c), at_c))
        check(*cu.cuMemFree(at_c - shift))
    check(*cu.cuGraphExecDestroy(ready))
    check(*cu.cuGraphDestroy(graph))
    for address in (at_a, at_b, at_d):
        check(*cu.cuMemFree(address - shift))

    first = results[0]
    for name, other in zip(("plainly", "from disk"), results[1:], strict=True):
        assert first.tobytes() == other.tobytes(), f"captured and {name} differ"
    found = members(first, GUARD, s.batch, s.stride_c, s.m, s.n, s.ldc)
    tolerance = TF32_TOLERANCE if s.tf32 else TOLERANCE[s.dtype]
    worst = float(np.max(np.abs(wide(found) - expected) / (tolerance * scale)))
    blank = first.copy()
    members(blank, GUARD, s.batch, s.stride_c, s.m, s.n, s.ldc)[...] = members(c, GUARD, s.batch, s.stride_c, s.m, s.n, s.ldc)
    assert blank.tobytes() == c.tobytes(), "something beside C was written"
    assert worst <= 1, f"error is {worst:.2f} of what is allowed"  # also false for NaN
    return worst, product.workspace_bytes


def shown(s: Spec) -> str:
    form = "nt"[s.a_transposed] + "nt"[s.b_transposed]
    addend = "none" if s.ldd < 0 else "matrix" if s.ldd else "row"
    strides = f"ld {s.lda},{s.ldb},{s.ldc},{s.ldd}"
    return f"{s.dtype:9s}{' tf32' if s.tf32 else ''} {s.batch}x {s.m}x{s.n}x{s.k} {form} D {addend}, {strides}, align {s.align}"


def host_cost(gpu: Gpu) -> None:
    calls, rounds = 200, 9
    for addend in ("none", "matrix", "row"):
        s = spec("bfloat16", 64, 64, 64, "nt", addend)
        product = cublaslt.product(s, 0, gpu.chip)
        c, a, b, d = (gpu.upload(np.zeros(4096, np.uint16)) for _ in "cabd")
        other, stream = d + 2048, int(gpu.stream)
        times = []
        for _ in range(rounds):
            gpu.wait()
            start = time.perf_counter()
            for k in range(calls):
                product.run(c, a, b, other if k % 2 and addend == "row" else d, 1.0, 1.0, gpu.workspace, stream)
            times.append((time.perf_counter() - start) / calls)
        gpu.wait()
        print(f"host: {1e6 * float(np.median(times)):.2f} us a call, D {addend}" + (" (its address changing)" if addend == "row" else ""))
    for case in ("first", "again"):
        start = time.perf_counter()
        Product(spec("bfloat16", 192, 320, 448, "nn"), handle(0, gpu.chip))
        print(f"host: {1e6 * (time.perf_counter() - start):.0f} us to make a product, {case} ({'heuristic' if case == 'first' else 'algorithm from disk'})")


def speed(gpu: Gpu, dtype: str, size: int, tf32: bool = False) -> None:
    s = spec(dtype, size, size, size, tf32=tf32)
    product = cublaslt.product(s, 0, gpu.chip)
    rng = np.random.default_rng(0)
    values = drawn(rng, dtype, size * size)
    a, b, c = gpu.upload(values), gpu.upload(values[::-1].copy()), gpu.upload(values)
    begin, end = check(*cu.cuEventCreate(0)), check(*cu.cuEventCreate(0))
    times = []
    for _ in range(12):
        check(*cu.cuEventRecord(begin, gpu.stream))
        product.run(c, a, b, 0, 1.0, 0.0, gpu.workspace, int(gpu.stream))
        check(*cu.cuEventRecord(end, gpu.stream))
        gpu.wait()
        times.append(check(*cu.cuEventElapsedTime(begin, end)))
    median_ms = float(np.median(times[2:]))
    print(f"speed: {dtype}{' tf32' if tf32 else ''} {size}^3 {2 * size**3 / median_ms / 1e9:.0f} TFLOP/s, workspace {product.workspace_bytes}")
    for address in (a, b, c):
        check(*cu.cuMemFree(address))


def main() -> int:
    gpu = Gpu()
    rng = np.random.default_rng(0)
    failures = 0
    with tempfile.TemporaryDirectory() as cache:
        os.environ["ISTHMUS_CACHE_DIR"] = cache
        start = time.perf_counter()
        version = handle(0, gpu.chip).version
        print(f"{gpu.chip}, cuBLASLt {version}, imported and started in {time.perf_counter() - start:.2f} s")
        for s in SPECS:
            addend = "none" if s.ldd < 0 else "matrix" if s.ldd else "row"
            try:
                worst, workspace_bytes = examine(gpu, s, rng)
            except NoAlgorithm:
                lacking = (s.dtype, addend) in MAY_LACK
                failures += not lacking
                print(f"{'none' if lacking else 'FAIL'}  {shown(s)}: no algorithm", flush=True)
            except (RuntimeError, AssertionError) as error:
                failures += 1
                print(f"FAIL  {shown(s)}: {error}", flush=True)
            else:
                print(f"ok    {shown(s)}: error {worst:.2f} of what is allowed, workspace {workspace_bytes}", flush=True)
        host_cost(gpu)
        speed(gpu, "bfloat16", 8192)
        speed(gpu, "float32", 4096)
        speed(gpu, "float32", 4096, tf32=True)
    print(f"{len(SPECS)} specs, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
