"""Library calls in programs: a program's entry below 0 is a product that cuBLASLt does (library/cublaslt.py).

Its addresses, alpha and beta are part of a captured graph, so they are part of what a graph is found by. Where cuBLASLt has
no algorithm for the operands as they lie, our own kernel (library/gemm.py) does it.
"""

from __future__ import annotations

import os
from typing import Any, Final

from isthmus.backends.cuda.library.cublaslt import NoAlgorithm, Product, Spec, layouts, product

MOST_ITEMS: Final = 64  # calls that one product may take, where its batch is not one strided axis
TF32: Final = os.environ.get("ISTHMUS_TF32") == "1"
Item = tuple[int, int, int, int]


class Call:
    """A product of a plan: one strided batch, at the offsets (of C, A, B, D, in elements) that are left over of other batch axes."""

    def __init__(self, spec: Spec, items: tuple[Item, ...], size: int, fallback: tuple[int, int, int]) -> None:
        self.spec = spec
        self.items = items
        self.size = size
        self.fallback = fallback  # the launch of our own kernel: function, blocks, threads
        self.made: dict[int, Product | None] = {}
        strides = [spec.lda, spec.ldb, spec.ldc, max(spec.ldd, 0), *(x for item in items for x in item)]
        strides += [spec.stride_a, spec.stride_b, spec.stride_c, spec.stride_d] if spec.batch > 1 else []
        self.strides = 16
        for stride in strides:
            self.strides |= stride * size

    def run(self, device: Any, addresses: tuple[int, int, int, int], alpha: float, beta: float, arguments: int) -> None:
        c, a, b, d = addresses
        spec = self.spec
        bits = c | a | b | self.strides | (d if spec.ldd >= 0 else 0)
        align = bits & -bits
        if align not in self.made:
            try:
                self.made[align] = product(spec._replace(align=align), device.index, f"sm_{device.driver.arch}x{device.driver.processors}")
            except NoAlgorithm:
                self.made[align] = None
        made = self.made[align]
        if made is None or (spec.ldd == 0 and beta != 1.0):
            function, blocks, threads = self.fallback
            device.load_missing([function])
            device.driver.launch(device.handles[function], blocks, threads, arguments)
            return
        stream, workspace, size = int(device.driver.stream), device.workspace(), self.size
        for oc, oa, ob, od in self.items:
            made.run(c + oc * size, a + oa * size, b + ob * size, d + od * size, alpha, beta, workspace, stream)


CALLS: Final[list[Call]] = []
_numbers: Final[dict[Any, int]] = {}


def plan_call(
    structure: tuple[str, bool, bool, bool],
    size: int,
    m: int,
    n: int,
    k: int,
    batch: tuple[Item, ...],
    a_stride: int,
    b_stride: int,
    d_row: int,
    d_col: int,
    fallback: tuple[int, int, int],
) -> int | None:
    """The number (below 0) of the call for a product, arguments as of `Gemm.bind`; None where cuBLASLt does not take it."""
    dtype, a_transposed, b_transposed, addend = structure
    # Batch axes that only lengthen A (one B for all) become rows.
    while batch and not a_transposed:
        count, sa, sb, sd = batch[-1]
        if count != 1:
            if sb != 0 or not (sa == m * a_stride or m == 1) or (addend and not (sd == m * d_row or m == 1)):
                break
            if m == 1:
                a_stride, d_row = sa, sd
            m *= count
        batch = batch[:-1]
    # Neighbouring axes that are one for every operand become one.
    merged: list[Item] = []
    for axis in batch:
        if axis[0] == 1:
            continue
        if merged and all(s == axis[0] * t for s, t in zip(merged[-1][1:], axis[1:], strict=True)):
            merged[-1] = (merged[-1][0] * axis[0], *axis[1:])
        else:
            merged.append(axis)
    inner = merged.pop() if merged else (1, 0, 0, 0)
    items: list[Item] = [(0, 0, 0, 0)]
    step = inner[0] * m * n
    for count, sa, sb, sd in reversed(merged):
        items = [(c + i * step, a + i * sa, b + i * sb, d + i * sd) for i in range(count) for c, a, b, d in items]
        step *= count
        if len(items) > MOST_ITEMS:
            return None
    ldd = -1
    if addend:
        if n > 1 and d_col != 1:
            return None
        ldd = d_row if m > 1 else max(d_row, n)
        if ldd == 0 and (inner[3] or any(x[3] for x in merged)):
            return None
    if min(a_stride, b_stride, inner[1], inner[2], inner[3], d_row) < 0 or max(m, n, k, inner[0]) >= 1 << 31:
        return None
    spec = Spec(dtype, m, n, k, a_transposed, b_transposed, a_stride, b_stride, n, ldd, inner[0], inner[1], inner[2], m * n, inner[3], TF32)
    try:
        layouts(spec)
    except NoAlgorithm:
        return None
    key = (spec, tuple(items), fallback)
    found = _numbers.get(key)
    if found is None:
        found = _numbers[key] = -1 - len(CALLS)
        CALLS.append(Call(spec, tuple(items), size, fallback))
    return found
