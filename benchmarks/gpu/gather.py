"""Rows of a large table: taken, and added to, at random places that repeat.

Bytes count as everywhere: what is taken once in, once out; for the addition table and updates in, table out. "in place"
counts the same bytes, so that its figure is comparable as time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from common import Item, Setup, rate


def items(s: Setup) -> list[Item]:
    rows, width = s.size((2**20, 512), (2**8, 16))
    size = 4e-9 * rows * width
    index_size = 4e-9 * rows
    taken, added = 2 * size + index_size, 3 * size + index_size

    @cache
    def inputs() -> tuple[Any, Any, Any]:
        index = s.torch.randint(0, rows, (rows,), device=s.torch_device)
        return s.draw(rows, width), s.draw(rows, width), index

    @cache
    def mine() -> list[Any]:
        return [s.to_isthmus(x) for x in inputs()]

    @cache
    def theirs() -> list[Any]:
        return [s.to_jax(x) for x in inputs()]

    def torch_take() -> dict[str, Any]:
        x, _u, index = inputs()
        return rate(s.time_torch(lambda: x.index_select(0, index)), taken)

    def jax_take() -> dict[str, Any]:
        x, _u, index = theirs()
        f = s.jax.jit(lambda x, index: s.jax.numpy.take(x, index, axis=0))
        return rate(s.time_jax(lambda: f(x, index)), taken)

    def isthmus_take() -> dict[str, Any]:
        x, _u, index = mine()
        f = lambda: s.mx.take(x, index, axis=0)
        tx, _u, tindex = inputs()
        y = s.to_torch(f())
        assert s.torch.equal(y, tx.index_select(0, tindex)), "wrong result: rows differ"
        return rate(s.time_isthmus(f), taken, error=0.0)

    def torch_add() -> dict[str, Any]:
        x, u, index = inputs()
        return rate(s.time_torch(lambda: x.index_add(0, index, u)), added)

    def torch_add_in_place() -> dict[str, Any]:
        x, u, index = inputs()
        y = x.clone()
        return rate(s.time_torch(lambda: y.index_add_(0, index, u)), added)

    def jax_add() -> dict[str, Any]:
        x, u, index = theirs()
        f = s.jax.jit(lambda x, u, index: x.at[index].add(u))
        return rate(s.time_jax(lambda: f(x, u, index)), added)

    def isthmus_add() -> dict[str, Any]:
        x, u, index = mine()
        f = lambda: x.at[index].add(u)
        tx, tu, tindex = inputs()
        error = s.error(f(), tx.double().index_add_(0, tindex, tu.double()), "float32")
        return rate(s.time_isthmus(f), added, error=error)

    def isthmus_add_in_place() -> dict[str, Any]:
        x, u, index = mine()
        y = x * 1
        s.mx.eval(y)

        def f() -> Any:
            nonlocal y
            y = y.at[index].add(u)
            return y

        return rate(s.time_isthmus(f), added)

    take, add, place = "rows out of 2^20 x 512", "rows added into 2^20 x 512", "the same, x = x.at[i].add(u)"
    return [
        Item(take, "torch", "GB/s", torch_take),
        Item(take, "JAX jit", "GB/s", jax_take),
        Item(take, "isthmus", "GB/s", isthmus_take, 3500),
        Item(add, "torch", "GB/s", torch_add),
        Item(add, "JAX jit", "GB/s", jax_add),
        Item(add, "isthmus", "GB/s", isthmus_add, 2100),
        Item(place, "torch", "GB/s", torch_add_in_place),
        Item(place, "isthmus", "GB/s", isthmus_add_in_place, 2100),
    ]
