"""Where something is read: polynomials of sizes, and index forms made of them.

A plan knows no size, only names: `s3` is the value of a size variable, `d7_0` the first dynamic number of node 7. A
`Poly` is a polynomial of names with integer coefficients: a size, a stride, an offset. A `Form` is one index: an affine
function of the axes of a frame, whose coefficients are polynomials, plus computed parts. An op that reads an input at
another place (a slice, a gather) writes that place as forms; whether something is a plain strided load, and whether two
axes can be walked as one, is then a question of comparing polynomials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus.kernel.scalar import Expr


class Poly:
    """A polynomial: monomials (sorted names) with non-zero integer coefficients, in canonical order."""

    __slots__ = ("terms",)

    def __init__(self, terms: tuple[tuple[tuple[str, ...], int], ...]) -> None:
        self.terms = terms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    def __add__(self, other: Poly) -> Poly:
        if not self.terms:
            return other
        if not other.terms:
            return self
        return _poly([*self.terms, *other.terms])

    def __sub__(self, other: Poly) -> Poly:
        return self + other.times(-1)

    def __mul__(self, other: Poly) -> Poly:
        if self is ONE or self.terms == ONE.terms:
            return other
        if other is ONE or other.terms == ONE.terms:
            return self
        return _poly([(tuple(sorted((*a, *b))), m * n) for a, m in self.terms for b, n in other.terms])

    def times(self, k: int) -> Poly:
        return Poly(tuple((name, c * k) for name, c in self.terms)) if k else ZERO

    @property
    def value(self) -> int | None:
        """The number, where it is one."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def names(self) -> set[str]:
        return {n for monomial, _ in self.terms for n in monomial}

    def text(self) -> str:
        """A Python expression of the names."""
        if not self.terms:
            return "0"
        parts = []
        for monomial, c in self.terms:
            factors = list(monomial)
            if c != 1 or not factors:
                factors.insert(0, str(c) if c >= 0 else f"({c})")
            parts.append("*".join(factors))
        return "+".join(parts)

    def __repr__(self) -> str:
        return self.text()


def _poly(terms: list[tuple[tuple[str, ...], int]]) -> Poly:
    found: dict[tuple[str, ...], int] = {}
    for monomial, c in terms:
        found[monomial] = found.get(monomial, 0) + c
    return Poly(tuple(sorted((m, c) for m, c in found.items() if c)))


def number(k: int) -> Poly:
    return Poly((((), k),)) if k else ZERO


def name(text: str) -> Poly:
    return Poly((((text,), 1),))


ZERO = Poly(())
ONE = Poly((((), 1),))


def product(sizes: tuple[Poly, ...] | list[Poly]) -> Poly:
    total = ONE
    for size in sizes:
        total = total * size
    return total


class Form:
    """An index: `offset + sum(axis * coefficient) + sum(value * coefficient)`.

    `terms` maps frame axes to coefficients, ascending, none of them zero; `values` holds int64 expressions.
    """

    __slots__ = ("offset", "terms", "values")

    def __init__(self, terms: tuple[tuple[int, Poly], ...] = (), offset: Poly = ZERO, values: tuple[tuple[Expr, Poly], ...] = ()) -> None:
        self.terms = terms
        self.offset = offset
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Form) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def key(self) -> tuple[object, ...]:
        return (self.terms, self.offset, tuple((id(v), c) for v, c in self.values))

    def __add__(self, other: Form) -> Form:
        found: dict[int, Poly] = dict(self.terms)
        for axis, c in other.terms:
            found[axis] = found[axis] + c if axis in found else c
        return Form(tuple(sorted((a, c) for a, c in found.items() if c.terms)), self.offset + other.offset, self.values + other.values)

    def scale(self, by: Poly) -> Form:
        if by.terms == ONE.terms:
            return self
        if not by.terms:
            return ORIGIN
        return Form(tuple((a, c * by) for a, c in self.terms), self.offset * by, tuple((v, c * by) for v, c in self.values))

    def shift(self, by: Poly) -> Form:
        return Form(self.terms, self.offset + by, self.values)

    def __repr__(self) -> str:
        parts = [f"a{a}*({c})" for a, c in self.terms] + [f"v*({c})" for _, c in self.values]
        return " + ".join([*parts, repr(self.offset)])


ORIGIN = Form()


def axis_form(axis: int) -> Form:
    return Form(((axis, ONE),))


def value_form(value: Expr) -> Form:
    return Form((), ZERO, ((value, ONE),))


def merged_form(axes: tuple[int, ...], sizes: tuple[Poly, ...]) -> Form:
    """The index of several frame axes walked as one, the last fastest; `sizes` are theirs."""
    total = ORIGIN
    stride = ONE
    for axis, size in zip(reversed(axes), reversed(sizes), strict=True):
        total = total + Form(((axis, stride),))
        stride = stride * size
    return total
