"""Kernel functions by number: programs name them by it, and those that are missing are compiled together.

A number stands for a source text; which device has it loaded, and at which handle, is the driver's to know
(`Driver.functions`). A program's entry is `(number, slot of its parameters, blocks, threads of a block)`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from isthmus.backends.cuda.prelude import PRELUDE


class Function(NamedTuple):
    """A kernel function's symbol and text (without the prelude).

    `meaning` is what the simulated device does when it runs: interpret a `Kernel`, or call a function of its memory and the
    parameters; None for the later launches of a kernel that takes several, which have nothing left to do.
    """

    symbol: str
    text: str
    meaning: Any
    cluster: int = 1  # blocks that work together: grids are multiples of it
    slots: int = 0  # parameters that a launch can bring by itself; 0: it reads them in the plan's table

    @property
    def source(self) -> str:
        return PRELUDE + "\n" + self.text


MOST_VALUES: Final = 500  # 4 kB is what every driver takes


def by_value(n_slots: int) -> int:
    """The parameters that a launch brings of `n_slots`: all, or none."""
    return n_slots if n_slots <= MOST_VALUES else 0


FUNCTIONS: Final[list[Function]] = []
_numbers: Final[dict[tuple[str, str], int]] = {}


def number_of(function: Function) -> int:
    key = (function.symbol, function.text)
    found = _numbers.get(key)
    if found is None:
        found = _numbers[key] = len(FUNCTIONS)
        FUNCTIONS.append(function)
    return found
