"""`vjp`, `grad` and `value_and_grad`: cotangents carried backwards through the graph.

The walk goes through the nodes that depend on the traced inputs, last first, and asks each op for the cotangents of its
inputs. The nodes that its rule makes count as made on the line of the forward op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from isthmus.graph.array import array, cast_node, wrap
from isthmus.graph.array import node_of as node
from isthmus.graph.node import TRACE, Node
from isthmus.graph.tree import array_leaf, map_leaves, rebuild
from isthmus.ops.create import const_node, zeros_node
from isthmus.transforms.remember import FORMS, LONGEST, MOST, form_of, written_down
from isthmus.transforms.trace import Dependents, Sources, arrays_of, checked_callable, flat_outputs, order, tracing


def backward(outputs: Sequence[Node], cotangents: Sequence[array], sources: Sequence[Node]) -> list[array | None]:
    """The cotangents of `sources` from those of `outputs`; None where nothing reaches one."""
    found = order(outputs, sources)
    if len(found.nodes) > LONGEST:
        return by_rules(found, cotangents, len(sources))
    graph, form = form_of(found, len(sources), [node(ct) for ct in cotangents])
    known = FORMS.passes.get(form)
    if known is not None:
        return known.again(graph)
    results = by_rules(found, cotangents, len(sources))
    if form in FORMS.never:
        return results
    if form in FORMS.passes:
        pass_ = FORMS.passes[form] = written_down(graph, results)
        if pass_ is None:
            FORMS.never.add(form)
    else:
        if len(FORMS.passes) >= MOST:
            FORMS.passes.clear()
            FORMS.never.clear()
        FORMS.passes[form] = None
    return results


def by_rules(found: Dependents, cotangents: Sequence[array], first: int) -> list[array | None]:
    """The cotangents of the first nodes, by the rules of the ops."""
    nodes, inputs = found.nodes, found.inputs
    cts: list[Any] = [None] * len(nodes)
    for at, seed in zip(found.outputs, cotangents, strict=True):
        if at >= 0:
            cts[at] = seed if cts[at] is None else cts[at] + seed
    one = [True]
    try:
        for k in range(len(nodes) - 1, first - 1, -1):
            ct: Any = cts[k]
            if ct is None:
                continue
            cts[k] = None
            y = nodes[k]
            above = inputs[k - first]
            TRACE.code = y.code
            TRACE.lasti = y.lasti
            if len(above) == 1:
                (given,) = y.sig.op.vjp(y, array(y), ct, one)
                if given is not None:
                    at = above[0]
                    old = cts[at]
                    cts[at] = given if old is None else old + given
                continue
            for at, given in zip(above, y.sig.op.vjp(y, array(y), ct, [a >= 0 for a in above]), strict=True):
                if given is not None and at >= 0:
                    old = cts[at]
                    cts[at] = given if old is None else old + given
    finally:
        TRACE.code = None
    return cts[:first]


def _one(y: Node) -> Node:
    dtype = y.sig.dtype
    return const_node(1.0 if dtype.rank == 2 else 1, dtype, y.sig.stream)


def _or_zeros(ct: array | None, primal: Node) -> array:
    if ct is None:
        return wrap(zeros_node(primal.shape, primal.sig.dtype, primal.sig.stream))
    return ct


def vjp(fun: Callable[..., Any], primals: Sequence[array], cotangents: Sequence[array]) -> tuple[list[array], list[array]]:
    """The product of cotangents with the Jacobian of a function.

    Args:
        fun: Takes the primals as separate arguments; returns an array or a list of arrays.
        primals: Where the Jacobian is taken.
        cotangents: One for each output of `fun`, of its shape.

    Returns:
        The outputs of `fun`, and a cotangent for each primal (zeros where nothing depends on it).

    Raises:
        TypeError: `primals` or `cotangents` are not lists of arrays, or `fun` returned something else.
        ValueError: Number or shapes of `cotangents` differ from those of the outputs.

    Example:
        >>> mx.vjp(mx.square, [mx.array(3.0)], [mx.array(1.0)])
        ([array(9, dtype=float32)], [array(6, dtype=float32)])
    """
    checked_callable("vjp", fun)
    xs, cts = arrays_of("vjp", "primals", primals), arrays_of("vjp", "cotangents", cotangents)
    sources = Sources()
    with tracing:
        try:
            outputs = flat_outputs("vjp", fun(*[sources.add(x) for x in xs]))
            nodes = [node(y) for y in outputs]
        finally:
            sources.restore()
        if len(cts) != len(nodes):
            raise ValueError(f"[vjp] Number of outputs to compute gradients for ({len(nodes)}) does not match number of cotangents ({len(cts)}).")
        for y, ct in zip(nodes, cts, strict=True):
            if y.shape != ct.shape:
                raise ValueError(f"[vjp] Output shape {y.shape} does not match cotangent shape {ct.shape}.")
        brought = [wrap(cast_node(node(ct), y.sig.dtype, y.sig.stream)) for y, ct in zip(nodes, cts, strict=True)]
        found = backward(nodes, brought, sources.nodes)
    return outputs, [_or_zeros(ct, x) for ct, x in zip(found, sources.primals, strict=True)]


def _positions(name: str, argnums: Any, argnames: Any) -> tuple[tuple[int, ...], list[str], bool]:
    """The arguments to differentiate, checked, and whether `argnums` names just one."""
    names = [argnames] if isinstance(argnames, str) else list(dict.fromkeys(argnames))
    if not all(isinstance(n, str) for n in names):
        raise TypeError(f"{name}(): incompatible function arguments: argnames must be strings; got {argnames!r}.")
    if argnums is None:
        if names:
            return (), names, False
        argnums = 0
    single = isinstance(argnums, int)
    numbers = (argnums,) if single else tuple(argnums)
    for k in numbers:
        if not isinstance(k, int):
            raise TypeError(f"{name}(): incompatible function arguments: argnums must be integers; got {argnums!r}.")
        if k < 0:
            raise ValueError(f"[grad] Can't compute the gradient of negative argument index {k}; count from the front.")
    for k in numbers:
        if numbers.count(k) > 1:
            raise ValueError(f"[grad] Duplicate argument index {k} is not allowed.")
    if not numbers and not names:
        raise ValueError("[grad] Gradient wrt no argument requested: argnums is empty and there are no argnames.")
    return tuple(sorted(numbers)), names, single or len(numbers) == 1  # in the order of the arguments, as MLX


def _wrong_value(name: str, value: Any) -> ValueError:
    start = f"[{name}] The return value of the function whose gradient we want to compute should be "
    if name == "grad":
        return ValueError(f"{start}a scalar array; but {type(value).__name__} was returned.")
    if isinstance(value, tuple) and not value:
        return ValueError(
            f"{start}either a scalar array or a non-empty tuple, its first value a scalar array and the rest anything; but an empty tuple was returned."
        )
    return ValueError(
        f"{start}either a scalar array or a tuple with the first value being a scalar array (Union[array, tuple[array, Any, ...]]); but {type(value).__name__} was returned."
    )


def _value_and_grad(name: str, fun: Callable[..., Any], argnums: Any, argnames: Any) -> Callable[..., tuple[Any, Any]]:
    checked_callable(name, fun)
    numbers, names, single = _positions(name, argnums, argnames)

    def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        for k in numbers:
            if k >= len(args):
                raise ValueError(
                    f"[grad] Can't compute the gradient of argument index {k} because the function is called with only {len(args)} positional arguments."
                )
        for n in names:
            if n not in kwargs:
                raise ValueError(
                    f"[grad] Can't compute the gradient of keyword argument '{n}' because the function is called with the following keyword arguments {{{', '.join(kwargs)}}}."
                )
        sources = Sources()
        source: Callable[[Any], array] = lambda x: sources.add(array_leaf(x, "an argument to differentiate"))
        traced = list(args)
        with tracing:
            try:
                for k in numbers:
                    traced[k] = map_leaves(source, args[k])
                traced_kwargs = {**kwargs, **{n: map_leaves(source, kwargs[n]) for n in names}} if names else kwargs
                value = fun(*traced, **traced_kwargs)
                loss = value[0] if name != "grad" and isinstance(value, tuple) and value else value
                if not isinstance(loss, array):
                    raise _wrong_value(name, value)
                y = node(loss)
            finally:
                sources.restore()
            if y.shape:
                raise ValueError(
                    f"[vjp] Output shape {y.shape} does not match cotangent shape (). If you are using grad your function must return a scalar; take a sum or mean, or use mx.vjp."
                )
            found = backward([y], [wrap(_one(y))], sources.nodes)
        each = iter([_or_zeros(ct, x) for ct, x in zip(found, sources.primals, strict=True)])
        positional = tuple([rebuild(args[k], each) for k in numbers])
        gradients: Any = positional[0] if single else positional
        if names:
            gradients = (gradients if numbers else None, {n: rebuild(kwargs[n], each) for n in names})
        return value, gradients

    return call


def value_and_grad(fun: Callable[..., Any], argnums: int | Sequence[int] | None = None, argnames: str | Sequence[str] = ()) -> Callable[..., tuple[Any, Any]]:
    """A function that computes the value and the gradient of `fun`.

    Args:
        fun: Takes arrays or trees of arrays and returns a scalar array, or a tuple that begins with one; the rest of
            the tuple can be anything.
        argnums: Which positional arguments to differentiate; the first, if neither this nor `argnames` is given.
        argnames: Which keyword arguments to differentiate.

    Returns:
        A function of the same arguments. Its result is `(value, gradients)`: a tree as the argument is, a tuple of them
        for several `argnums`; with `argnames`, a pair of that (or None) and a dict by name.

    Raises:
        ValueError: (when called) an argument to differentiate holds something that is not an array or is not there,
            or the value is no scalar array.

    Example:
        >>> mx.value_and_grad(lambda w, x: (w * x).sum())(mx.array([1.0, 2.0]), mx.array([3.0, 4.0]))
        (array(11, dtype=float32), array([3, 4], dtype=float32))
    """
    return functools.wraps(fun, updated=())(_value_and_grad("value_and_grad", fun, argnums, argnames))


def grad(fun: Callable[..., Any], argnums: int | Sequence[int] | None = None, argnames: str | Sequence[str] = ()) -> Callable[..., Any]:
    """A function that computes the gradient of `fun`.

    Args:
        fun: Takes arrays or trees of arrays and returns a scalar array.
        argnums: Which positional arguments to differentiate; the first, if neither this nor `argnames` is given.
        argnames: Which keyword arguments to differentiate.

    Returns:
        A function of the same arguments whose result is the gradients, as for `value_and_grad`.

    Raises:
        ValueError: As for `value_and_grad`.

    Example:
        >>> mx.grad(lambda x: x * x)(mx.array(3.0))
        array(6, dtype=float32)
    """
    both = _value_and_grad("grad", fun, argnums, argnames)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return functools.wraps(fun, updated=())(gradient)
