"""Fits the polynomials of isthmus/backends/cpu/mathlib_tables.py and prints their coefficients.

    python benchmarks/mathlib_fit.py [--only erf]

Remez exchange on a fine grid with 200-bit numbers (mpmath). Coefficients are rounded from the constant term up, the rest
fitted anew after each, so that a rounded coefficient's error is taken up by those after it. Printed beside each: the
weighted error of the exact fit and of the rounded one, as powers of two. The weight makes it the relative error of the
function that the polynomial serves. The table holds these very numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp
import numpy as np

mp.mp.prec = 200
Real = Callable[[mp.mpf], mp.mpf]


@dataclass
class Fit:
    ty: str
    name: str
    target: Real
    low: float | str
    high: float | str
    degree: int
    weight: Real
    two_part_constant: bool = False  # the constant term as a sum of two floats


def rounded(ty: str, value: mp.mpf) -> mp.mpf:
    return mp.mpf(float(np.float32(float(value)))) if ty == "f32" else mp.mpf(float(value))


def remez(ts: Sequence, values: Sequence, weights: Sequence, powers: Sequence[int]) -> tuple[list, mp.mpf]:
    """Coefficients c with the least maximum of |weight (sum c_p t^p - value)| over the grid, and that maximum."""
    n, count = len(powers), len(ts)
    rows = [[t**p for p in powers] for t in ts]
    points = [round((count - 1) * (0.5 - 0.5 * float(mp.cos(mp.pi * i / n)))) for i in range(n + 1)]
    for _ in range(25):
        a, b = mp.matrix(n + 1, n + 1), mp.matrix(n + 1, 1)
        for r, i in enumerate(points):
            for c in range(n):
                a[r, c] = rows[i][c] * weights[i]
            a[r, n] = (-1) ** r
            b[r] = values[i] * weights[i]
        solution = mp.lu_solve(a, b)
        cs = [solution[c] for c in range(n)]
        errors = [w * (mp.fdot(cs, row) - v) for w, row, v in zip(weights, rows, values)]
        extrema = alternating_extrema(errors, n + 1)
        if len(extrema) < n + 1 or extrema == points:
            break
        points = extrema
    return cs, max(abs(e) for e in errors)


def alternating_extrema(errors: Sequence, wanted: int) -> list[int]:
    """Where the error is largest in each run of one sign, cut down to `wanted` places that still alternate."""
    places, i = [], 0
    while i < len(errors):
        j = i
        while j < len(errors) and (errors[j] >= 0) == (errors[i] >= 0):
            j += 1
        places.append(max(range(i, j), key=lambda k: abs(errors[k])))
        i = j
    while len(places) > wanted:
        size = [abs(errors[p]) for p in places]
        k = min(range(len(places)), key=size.__getitem__)
        if len(places) - wanted == 1:
            places.pop(0 if size[0] < size[-1] else -1)
        elif 0 < k < len(places) - 1:
            for q in sorted([k, k - 1 if size[k - 1] < size[k + 1] else k + 1], reverse=True):
                places.pop(q)
        else:
            places.pop(k)
    return places


def run(fit: Fit) -> None:
    low, high = mp.mpf(fit.low), mp.mpf(fit.high)
    count = max(300, 24 * fit.degree)
    ts = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (i + mp.mpf(1) / 2) / count) for i in range(count)]
    rest, weights = [fit.target(t) for t in ts], [fit.weight(t) for t in ts]
    powers = list(range(fit.degree + 1))
    cs, exact = remez(ts, rest, weights, powers)
    out = []
    if fit.two_part_constant:
        out.append(rounded(fit.ty, cs[0]))
        rest = [r - out[0] for r in rest]
        cs, _ = remez(ts, rest, weights, powers)
    for power in range(fit.degree + 1):
        c = rounded(fit.ty, cs[0])
        out.append(c)
        rest = [r - c * t**power for r, t in zip(rest, ts)]
        powers = powers[1:]
        if powers and (fit.ty == "f32" or power < 4):
            cs, _ = remez(ts, rest, weights, powers)
        else:
            cs = cs[1:]
    final = max(abs(w * r) for w, r in zip(weights, rest))
    print(f"{fit.ty} {fit.name}: 2^{float(mp.log(exact, 2)):.2f}, rounded 2^{float(mp.log(final, 2)):.2f}")
    print("    " + ", ".join(repr(float(c)) for c in out), flush=True)


def both(name: str, target: Real, low, high, degrees: tuple[int, int], weight: Real) -> list[Fit]:
    pair = [(v, v) if not isinstance(v, tuple) else v for v in (low, high)]
    return [Fit(ty, name, target, pair[0][i], pair[1][i], degrees[i], weight) for i, ty in enumerate(("f32", "f64"))]


def odd(name: str, f: Real, high, degrees: tuple[int, int]) -> list[Fit]:
    """f(x) = x + x^3 P(x^2), relative to f."""
    root = mp.sqrt
    return both(
        name, lambda z: (f(root(z)) / root(z) - 1) / z, 0, high, degrees, lambda z: z * root(z) / f(root(z))
    )


def log_series(z: mp.mpf) -> mp.mpf:
    """2 (atanh(s) / s - 1) / s^2 at z = s^2."""
    return 2 * (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def erfinv_of(w: mp.mpf) -> mp.mpf:
    """erfinv(x) / x where w = -log(1 - x^2)."""
    if w < mp.mpf(10) ** -20:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


def erfinv_piece(ty: str, name: str, w: Real, low, high, degree: int) -> Fit:
    f = lambda t: erfinv_of(w(t))
    return Fit(ty, name, f, low, high, degree, lambda t: 1 / f(t), two_part_constant=True)


FITS = [
    # e^r = 1 + r + r^2 P(r), relative to e^r - 1.
    *both("exp", lambda r: (mp.expm1(r) - r) / r**2, "-.3475", ".3475", (4, 10), lambda r: abs(r**2 / mp.expm1(r))),
    # 2^f = 1 + f P(f)
    *both("exp2", lambda f: (mp.mpf(2) ** f - 1) / f, "-.5001", ".5001", (5, 10), lambda f: abs(f) / mp.mpf(2) ** f),
    # log(1 + f) = f - f^2 / 2 + f^3 P(f)
    Fit(
        "f32", "log", lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, "-.2501", ".5001", 7,
        lambda f: abs(f**3 / mp.log1p(f)),
    ),
    # log((1 + s) / (1 - s)) = 2 s + s z P(z), z = s^2, and with a second term split off
    Fit("f64", "atanh_log", log_series, 0, ".04001", 7, lambda z: z),
    Fit("f64", "pow32_log", log_series, 0, ".04001", 4, lambda z: z),
    Fit("f64", "pow_log", lambda z: (log_series(z) - mp.mpf(2) / 3) / z, 0, ".04001", 7, lambda z: z**2),
    Fit("f64", "pow32_exp2", lambda f: (mp.mpf(2) ** f - 1) / f, "-.5", ".5", 6, lambda f: abs(f) / mp.mpf(2) ** f),
    *odd("sin", mp.sin, ".64", (2, 5)),
    # cos r = 1 - z / 2 + z^2 P(z)
    *both(
        "cos", lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, 0, ".64", (2, 5), lambda z: z**2 / mp.cos(mp.sqrt(z))
    ),
    *odd("atan", mp.atan, 1, (8, 19)),
    *odd("asin", mp.asin, ".25", (4, 12)),
    *odd("sinh", mp.sinh, 1, (3, 7)),
    *odd("tanh", mp.tanh, ".390625", (4, 11)),
    *odd("atanh", mp.atanh, ".25", (6, 14)),
    # erf x = x + x P(x^2)
    *both(
        "erf", lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, 0, (".81", 1), (6, 12),
        lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)),
    ),
    # erf x = 1 - exp(-Q(x))
    *both(
        "erf_tail", lambda x: -mp.log(mp.erfc(x)), (".9", 1), ("3.93", "5.93"), (8, 20),
        lambda x: mp.erfc(x) / mp.erf(x),
    ),
    erfinv_piece("f32", "erfinv, w", lambda t: t, 0, "5.01", 10),
    erfinv_piece("f32", "erfinv, sqrt(w) - 3.125", lambda t: (t + mp.mpf("3.125")) ** 2, "-.895", ".955", 10),
    erfinv_piece("f64", "erfinv, w - 3.125", lambda t: t + mp.mpf("3.125"), "-3.125", "3.126", 24),
    erfinv_piece("f64", "erfinv, sqrt(w) - 3.25", lambda t: (t + mp.mpf("3.25")) ** 2, "-.751", ".751", 20),
    erfinv_piece("f64", "erfinv, sqrt(w) - 5", lambda t: (t + 5) ** 2, "-1.001", "1.05", 18),
]  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    for fit in FITS:
        if only in fit.name:
            run(fit)
