"""`einsum`: sums of products named by letters, as a chain of matrix products in the order that opt_einsum finds.

Each pair is one product: letters of both that are kept are its batch, letters of both that are not are summed over, the
others are its rows and columns. A pair without a letter to sum over is multiplied element by element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import opt_einsum

from isthmus.graph.array import array, broadcast_node, cast_node, show_shape, wrap
from isthmus.graph.device import Stream
from isthmus.graph.node import Node
from isthmus.ops.arguments import StreamOrDevice, stream_of
from isthmus.ops.contract import inexact, product_node, swapped
from isthmus.ops.elementwise import multiply
from isthmus.ops.move import reshape_node, slice_node, transpose_node
from isthmus.ops.reduce import sum as sum_

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _parse(op: str, subscripts: Any, operands: Sequence[array]) -> tuple[list[str], str, dict[str, int]]:
    """The letters of each operand and of the output, an ellipsis written as further characters, and the size of each."""
    if not isinstance(subscripts, str):
        raise TypeError(f"{op}(): incompatible function arguments: subscripts must be a string; got {type(subscripts).__name__}.")
    for x in operands:
        if not isinstance(x, array):
            raise TypeError(f"{op}(): incompatible function arguments: operands must be arrays; got a {type(x).__name__}.")
    if not operands:
        raise ValueError("[einsum] At least one operand is required.")
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"[einsum] Number of operands, {len(operands)}, does not match number of input subscripts, {len(terms)}: {subscripts!r}.")
    for term in [*terms, right]:
        plain = term.replace("...", "", 1)
        for c in plain:
            if c not in _LETTERS:
                raise ValueError(f"[einsum] Subscripts must be letters, but got '{c}' in {subscripts!r}.")
    spread = 0
    for k, (term, x) in enumerate(zip(terms, operands, strict=True)):
        named = len(term.replace("...", ""))
        if "..." in term:
            if named > len(x.shape):
                raise ValueError(
                    f"[einsum] Operand {k} with shape {show_shape(x.shape)} has insufficient dimensions for subscript '{term}': it names {named} besides the ellipsis."
                )
            spread = max(spread, len(x.shape) - named)
        elif named != len(x.shape):
            raise ValueError(f"[einsum] Invalid number of subscripts {named} for input {k} with {len(x.shape)} dimensions: '{term}'.")
    dots = "".join(chr(0x3B1 + k) for k in range(spread))  # further letters, for the axes of the ellipsis
    found = [t.replace("...", dots[len(dots) - (len(x.shape) - len(t.replace("...", ""))) :]) for t, x in zip(terms, operands, strict=True)]
    if arrow:
        if "..." in right or not dots:
            output = right.replace("...", dots)
        else:
            raise ValueError(f"[einsum] the output '{right}' lacks the ellipsis of the inputs; write '...{right}', or sum over it afterwards.")
    else:
        joined = "".join(terms).replace("...", "")
        output = dots + "".join(sorted(c for c in set(joined) if joined.count(c) == 1))
    if len(set(output)) != len(output):
        raise ValueError(f"[einsum] Repeat indices not allowed in output: '{right}'.")
    sizes: dict[str, int] = {}
    for k, (term, x) in enumerate(zip(found, operands, strict=True)):
        for axis, (c, n) in enumerate(zip(term, x.shape, strict=True)):
            m = sizes.get(c, 1)
            if m != n and m != 1 and n != 1:
                raise ValueError(f"[einsum] Cannot broadcast dimension {axis} of input {k} with shape {show_shape(x.shape)} to size {m}.")
            sizes[c] = n if m == 1 else m
    for c in output:
        if c not in sizes:
            raise ValueError(f"[einsum] the output letter '{c}' is in no input: {subscripts!r}.")
    return found, output, sizes


def _path(terms: list[str], output: str, sizes: dict[str, int]) -> tuple[list[tuple[int, ...]], Any]:
    """The order of products, with the sizes as they are after broadcasting."""
    equation = ",".join(terms) + "->" + output
    shapes = [tuple(sizes[c] for c in term) for term in terms]
    path, info = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="optimal" if len(terms) <= 4 else "greedy")
    return [tuple(p) for p in path], info


def _simplified(x: Node, term: str, kept: set[str], sizes: dict[str, int], s: Stream) -> tuple[Node, str]:
    """Repeated letters as their diagonal, and letters that nobody else has summed over."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            n = sizes[c]
            x = broadcast_node(x, tuple(n if k in (i, j) else m for k, m in enumerate(x.shape)), s)
            rest = [k for k in range(len(term)) if k not in (i, j)]
            x = transpose_node(x, (*rest, i, j), s)
            shape = x.shape[:-2]
            x = reshape_node(x, (*shape, n * n), s)
            x = slice_node(x, (*[0] * len(shape), 3), (0, n + 1), (*shape, n), s)
            term = "".join(term[k] for k in rest) + c
    alone = [k for k, c in enumerate(term) if c not in kept]
    if alone:
        x = broadcast_node(x, tuple(sizes[c] if k in alone else n for k, (c, n) in enumerate(zip(term, x.shape, strict=True))), s)
        x = sum_(wrap(x), alone, stream=s)._node
        term = "".join(c for k, c in enumerate(term) if k not in alone)
    return x, term


def _arranged(x: Node, term: str, order: str, sizes: dict[str, int], whole: set[str], s: Stream) -> Node:
    """`x` with its axes in an order; those in `whole` at their full size."""
    x = broadcast_node(x, tuple(sizes[c] if c in whole else n for c, n in zip(term, x.shape, strict=True)), s)
    return transpose_node(x, tuple(term.index(c) for c in order), s)


def _pair(a: tuple[Node, str], b: tuple[Node, str], kept: set[str], sizes: dict[str, int], s: Stream) -> tuple[Node, str]:
    """The product of two operands, summed over the letters that only they have."""
    (x, p), (y, q) = _simplified(*a, kept | set(b[1]), sizes, s), _simplified(*b, kept | set(a[1]), sizes, s)
    summed = [c for c in p if c in q and c not in kept]
    if not summed:
        order = p + "".join(c for c in q if c not in p)
        left = reshape_node(x, (*x.shape, *[1] * (len(order) - len(p))), s)
        shape = tuple(y.shape[q.index(c)] if c in q else 1 for c in order)
        right = reshape_node(transpose_node(y, tuple(q.index(c) for c in order if c in q), s), shape, s)
        return multiply(wrap(left), wrap(right), stream=s)._node, order
    dtype = inexact("einsum", (x.sig.dtype, y.sig.dtype))
    x, y = cast_node(x, dtype, s), cast_node(y, dtype, s)
    batch = [c for c in p if c in q and c in kept]
    rows, columns = [c for c in p if c not in q], [c for c in q if c not in p]
    whole = {*batch, *summed}

    def matrix(z: Node, term: str, outer: list[str], inner: list[str]) -> Node:
        """(batch, outer, inner) of `z`: as a transposed view where that is how it lies."""

        def flat(first: list[str], second: list[str]) -> Node:
            arranged = _arranged(z, term, "".join([*batch, *first, *second]), sizes, whole, s)
            sides = [math.prod(sizes[c] for c in side) for side in (first, second)]
            return reshape_node(arranged, (*(sizes[c] for c in batch), *sides), s)

        if term == "".join([*batch, *inner, *outer]) and term != "".join([*batch, *outer, *inner]):
            return swapped(flat(inner, outer))
        return flat(outer, inner)

    product = product_node(matrix(x, p, rows, summed), matrix(y, q, summed, columns), s)
    order = "".join([*batch, *rows, *columns])
    return reshape_node(product, tuple(sizes[c] for c in order), s), order


def einsum(subscripts: str, *operands: array, stream: StreamOrDevice = None) -> array:
    """Sums of products, by Einstein's notation.

    Args:
        subscripts: A letter an axis: those of the operands, joined by commas, then `->` and those of the result. Letters
            left out of the result are summed over. Without `->` the result has the letters that come once, in
            alphabetical order. `...` stands for further axes, which broadcast.
        operands: The arrays.

    Raises:
        ValueError: `subscripts` does not fit the operands, or integers would be multiplied as matrices.

    Example:
        >>> mx.einsum("ij,j->i", mx.array([[1.0, 2.0], [3.0, 4.0]]), mx.array([1.0, 1.0]))
        array([3, 7], dtype=float32)
    """
    s = stream_of(stream)
    terms, output, sizes = _parse("einsum", subscripts, operands)
    left = [(x._node, term) for x, term in zip(operands, terms, strict=True)]
    path = _path(terms, output, sizes)[0] if len(left) > 2 else [tuple(range(len(left)))] * (len(left) > 1)
    for numbers in path:
        if len(numbers) == 1:
            continue
        chosen = [left[k] for k in numbers]
        left = [x for k, x in enumerate(left) if k not in numbers]
        while len(chosen) > 1:
            b, a = chosen.pop(), chosen.pop()
            kept = set(output).union(*(term for _, term in (*left, *chosen)))
            chosen.append(_pair(a, b, kept, sizes, s))
        left.append(chosen[0])
    x, term = _simplified(*left[0], set(output), sizes, s)
    return wrap(_arranged(x, term, output, sizes, set(output), s))


def einsum_path(subscripts: str, *operands: array) -> tuple[list[tuple[int, ...]], str]:
    """The order in which `einsum` takes its products, and a text about it.

    Args:
        subscripts: As for `einsum`.
        operands: The arrays.

    Returns:
        Pairs of positions in the list of what is left, as NumPy's; and the costs as text.

    Example:
        >>> mx.einsum_path("ij,jk->ik", mx.ones((2, 3)), mx.ones((3, 4)))[0]
        [(0, 1)]
    """
    terms, output, sizes = _parse("einsum_path", subscripts, operands)
    path, info = _path(terms, output, sizes)
    return path, str(info)
