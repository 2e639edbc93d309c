"""Evaluation with `kernel.interpret` in place of native kernels: the same plans, bindings, arena and in-place decisions.

What the backend's driver does (docs/design/cpu_abi.md) is done here in Python: the patches, then entry after entry; a
kernel is interpreted on NumPy views of its buffers. Library products and copies are run natively.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from isthmus.backends.cpu import stream
from isthmus.kernel.interpret import interpret
from isthmus.schedule import run as schedule

NATIVE = stream.run


def words(address: int, count: int) -> np.ndarray:
    """`count` int64 at an address."""
    return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(address)) if count else np.zeros(0, np.int64)


def memory(address: int, count: int, dtype: Any) -> np.ndarray:
    raw = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(raw, dtype)


class Interpreter:
    """Takes the place of `stream.run`; `launches` counts what was interpreted."""

    def __init__(self) -> None:
        self.launches = 0
        self.known: dict[int, tuple[Any, Any, Any]] = {}  # address of a block -> plan, binding, sizes

    def found(self, block_address: int) -> tuple[Any, Any, Any]:
        if block_address not in self.known:
            self.known = {b.block_address: (plan, b, sizes) for plan in schedule.plans() for sizes, b in plan.bindings.items()}
        return self.known[block_address]

    def __call__(self, block_address: int, table_address: int, patches_address: int, n_patches: int, program_address: int, n_entries: int) -> None:
        plan, binding, sizes = self.found(block_address)
        names = dict(zip(plan.size_names, sizes, strict=True))
        block, table = words(block_address, len(binding.block)), words(table_address, len(plan.table))
        for slot, index, offset in words(patches_address, 3 * n_patches).reshape(-1, 3):
            block[slot] = table[index] + offset
        program = words(program_address, 4 * n_entries).reshape(-1, 4)
        done = 0

        def natively() -> None:
            nonlocal done
            NATIVE(block_address, table_address, patches_address, 0, program_address + 32 * done, 1)
            done += 1

        for step, at in zip(plan.steps, plan.step_at, strict=True):
            if step.copies:
                natively()
            if step.built is None:
                natively()
                continue
            buffers = []
            for k, (p, _) in enumerate(step.built.buffers):
                count = int(eval(p.count().text(), dict(names)))
                buffers.append(memory(int(block[at + k]), count, p.dtype.numpy))
            interpret(step.built.kernel, [int(x) for x in block[at : at + step.built.kernel.n_slots]], buffers)
            self.launches += 1
            while done < n_entries and program[done, 1] == at:
                done += 1
        assert done == n_entries, f"{n_entries} entries, {done} of them accounted for"


@contextmanager
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interpreter]:
    with monkeypatch.context() as patch:
        interpreter = Interpreter()
        patch.setattr(stream, "run", interpreter)
        yield interpreter
