"""The families of op records: what each asks for, and the rules it gives.

A record states an op once. The rules it carries are what the transforms and the schedule ask of any op:

- `lower(ctx, node, place)`: the scalar expression of the output at `place`, one index form per output axis
  (kernel/place.py). It reads inputs with `ctx.read(node, k, place)`, sizes with `ctx.size(poly)`, dynamic integers with
  `ctx.dyn(node, k)`, dynamic numbers with `ctx.number(node, k, dtype)`, an index as a value with `ctx.index(form)`.
- `vjp(node, y, ct, wanted)`: cotangents of the array inputs (None where not wanted), as array code.
- `jvp(node, y, tangents)`: the tangent of the output; a tangent is None where an input does not vary.
- `vmap(node, args, batched)`: the output for inputs that carry a batch axis in front where `batched` says so; the
  output carries it in front.

Derivatives are written as for real numbers; the family conjugates where numbers are complex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from isthmus.graph.array import (
    ElementwiseOp,
    apply,
    array,
    broadcast_node,
    cast_node,
    elementwise_node,
    typed_node,
    wrap,
)
from isthmus.graph.dtype import ALL, Dtype, bool_, float32
from isthmus.graph.handle import mypyc_attr
from isthmus.graph.node import LIBRARY, MAP, REDUCE, UPDATE, VIEW, Node, Op, make
from isthmus.kernel.place import Form
from isthmus.kernel.scalar import Expr

Place = tuple[Form, ...]
Demand = tuple[list[tuple[int, int]], list[int]]
Cotangents = Sequence[Any]


# --- dtype rules of element-wise ops: common dtype of the arguments -> (dtype computed in, dtype of the result) ---

DtypeRule = Callable[[Dtype], tuple[Dtype, Dtype] | None]


def same(d: Dtype) -> tuple[Dtype, Dtype] | None:
    """Any dtype, kept."""
    return d, d


def numeric(d: Dtype) -> tuple[Dtype, Dtype] | None:
    """Any but bool, kept."""
    return None if d is bool_ else (d, d)


def floating(d: Dtype) -> tuple[Dtype, Dtype] | None:
    """Floating and complex kept; the rest as float32."""
    return (d, d) if d.rank >= 2 else (float32, float32)


def real_floating(d: Dtype) -> tuple[Dtype, Dtype] | None:
    """As `floating`, without complex."""
    return None if d.rank == 3 else floating(d)


def integral(d: Dtype) -> tuple[Dtype, Dtype] | None:
    """Integers and bool."""
    return (d, d) if d.rank < 2 else None


def comparison(d: Dtype) -> tuple[Dtype, Dtype] | None:
    """Any dtype, compared: bool."""
    return d, bool_


def logical(d: Dtype) -> tuple[Dtype, Dtype] | None:
    """Anything, taken as bool."""
    return bool_, bool_


@mypyc_attr(allow_interpreted_subclasses=True)
class Elementwise(ElementwiseOp):
    """Acts on each place alone.

    Args:
        name: As users know it.
        arity: How many arguments.
        dtype: A dtype rule above.
        scalar: The value from the arguments' values, of kernel.scalar; they have the compute dtype.
        partials: For each argument, its derivative `(y, *args) -> array or number`; None where it is zero everywhere.
            All None: not differentiable, the gradient is zero.
        refuse: What to say of a dtype the rule refuses, `{dtype}` in it.
        error: The exception's type then.
    """

    def __init__(
        self,
        name: str,
        arity: int,
        dtype: DtypeRule,
        scalar: Callable[..., Expr],
        partials: Sequence[Callable[..., Any] | None] | None = None,
        refuse: str = "not supported for {dtype}.",
        error: type[Exception] = ValueError,
    ) -> None:
        rules = [dtype(d) for d in ALL]
        ElementwiseOp.__init__(self, name, arity, [r and r[0] for r in rules], [r and r[1] for r in rules], refuse, error)
        self.scalar = scalar
        self.partials: Sequence[Callable[..., Any] | None] = partials if partials is not None else [None] * arity

    def arguments(self, node: Node, inputs: Sequence[Any]) -> list[Any]:
        """The arguments as the user gave them: `inputs` and the node's numbers, in order."""
        pattern, arrays, numbers = node.sig.attrs[0], iter(inputs), iter(node.dyn)
        return [next(numbers) if pattern >> k & 1 else next(arrays) for k in range(self.arity)]

    def input_positions(self, node: Node) -> list[int]:
        pattern = node.sig.attrs[0]
        return [k for k in range(self.arity) if not pattern >> k & 1]

    def argument_dtypes(self, compute: Dtype) -> list[Dtype]:
        return [compute] * self.arity

    def demands(self, node: Any) -> list[Demand]:
        return [([(k, a)], [a]) for k, x in enumerate(node.inputs) if x.rank for a in range(x.rank)]

    def lower(self, ctx: Any, node: Any, place: Place) -> Expr:
        pattern, compute = node.attrs
        dtypes = self.argument_dtypes(compute)
        args, arrays, numbers = [], 0, 0
        for k in range(self.arity):
            if pattern >> k & 1:
                args.append(ctx.number(node, numbers, dtypes[k]))
                numbers += 1
            else:
                args.append(ctx.read(node, arrays, place if node.inputs[arrays].rank else ()))
                arrays += 1
        return self.scalar(*args)

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Cotangents:
        inputs = node.inputs
        args: list[Any] = [array(i) for i in inputs]
        positions: Sequence[int] = range(self.arity)
        if node.sig.attrs[0]:
            args, positions = self.arguments(node, args), self.input_positions(node)
        out: list[array | None] = []
        for k, want, x in zip(positions, wanted, inputs, strict=True):
            partial = self.partials[k]
            if not want or partial is None:
                out.append(None)
                continue
            out.append(_fit(_times(ct, _conjugate(partial(y, *args))), x))
        return out

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        args = self.arguments(node, [wrap(i) for i in node.inputs])
        total: Any = None
        for k, t in zip(self.input_positions(node), tangents, strict=True):
            partial = self.partials[k]
            if t is None or partial is None:
                continue
            term = _times(t, partial(y, *args))
            total = term if total is None else total + term
        if total is None:
            return None
        if total.dtype is not y.dtype:
            total = wrap(cast_node(total._node, y.dtype, node.sig.stream))
        if total.shape != y.shape:
            total = wrap(broadcast_node(total._node, y.shape, node.sig.stream))
        return total

    def vmap(self, node: Node, args: Sequence[array], batched: Sequence[bool]) -> Any:
        rank = len(node.shape)
        aligned = [_align(a, rank) if b else a for a, b in zip(args, batched, strict=True)]
        compute = node.sig.attrs[1]
        return wrap(typed_node(self, tuple(self.arguments(node, aligned)), self.argument_dtypes(compute), compute, node.sig.stream))


def _align(a: array, rank: int) -> array:
    """A batched array with axes of size 1 after the batch axis, so that it has `rank` axes beside it."""
    missing = rank + 1 - len(a.shape)
    if missing <= 0:
        return a
    from isthmus.ops.move import reshape_node

    return wrap(reshape_node(a._node, (a.shape[0], *([1] * missing), *a.shape[1:]), a._node.sig.stream))


def _conjugate(p: Any) -> Any:
    if isinstance(p, array):
        if p._node.sig.dtype.rank != 3:
            return p
        from isthmus.ops.elementwise import conjugate

        return conjugate(p)
    return p.conjugate() if isinstance(p, complex) else p


def _times(ct: array, p: Any) -> Any:
    """`ct * p` without a node for the commonest constants."""
    if type(p) in (int, float):
        if p == 1:
            return ct
        if p == -1:
            return -ct
    return ct * p


def _fit(ct: array, x: Node) -> array:
    """A cotangent in the dtype and shape of the input it belongs to."""
    given = ct._node
    if given.shape == x.shape and given.sig.dtype is x.sig.dtype:
        return ct
    from isthmus.ops.elementwise import real
    from isthmus.ops.reduce import sum as sum_

    if ct.shape != x.shape and not x.shape:
        ct = sum_(ct)
    if ct.dtype.rank == 3 and x.sig.dtype.rank < 3:
        ct = real(ct)
    return ct if ct.dtype is x.sig.dtype else wrap(cast_node(ct._node, x.sig.dtype, x.sig.stream))


@mypyc_attr(allow_interpreted_subclasses=True)
class Linear(Op):
    """Linear in its one array input: a view or a move of elements, its tangent is itself.

    Args:
        name: As users know it.
        kind: VIEW if it is pure index arithmetic on one input.
        read: Where input 0 is read for an output place: `(ctx, node, place) -> place`.
        transpose: `(node, ct) -> ct` of the input.
        batch: `(node, n) -> (attrs, dyn, shape)` with a batch axis of size `n` in front of the input and output.
        axes: For views that only rename, merge, split or repeat axes: `(node) -> [(input axes, output axes)]`, each
            pair of equal product; the fuser follows those. None for others.
        numpy: The same view of a NumPy array: `(node, a) -> a`; how a buffer is shared.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[Any, Any, Place], Place],
        transpose: Callable[[Node, array], array],
        batch: Callable[[Node, int], tuple[tuple[Any, ...], tuple[Any, ...], tuple[int, ...]]],
        axes: Callable[[Any], list[tuple[tuple[int, ...], tuple[int, ...]]]] | None = None,
        numpy: Callable[[Node, Any], Any] | None = None,
        new_sizes: bool = False,
    ) -> None:
        Op.__init__(self, name, VIEW, new_sizes)
        self.read_at = read
        self.transpose = transpose
        self.batch = batch
        self.axes = axes
        self.numpy = numpy

    def demands(self, node: Any) -> list[Demand]:
        if self.axes is None:
            return [([(0, a)], [a]) for a, code in enumerate(node.attrs[0]) if code == 0]
        return [([(0, a) for a in ins], list(outs)) for ins, outs in self.axes(node) if ins and outs]

    def lower(self, ctx: Any, node: Any, place: Place) -> Expr:
        return ctx.read(node, 0, self.read_at(ctx, node, place))

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Cotangents:
        return [self.transpose(node, ct)]

    def again(self, node: Node, x: array) -> array:
        """The same op on another input of the same shape."""
        return wrap(make(self, (x._node,), node.shape, x.dtype, node.sig.stream, node.sig.attrs, node.dyn))

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        return None if tangents[0] is None else self.again(node, tangents[0])

    def vmap(self, node: Node, args: Sequence[array], batched: Sequence[bool]) -> Any:
        attrs, dyn, shape = self.batch(node, args[0].shape[0])
        return wrap(make(self, (args[0]._node,), shape, args[0].dtype, node.sig.stream, attrs, dyn))


class Move(Op):
    """Reads inputs at computed places (pad, concatenate, take, iota, random bits): every rule is written in the record.

    Args:
        lower: `(ctx, node, place) -> Expr`.
        vjp, jvp, vmap: As in the module's text; None where there is no derivative (the gradient is zero).
        demands: As `Op.demands`.
        aligned: `(node, k) -> output axis of each axis of input k`, for inputs read at the output's own place; None
            for inputs read elsewhere.
        weight: About how many element-wise ops one value costs.
    """

    def __init__(
        self,
        name: str,
        lower: Callable[..., Expr],
        vjp: Any,
        jvp: Any,
        vmap: Any,
        new_sizes: bool = False,
        demands: Callable[[Any], list[Demand]] | None = None,
        aligned: Callable[[Any, int], tuple[int, ...] | None] | None = None,
        weight: int = 1,
    ) -> None:
        Op.__init__(self, name, MAP, new_sizes)
        self.lower_at = lower
        self.rules = (vjp, jvp, vmap)
        self.demanded = demands
        self.aligned = aligned
        self.weight = weight

    def demands(self, node: Any) -> list[Demand]:
        return [] if self.demanded is None else self.demanded(node)

    def lower(self, ctx: Any, node: Any, place: Place) -> Expr:
        return self.lower_at(ctx, node, place)

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Cotangents:
        return self.rules[0](node, y, ct, wanted) if self.rules[0] is not None else [None] * len(node.inputs)

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        return self.rules[1](node, y, tangents) if self.rules[1] is not None else None

    def vmap(self, node: Node, args: Sequence[array], batched: Sequence[bool]) -> Any:
        return self.rules[2](node, args, batched)


class Reduction(Op):
    """Folds axes away: node attrs are `(axes,)`, ascending; the output has the remaining axes.

    Args:
        fold: The kernel's kind of reduction (kernel.loops.Reduce).
        vjp, jvp: As in the module's text, or None (zero).
    """

    def __init__(self, name: str, fold: str, vjp: Any = None, jvp: Any = None) -> None:
        Op.__init__(self, name, REDUCE)
        self.fold = fold
        self.rules = (vjp, jvp)

    def demands(self, node: Any) -> list[Demand]:
        kept = [a for a in range(node.inputs[0].rank) if a not in node.attrs[0]]
        return [([(0, a)], [k]) for k, a in enumerate(kept)]

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Cotangents:
        return self.rules[0](node, y, ct, wanted) if self.rules[0] is not None else [None]

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        return self.rules[1](node, y, tangents) if self.rules[1] is not None else None

    def vmap(self, node: Node, args: Sequence[array], batched: Sequence[bool]) -> Any:
        axes = tuple(a + 1 for a in node.sig.attrs[0])
        return wrap(make(self, (args[0]._node,), (args[0].shape[0], *node.shape), node.sig.dtype, node.sig.stream, (axes,), ()))


class Update(Op):
    """Writes input 1 into a copy of input 0 (or into input 0 itself, where nobody else can see): slice update, scatter.

    Args:
        combine: None to overwrite, or add, mul, max, min; may depend on the node: `(node) -> str | None`.
        write: Where input 1's element goes: `(ctx, node, place of input 1) -> (place in input 0, mask or None)`.
        serial: Whether two elements may go to one place, so that order matters.
        demands: As `Op.demands`.
    """

    def __init__(
        self,
        name: str,
        combine: Callable[[Any], str | None],
        write: Any,
        serial: bool,
        vjp: Any,
        jvp: Any,
        vmap: Any,
        demands: Callable[[Any], list[Demand]] | None = None,
    ) -> None:
        Op.__init__(self, name, UPDATE)
        self.demanded = demands
        self.combine = combine
        self.write = write
        self.serial = serial
        self.rules = (vjp, jvp, vmap)

    def demands(self, node: Any) -> list[Demand]:
        whole: list[Demand] = [([(0, a)], [a]) for a in range(node.rank)]
        return whole if self.demanded is None else whole + self.demanded(node)

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Cotangents:
        return self.rules[0](node, y, ct, wanted)

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        return self.rules[1](node, y, tangents)

    def vmap(self, node: Node, args: Sequence[array], batched: Sequence[bool]) -> Any:
        return self.rules[2](node, args, batched)


class Opaque(Op):
    """Computed by a library entry of the backend (matmul, sort, ...): every rule stands in the record."""

    def __init__(
        self, name: str, vjp: Any, jvp: Any, vmap: Any, new_sizes: bool = False, demands: Callable[[Any], list[Demand]] | None = None
    ) -> None:
        Op.__init__(self, name, LIBRARY, new_sizes)
        self.rules = (vjp, jvp, vmap)
        self.demanded = demands

    def demands(self, node: Any) -> list[Demand]:
        return [] if self.demanded is None else self.demanded(node)

    def vjp(self, node: Node, y: array, ct: array, wanted: Sequence[bool]) -> Cotangents:
        return self.rules[0](node, y, ct, wanted)

    def jvp(self, node: Node, y: array, tangents: Sequence[array | None]) -> array | None:
        return self.rules[1](node, y, tangents)

    def vmap(self, node: Node, args: Sequence[array], batched: Sequence[bool]) -> Any:
        return self.rules[2](node, args, batched)


__all__ = ["Elementwise", "Linear", "Move", "Opaque", "Reduction", "Update", "apply", "elementwise_node"]
