"""Vector math functions as LLVM IR text: `function("exp", "f32", 16)`.

Each function is written once for both dtypes and any number of lanes, lane-wise and without fast-math flags, so that the
value of a lane does not depend on the width: mathlib_exp.py and mathlib_trig.py hold them, mathlib_int.py integer
division and conversions, mathlib_parts.py what they share, mathlib_emit.py the builder of IR, mathlib_tables.py the
constants. Coefficients are minimax fits of our own (benchmarks/mathlib_fit.py).

Conventions: `ax` is |x|; `t = fma(x, c, MAGIC)` leaves round(x c) in the low bits of t, since MAGIC = 1.5 * 2^mantissa;
a constant written `c[0], c[1], ...` is one real number as a sum of floats of falling size. "Errors" in a function's
comment are the largest found, in ulp, for f32 and f64: against float64 over a fourteenth of all 2^32 floats, and against
64-bit mantissas over some millions of float64 (erf, erfinv: thousands, against mpmath). Which of the many NaNs comes out
is left open.
"""

from __future__ import annotations

from functools import cache

from isthmus.backends.cpu import mathlib_exp, mathlib_trig  # noqa: F401  (they fill FUNCTIONS)
from isthmus.backends.cpu.mathlib_emit import Fn
from isthmus.backends.cpu.mathlib_int import INTEGER_FUNCTIONS, argument_type
from isthmus.backends.cpu.mathlib_parts import FUNCTIONS


@cache
def function(name: str, dtype: str, width: int) -> tuple[str, list[str]]:
    """The symbol of a vector function, and the IR definitions and declarations it takes, each a text of its own.

    Args:
        name: One of `FUNCTIONS`, or an integer helper or conversion of mathlib_int.py.
        dtype: "f32" or "f64"; the element type of integers; the source type of conversions.
        width: Lanes; 1 is the scalar type.
    """
    count, body = FUNCTIONS.get(name) or INTEGER_FUNCTIONS[name]
    fn = Fn(f"im_{name}_{dtype}x{width}", width, [argument_type(dtype)] * count)
    result = body(*fn.args) if name in FUNCTIONS else body(dtype, *fn.args)
    return fn.symbol, [*fn.needs, fn.text(result)]
