"""Kernels compile for chips that are not there: the texts of many programs in all variants, as one unit a chip.

One kernel of each form goes to every chip, and every kernel to one of them; to every one in `make test-long`.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.laws.cases import CASES
from tests.laws.drawn import arrays, call, draw

import isthmus.core as mx
from isthmus import nn
from isthmus.backends.cuda import compile as compiler
from isthmus.backends.cuda.functions import FUNCTIONS, Function
from isthmus.backends.cuda.library.gemm import gemm_function
from isthmus.backends.cuda.prelude import PRELUDE
from isthmus.backends.cuda.render import render
from isthmus.kernel.loops import Kernel
from isthmus.schedule.run import plans

CHIPS = [70, 75, 80, 86, 89, 90, 100, 120]
ROWS = [(4, 8), (4, 301), (4, 1000), (4, 2048), (4, 4001), (4, 16384), (300, 20001), (300, 65536), (300, 131000), (300, 200000), (1, 300001), (2, 1 << 20)]
FEW_ROWS = [(4, 301), (300, 65536), (1, 300001)]
COLUMNS = [(30, 2), (30, 300), (5000, 64), (100001, 300), (100000, 4096), (30, 20001), (30, 40000), (60, 100000)]  # the reduced axis, and the one that is kept
MAPS = [1, 2, 4, 64, 101]

Program = tuple[Callable[[], Any], list[Any]]


def made() -> Iterator[Program]:
    """Programs, and the sizes that their kernels are bound for besides their own: of the last two axes, or of the last one."""
    x, w, other = mx.ones((6, 40)), mx.ones((40,)), mx.ones((40, 6))
    h, hw, f = x.astype(mx.bfloat16), w.astype(mx.bfloat16), x.astype(mx.float16)
    long, cube, whole = mx.ones((3, 5, 40)), mx.ones((4, 6, 40)), mx.arange(240).reshape(6, 40)
    index, columns = mx.array([3, 0, 5, 5]), mx.array([[1, 2], [3, 4], [0, 0], [5, 5], [7, 8], [9, 9]])
    mx.eval(x, w, other, h, hw, f, long, cube, whole, index, columns)
    # maps: in packs and pairs, strided, turned, of each width of values
    yield lambda: nn.gelu(x * w + 1), [*MAPS, (1 << 16, 4096)]
    yield lambda: nn.gelu(h * hw + 1), [*MAPS, (1 << 16, 4096)]
    yield lambda: mx.tanh(x / w[:1]), [(1 << 16, 4096)]
    yield lambda: f * f + f, MAPS
    yield lambda: (mx.sin(f) * h.astype(mx.float16)).astype(mx.bfloat16), MAPS
    yield lambda: h.astype(mx.int8) + 1, MAPS
    yield lambda: x.astype(mx.float64) / 3.0 + 1, MAPS
    yield lambda: mx.exp(x.astype(mx.complex64)) * 2, MAPS
    yield lambda: (whole.astype(mx.uint64) >> 3) // 7 % 5, MAPS
    yield lambda: x[:, ::2] + x[:, 1::2], MAPS
    yield lambda: x[::-1, ::-1] * 2, MAPS
    yield lambda: mx.concatenate([x, x * 2, mx.pad(x, 2)[:6, :40]], axis=1), MAPS
    yield lambda: x.T + other, [(64, 64), (100, 33)]
    yield lambda: h.T * other.astype(mx.bfloat16), [(64, 64), (100, 33)]
    yield lambda: whole.T.astype(mx.int8) + other.astype(mx.int8), [(64, 64)]
    yield lambda: cube.transpose(2, 0, 1) + 1, [(64, 64)]
    yield lambda: mx.where(whole > 3, x, mx.zeros(()) + w[0]), MAPS
    # gathers, random words
    yield lambda: mx.take(x, index, axis=0) + 1, MAPS
    yield lambda: mx.take_along_axis(h, columns, axis=1), MAPS
    yield lambda: mx.random.bernoulli(0.3, (6, 40)), MAPS
    yield lambda: mx.random.normal((6, 40)).astype(mx.bfloat16), MAPS
    yield lambda: mx.random.bits((6, 41), width=2), MAPS
    # rows
    yield lambda: mx.softmax(h, axis=-1), ROWS
    yield lambda: mx.softmax(x, axis=-1), FEW_ROWS
    yield lambda: mx.softmax(x * 2, axis=-1), [(600, 20_000), (600, 40_000), (600, 131_072)]
    yield lambda: x.argmax(-1), ROWS
    yield lambda: mx.argmin(h, axis=-1), FEW_ROWS
    yield lambda: mx.argmax(x.astype(mx.complex64) * x, axis=-1), FEW_ROWS
    yield lambda: (whole * 2).sum(-1), FEW_ROWS
    yield lambda: (x.astype(mx.complex64) * x).sum(-1), FEW_ROWS
    yield lambda: mx.var(x, axis=-1), FEW_ROWS
    yield lambda: f.max(-1) + f.sum(-1), FEW_ROWS
    yield lambda: mx.logsumexp(long, axis=(1, 2)), []
    yield lambda: (x > 0).all(-1), FEW_ROWS
    yield lambda: x.astype(mx.float64).prod(-1), FEW_ROWS
    yield lambda: x.sum(), []
    # columns, side sums
    yield lambda: x.sum(0), COLUMNS
    yield lambda: (h * h).mean(0), COLUMNS
    yield lambda: mx.argmax(h, axis=0), COLUMNS
    yield lambda: x - x.mean(0), COLUMNS
    yield lambda: mx.softmax(x, axis=0), COLUMNS
    yield lambda: cube.sum(1), COLUMNS
    yield lambda: whole.max(0), COLUMNS
    yield lambda: mx.grad(lambda a, b: (nn_norm(a) * b).sum(), (0, 1))(x, w), [(4, 301), (4, 4096), (300, 65536), (40000, 4000)]
    yield lambda: mx.grad(lambda a, b: (nn_norm(a) * b).sum(), (0, 1))(h, hw), [(4, 304), (300, 65536)]
    yield lambda: mx.grad(lambda a: nn.losses.cross_entropy(a, mx.argmax(other, axis=1)[:6], reduction="mean"))(x), FEW_ROWS
    # scatters: of rows, of single elements, with repeats, of other kinds
    for dtype in (mx.float32, mx.bfloat16, mx.int8, mx.complex64):
        yield lambda: mx.zeros((6, 40), dtype).at[index].add(mx.ones((4, 40), dtype)), [(1 << 20, 512), (4096, 768)]
        yield lambda: mx.zeros((40,), dtype).at[index].add(mx.ones((4,), dtype)), [10_000_000, 3]
    yield lambda: x.at[index].maximum(2.0), [(4096, 768)]
    yield lambda: put(x, index), [(4096, 768)]
    yield lambda: put(h, (index, index)), [4096]


def nn_norm(x: mx.array) -> mx.array:
    x = x.astype(mx.float32)
    return (x - x.mean(-1, keepdims=True)) * mx.rsqrt(mx.var(x, -1, keepdims=True) + 1e-5)


def put(x: mx.array, at: Any) -> mx.array:
    x = x + 0
    x[at] = 3.0
    return x


def of_laws() -> Iterator[Program]:
    """Each op in the laws, of one dtype, another one from row to row."""
    for number, case in enumerate(CASES):
        shapes = max(case.shapes, key=lambda s: sum(map(len, s)))
        yield functools.partial(call, case, arrays(draw(case, shapes, case.dtypes[number % len(case.dtypes)]))), []


def kernels_of(program: Callable[[], Any]) -> Iterator[tuple[Kernel, tuple[int, ...]]]:
    """What the plans of a program are made of: kernels, and the sizes of their axes."""
    outputs = program()
    before = {id(plan) for plan in plans()}
    mx.eval(outputs)
    for plan in plans():
        if id(plan) in before:
            continue
        for sizes in plan.bindings:
            values = plan.values(*sizes)
            for step, frame in zip(plan.steps, plan.frame.steps, strict=True):
                if step.built is not None:
                    yield step.built.kernel, tuple(values[frame.first : frame.first + frame.count])


def sizes_for(kernel: Kernel, own: tuple[int, ...], wanted: Any) -> tuple[int, ...]:
    """The kernel's own sizes, but for the last axis (`wanted` is a number), or for the last two."""
    sizes = list(own)
    last = (wanted,) if isinstance(wanted, int) else wanted
    for k, size in zip(reversed(range(len(sizes))), reversed(last), strict=False):
        sizes[k] = size
    return tuple(sizes)


_variants: dict[bool, dict[str, dict[int, None]]] = {}


def variants(simulated: Any, arch: int) -> dict[str, dict[int, None]]:
    """For each form of kernel, the numbers of the functions that all programs have in it."""
    if (arch >= 90) not in _variants:
        simulated.forget_plans()
        _variants[arch >= 90] = make_variants(arch)
    return _variants[arch >= 90]


def make_variants(arch: int) -> dict[str, dict[int, None]]:
    found: dict[str, dict[int, None]] = {}
    for program, wanted in [*made(), *of_laws()]:
        for kernel, own in kernels_of(program):
            rendered = render(kernel, arch)
            for slots in [64] if wanted is FEW_ROWS else [64, 7]:  # strides and offsets: packs are aligned, or not
                for sizes in [own, *(sizes_for(kernel, own, x) for x in wanted)]:
                    launch = rendered.bind(sizes, 1, (slots,) * kernel.n_slots)
                    assert all(blocks >= 1 and 32 <= threads <= 1024 for _, blocks, threads in launch.phases)
            for name, numbers in rendered.addresses.items():
                found.setdefault(f"{kernel.form} {name}", {}).update(dict.fromkeys(numbers))
    for dtype in ("float32", "float16", "bfloat16", "float64", "complex64"):
        for form in ("small", "shared", "large") if arch >= 90 else ("small", "large"):
            found.setdefault(f"gemm {form}", {}).update(
                {gemm_function(form, False, dtype, False, False, False): None, gemm_function(form, False, dtype, True, True, True): None}
            )
    found["gemm of many axes"] = {gemm_function("large", True, "bfloat16", False, True, False): None}
    return found


def unit(functions: list[Function]) -> str:
    """One text of many functions, each with the helpers and macros that it brings."""
    symbols = [f.symbol for f in functions]
    assert len(set(symbols)) == len(symbols)
    parts = [PRELUDE]
    for k, function in enumerate(functions):
        parts.append(f"namespace part{k} {{\n{function.text}\n}}")
        parts += [f"#undef {name}" for name in re.findall(r"^#define (\w+)", function.text, re.MULTILINE)]
    return "\n".join(parts)


def one_of_each(found: dict[str, dict[int, None]]) -> list[Function]:
    """The functions of one kernel in each form, and what the GPU needs beside kernels: copies, the write of the table."""
    numbers = []
    for of_form in found.values():
        first = FUNCTIONS[next(iter(of_form))]
        kernel = first.symbol[:13] if isinstance(first.meaning, Kernel) else first.symbol  # what comes of one kernel starts with its name
        numbers += [number for number in of_form if FUNCTIONS[number].symbol.startswith(kernel)]
    others = [f for f in FUNCTIONS if f.meaning is not None and not isinstance(f.meaning, Kernel) and not f.symbol.startswith("gemm")]
    return [FUNCTIONS[number] for number in numbers] + others


def compile_for(arch: int, functions: list[Function]) -> None:
    (code,) = compiler.compile_sources([unit(functions)], arch)
    assert code[:4] == b"\x7fELF"
    assert [f.symbol for f in functions if f.symbol.encode() not in code] == []


def all_functions(simulated: Any, arch: int) -> list[Function]:
    numbers: dict[int, None] = {}
    for of_form in variants(simulated, arch).values():
        numbers |= of_form
    return [FUNCTIONS[number] for number in numbers]


@pytest.mark.parametrize("arch", CHIPS)
def test_kernels_compile(simulated, arch):
    found = one_of_each(variants(simulated, arch))
    replay(simulated)
    mine = [f for f in all_functions(simulated, arch) if CHIPS[zlib.crc32(f.symbol.encode()) % len(CHIPS)] == arch and f not in found]
    compile_for(arch, found + mine)


@pytest.mark.long
@pytest.mark.parametrize("arch", CHIPS)
def test_all_kernels_compile(simulated, arch):
    compile_for(arch, all_functions(simulated, arch))


def replay(simulated: Any) -> None:
    """So that all that a replayed graph needs is made, and what copies."""
    simulated[0].copy_entry()
    for _ in range(4):
        x = mx.ones((5,))
        y = mx.softmax(x) @ mx.ones((5,))
        mx.eval(y)


def test_the_programs_go_into_every_form(simulated):
    found, older = variants(simulated, 90), variants(simulated, 80)
    for form, names in {
        "map": ["lanes 1", "lanes 2", "lanes 4, whole", "lanes 8, aligned", "lanes 8", "lanes 4, aligned, 4 packs", "lanes 8, aligned, 4 packs", "turned", "turned, whole"],
        "row": ["warp 1", "warp 2", "warp 4", "block 128 2", "block 128 4", "block 256 8", "cluster 2", "cluster 4", "cluster 8", "loop", "split", "sides"],
        "column": ["tiles 1", "tiles 2", "tiles 4", "blocks 1", "blocks 4", "blocks 8, aligned"],
        "scatter": ["serial", "sorted 1"],
        "gemm": ["small", "shared", "large"],
    }.items():
        for name in names:
            assert any(v.startswith(f"{form} {name}") for v in found), f"no {form} kernel of the form {name}: {sorted(found)}"
    assert not any("cluster" in v for v in older)
