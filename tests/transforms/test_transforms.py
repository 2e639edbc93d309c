"""grad, value_and_grad, vjp, jvp and vmap: what they return and raise, beside the wheel; nesting; long and odd graphs."""

from __future__ import annotations

import gc
from typing import NamedTuple

import numpy as np
import pytest
from laws import check_laws

import isthmus.core as mx
from isthmus.graph.node import TRACE, where_made

mlx = pytest.importorskip("mlx.core")


def plain(x):
    """A result as nested lists, dicts and tuples of numbers and shapes, alike for both."""
    if isinstance(x, (mx.array, mlx.array)):
        return (str(x.dtype).split(".")[-1], x.shape, np.array(x).tolist())
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(plain(v) for v in x)
    return x


def outcome(act, m):
    try:
        return plain(act(m))
    except Exception as e:
        return type(e)


def xs(m):
    return m.array([1.0, 2.0])


SAME = {
    "tree": lambda m: m.grad(lambda p: (p["a"] * p["b"][0]).sum())({"a": xs(m), "b": [xs(m), xs(m)], "c": (xs(m),)}),
    "argnums": lambda m: m.grad(lambda a, b: (a * b).sum(), argnums=[1, 0])(xs(m), xs(m) + 1),
    "argnums of one": lambda m: m.grad(lambda a: a.sum(), argnums=[0])(xs(m)),
    "argnames": lambda m: m.grad(lambda a, b: (a * b).sum(), argnames="b")(xs(m), b=xs(m) + 1),
    "argnames list": lambda m: m.value_and_grad(lambda a, b: (a * b).sum(), argnames=["b"])(xs(m), b=xs(m) + 1),
    "both": lambda m: m.grad(lambda a, b: (a * b).sum(), argnums=0, argnames=["b"])(xs(m), b=xs(m) + 1),
    "names twice": lambda m: m.grad(lambda b: b.sum(), argnames=["b", "b"])(b=xs(m)),
    "keyword passed on": lambda m: m.value_and_grad(lambda a, k=None: (a * k).sum())(xs(m), k=2.0),
    "tuple": lambda m: m.value_and_grad(lambda a: (a.sum(), a, 3, "q", {"p": a}))(xs(m)),
    "independent": lambda m: m.grad(lambda a: m.array(3.0))(xs(m)),
    "of a comparison": lambda m: m.grad(lambda a: (a > 1).sum())(xs(m)),
    "not scalar": lambda m: m.grad(lambda a: a * 2)(xs(m)),
    "of size one": lambda m: m.grad(lambda a: a.sum(keepdims=True))(xs(m)),
    "a number": lambda m: m.grad(lambda a: a * 2)(3.0),
    "a number in a tree": lambda m: m.grad(lambda p: (p["a"] * p["k"]).sum())({"a": xs(m), "k": 3.0}),
    "None in a tree": lambda m: m.grad(lambda p: p["a"].sum())({"a": xs(m), "k": None}),
    "returns a float": lambda m: m.grad(lambda a: 3.0)(xs(m)),
    "returns None": lambda m: m.grad(lambda a: None)(xs(m)),
    "grad of a tuple": lambda m: m.grad(lambda a: (a.sum(), 1))(xs(m)),
    "returns a list": lambda m: m.value_and_grad(lambda a: [a.sum(), a])(xs(m)),
    "returns a dict": lambda m: m.value_and_grad(lambda a: {"l": a.sum()})(xs(m)),
    "returns ()": lambda m: m.value_and_grad(lambda a: ())(xs(m)),
    "argnums out": lambda m: m.grad(lambda a: a.sum(), argnums=1)(xs(m)),
    "argnums below": lambda m: m.grad(lambda a: a.sum(), argnums=-1)(xs(m)),
    "argnums twice": lambda m: m.grad(lambda a: a.sum(), argnums=(0, 0))(xs(m)),
    "argnums none": lambda m: m.grad(lambda a: a.sum(), argnums=())(xs(m)),
    "argnames out": lambda m: m.grad(lambda a, b: (a * b).sum(), argnames=["c"])(xs(m), b=xs(m)),
    "not a function": lambda m: m.grad(3),
    "vjp": lambda m: m.vjp(lambda a, b: (a * b, a + b), [xs(m), xs(m)], [xs(m), xs(m)]),
    "vjp list": lambda m: m.vjp(lambda a: [a * 2], (xs(m),), (xs(m),)),
    "vjp identity": lambda m: m.vjp(lambda a: a, [xs(m)], [xs(m)]),
    "vjp independent": lambda m: m.vjp(lambda a: m.ones((3,)), [xs(m)], [m.ones((3,))]),
    "vjp counts": lambda m: m.vjp(lambda a: (a, a), [xs(m)], [xs(m)]),
    "vjp shapes": lambda m: m.vjp(lambda a: a * 2, [xs(m)], [m.ones((3,))]),
    "vjp array": lambda m: m.vjp(lambda a: a * 2, (2.0,), (m.ones((2,)),)),
    "jvp": lambda m: m.jvp(lambda a, b: (a * b, a + b), [xs(m), xs(m)], [xs(m), xs(m)]),
    "jvp independent": lambda m: m.jvp(lambda a: m.ones((3,)), [xs(m)], [xs(m)]),
    "jvp counts": lambda m: m.jvp(lambda a, b: a * b, [xs(m), xs(m)], [xs(m)]),
    "jvp shapes": lambda m: m.jvp(lambda a: a * 2, [xs(m)], [m.ones((3,))]),
    "vmap": lambda m: m.vmap(lambda a, b: a + b)(m.ones((2, 3)), m.ones((2, 3))),
    "vmap axes": lambda m: m.vmap(lambda a: a * 2, in_axes=-1, out_axes=-1)(m.ones((2, 3))),
    "vmap none": lambda m: m.vmap(lambda a, b: a * b.sum(), in_axes=(0, None))(m.ones((2, 3)), m.ones((2, 3))),
    "vmap tree": lambda m: m.vmap(lambda p: p["a"] + p["b"], in_axes={"a": 0, "b": None})({"a": m.ones((2, 3)), "b": m.ones((3,))}),
    "vmap nested axes": lambda m: m.vmap(lambda p, q: p["a"] + q, in_axes=({"a": 0}, None))({"a": m.ones((2, 3))}, m.ones((3,))),
    "vmap axes in a tuple": lambda m: m.vmap(lambda a: a, in_axes=(0,))(m.ones((2, 3))),
    "vmap outputs": lambda m: m.vmap(lambda a: (a, a * 2), out_axes=(0, 1))(m.ones((2, 3))),
    "vmap dict": lambda m: m.vmap(lambda a: {"q": a * 2}, out_axes={"q": 1})(m.ones((2, 3))),
    "vmap list": lambda m: m.vmap(lambda a: [a, m.ones((3,))])(m.ones((2, 3))),
    "vmap constant": lambda m: m.vmap(lambda a: m.ones((3,)), out_axes=1)(m.ones((2, 3))),
    "vmap sizes": lambda m: m.vmap(lambda a, b: a + b)(m.ones((2, 3)), m.ones((3, 3))),
    "vmap axis out": lambda m: m.vmap(lambda a, b: a + b, in_axes=(0, 5))(m.ones((2, 3)), m.ones((2, 3))),
    "vmap scalar": lambda m: m.vmap(lambda a: a)(m.array(1.0)),
    "vmap out axis out": lambda m: m.vmap(lambda a: a, out_axes=2)(m.ones((2, 3))),
    "vmap in None": lambda m: m.vmap(lambda a: a, in_axes=None)(m.ones((2, 3))),
    "vmap all None": lambda m: m.vmap(lambda a, b: a + b, in_axes=(None, None))(m.ones((2, 3)), m.ones((2, 3))),
    "vmap short axes": lambda m: m.vmap(lambda a, b: a * b, in_axes=(0,))(m.ones((2, 3)), m.ones((2, 3))),
    "vmap number": lambda m: m.vmap(lambda a, b: a * b)(m.ones((2, 3)), 2.0),
    "vmap returns a float": lambda m: m.vmap(lambda a: 3.0)(m.ones((2, 3))),
    "vmap returns None": lambda m: m.vmap(lambda a: None)(m.ones((2, 3))),
    "vmap keywords": lambda m: m.vmap(lambda a, b: a + b)(m.ones((2, 3)), b=m.ones((3,))),
    "vmap axes of letters": lambda m: m.vmap(lambda a: a, in_axes="x")(m.ones((2, 3))),
    "vmap float axes": lambda m: m.vmap(lambda a: a, in_axes=1.0)(m.ones((2, 3))),
    "vmap None on an output": lambda m: m.vmap(lambda a: (a, a), out_axes=(0, None))(m.ones((2, 3))),
    "vmap branch": lambda m: m.vmap(lambda a: a if a.sum() > 0 else -a)(m.ones((2, 3))),
    "vmap item": lambda m: m.vmap(lambda a: m.array(a.sum().item()))(m.ones((2, 3))),
    "complex loss": lambda m: m.grad(lambda z: m.real(z * z * (2 + 1j)).sum())(m.array([1 + 2j])),
}


@pytest.mark.parametrize("name", SAME)
def test_results_and_errors_are_the_wheels(name):
    mine, theirs = outcome(SAME[name], mx), outcome(SAME[name], mlx)
    if isinstance(theirs, type):
        assert isinstance(mine, type) and issubclass(mine, theirs), (mine, theirs)
    else:
        assert mine == theirs


def test_an_output_given_twice_counts_twice():
    x = mx.array([1.0, 2.0])
    assert mx.vjp(lambda a: (lambda b: (b, b))(a * 2), [x], [x, x])[1][0].tolist() == [4.0, 8.0]  # the wheel: [2, 4]


def test_a_branch_on_a_traced_value_names_the_way_out():
    with pytest.raises(ValueError, match=r"mx\.where"):
        mx.vmap(lambda a: a if a.sum() > 0 else -a)(mx.ones((2, 3)))


def test_nesting_in_any_order():
    def f(a):
        return (mx.sin(a) * a).sum()

    x = mx.array([0.3, 0.7], dtype=mx.float64)
    v = np.array([0.3, 0.7])
    second = 2 * np.cos(v) - v * np.sin(v)
    np.testing.assert_allclose(np.array(mx.grad(lambda a: mx.grad(f)(a).sum())(x)), second)
    one = mx.ones((2,), dtype=mx.float64)
    np.testing.assert_allclose(np.array(mx.jvp(mx.grad(f), [x], [one])[1][0]), second)
    np.testing.assert_allclose(np.array(mx.grad(lambda a: mx.jvp(f, [a], [one])[1][0])(x)), second)
    np.testing.assert_allclose(np.array(mx.vmap(mx.grad(mx.grad(f)))(x)), second)
    np.testing.assert_allclose(np.array(mx.grad(lambda a: mx.vmap(mx.grad(f))(a).sum())(x)), second)
    hessian = mx.vmap(lambda t: mx.jvp(mx.grad(f), [x], [t])[1][0])(mx.eye(2, dtype=mx.float64))
    np.testing.assert_allclose(np.array(hessian), np.diag(second), atol=1e-15)


def test_an_outer_variable_is_not_mixed_with_an_inner_one():
    # d/dx (x * d/dy (x + y)) = 1
    assert mx.grad(lambda x: x * mx.grad(lambda y: x + y)(mx.array(1.0)))(mx.array(2.0)).item() == 1.0
    assert mx.jvp(lambda x: x * mx.jvp(lambda y: x + y, [mx.array(1.0)], [mx.array(1.0)])[1][0], [mx.array(2.0)], [mx.array(1.0)])[1][0].item() == 1.0


def test_a_closure_over_the_same_array_is_a_constant():
    x = mx.array([1.0, 2.0])
    assert mx.grad(lambda a: (a * x).sum())(x).tolist() == [1.0, 2.0]


def test_captured_handles_hold_their_values_again():
    kept = []
    x = mx.array([1.0, 2.0])
    mx.grad(lambda a: (kept.append(a), (a * a).sum())[1])(x)
    assert kept[0]._node is x._node


def test_assignment_inside_stays_inside():
    def f(a):
        a[0] = 10
        a += 1
        return (a * a).sum()

    x = mx.array([1.0, 2.0])
    assert mx.grad(f)(x).tolist() == [0.0, 6.0] and x.tolist() == [1.0, 2.0]


def test_values_inside_a_traced_function():
    def f(a):
        b = a * 2
        assert b.tolist() == [2.0, 4.0]
        mx.eval(b)
        c = b * b if b.sum().item() > 0 else b
        return c.sum()

    x = mx.array([1.0, 2.0])
    assert mx.grad(f)(x).tolist() == [8.0, 16.0]
    assert mx.grad(lambda a: mx.grad(f)(a).sum())(x).tolist() == [8.0, 8.0]
    assert TRACE.depth == 0 and TRACE.kept == []


def test_an_error_inside_leaves_nothing_behind():
    x = mx.array([1.0])
    kept = []
    with pytest.raises(ZeroDivisionError):
        mx.grad(lambda a: (kept.append(a), 1 / 0))(x)
    assert TRACE.depth == 0 and TRACE.code is None and kept[0]._node is x._node


def test_gradients_count_as_made_on_the_forward_line():
    made = []

    def f(a):
        b = mx.sin(a)
        made.append(where_made(b._node))
        return b.sum()

    g = mx.grad(f)(mx.array([1.0]))
    assert where_made(g._node) == made[0]
    assert __file__ in where_made((mx.array([1.0]) + 1)._node)


def test_a_chain_of_100_000_ops():
    def f(a):
        for _ in range(100_000):
            a = a + 1.0
        return a.sum()

    assert mx.grad(f)(mx.array([1.0])).item() == 1.0
    assert mx.jvp(f, [mx.array([1.0])], [mx.array([3.0])])[1][0].item() == 3.0
    gc.collect()


def test_a_graph_of_many_paths_is_walked_once():
    def f(a):
        for _ in range(60):
            a = a + a
        return a.sum()

    assert mx.grad(f)(mx.array([1.0])).item() == 2.0**60


def test_stop_gradient():
    x = mx.array(3.0)
    assert mx.grad(lambda a: a * mx.stop_gradient(a))(x).item() == 3.0
    assert mx.jvp(lambda a: a * mx.stop_gradient(a), [x], [mx.array(1.0)])[1][0].item() == 3.0
    assert mx.vmap(lambda a: mx.stop_gradient(a) * 2)(mx.arange(3)).tolist() == [0, 2, 4]


def test_named_tuples_stay():
    class Pair(NamedTuple):
        a: object
        b: object

    g = mx.grad(lambda p: (p.a * p.b).sum())(Pair(mx.array([2.0]), mx.array([3.0])))
    assert isinstance(g, Pair) and g.a.item() == 3.0
    out = mx.vmap(lambda p: Pair(p.a + p.b, p.a))(Pair(mx.ones((2,)), mx.ones((2,))))
    assert isinstance(out, Pair) and out.a.tolist() == [2.0, 2.0]


def test_empty_arrays():
    x = mx.zeros((0, 3))
    assert mx.grad(lambda a: a.sum())(x).shape == (0, 3)
    assert mx.vmap(lambda a: a * 2)(x).shape == (0, 3)
    assert mx.vmap(lambda a: a.sum())(mx.zeros((3, 0))).tolist() == [0.0, 0.0, 0.0]


def test_16_bit_gradients_keep_their_dtype():
    for dtype in (mx.float16, mx.bfloat16):
        x = mx.array([1.0, 2.0]).astype(dtype)
        assert mx.grad(lambda a: (mx.exp(a) * 2).sum())(x).dtype is dtype
        assert mx.jvp(lambda a: mx.exp(a) * 2, [x], [mx.ones((2,))])[1][0].dtype is dtype


def test_a_function_keeps_its_name():
    def loss(a):
        """What it is."""
        return a.sum()

    assert mx.grad(loss).__name__ == "loss" and mx.vmap(loss).__doc__ == "What it is."


RNG = np.random.default_rng(3)


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (lambda a: mx.softmax(a, axis=-1), [(3, 4)]),
        (lambda a: mx.logsumexp(a, axis=0), [(3, 4)]),
        (lambda a: a.mean(axis=1), [(3, 4)]),
        (lambda a: mx.var(a, axis=0), [(3, 4)]),
        (lambda a: mx.max(a, axis=1), [(3, 4)]),
        (lambda a: mx.prod(a, axis=1), [(3, 4)]),
        (lambda a, b: mx.concatenate([a, b, a], axis=1), [(3, 2), (3, 1)]),
        (lambda a, b: mx.stack([a, b], axis=1), [(3, 2), (3, 2)]),
        (lambda a: mx.pad(a, [(1, 2), (0, 1)]), [(3, 2)]),
        (lambda a: mx.flip(a, axis=0).T.reshape(3, 2), [(3, 2)]),
        (lambda a: mx.broadcast_to(a, (4, 3, 2)), [(3, 1)]),
        (lambda a, b: mx.where(a > b, a, b * 2), [(3, 2), (2,)]),
        (lambda a, b: mx.maximum(a, b) / (1 + b * b), [(3, 2), ()]),
        (lambda a: mx.split(a, 2, axis=1)[1] * 2, [(3, 4)]),
        (lambda a: mx.exp(a) @ mx.tanh(a).T, [(3, 4)]),
    ],
)
def test_laws_of_other_ops(f, shapes):
    check_laws(f, *(RNG.standard_normal(s) for s in shapes))


def test_vmap_of_an_op_without_a_batch_form_is_a_loop(monkeypatch):
    from isthmus.ops.contract import MATMUL

    monkeypatch.setattr(MATMUL, "rules", (*MATMUL.rules[:2], lambda node, args, batched: None))
    a, b = RNG.standard_normal((3, 2, 4)), RNG.standard_normal((4, 5))
    got = mx.vmap(mx.matmul, in_axes=(0, None))(mx.array(a), mx.array(b))
    np.testing.assert_allclose(np.array(got), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("f", "x", "want"),
    [
        (lambda a: (a * a).sum(), mx.array([3, 4]), [6, 8]),
        (lambda a: (a * mx.array([1.5, 2.5])).sum(), mx.array([3, 4]), [1, 2]),
        (lambda a: mx.sin(a).sum(), mx.array([3, 4]), [0, 0]),
        (lambda a: mx.where(mx.array([True, False]), a, 0).sum(), mx.array([3, 4]), [1, 0]),
        (lambda a: mx.maximum(a, 3).sum(), mx.array([3, 4]), [0, 1]),
        (lambda a: a.astype(mx.float32).sum(), mx.array([3, 4]), [1, 1]),
        (lambda a: (a > 3).sum(), mx.array([3, 4]), [0, 0]),
        (lambda a: mx.where(a, mx.array([1.0, 2.0]), 0).sum(), mx.array([True, False]), [False, False]),
        (lambda x: (x.astype(mx.int32).astype(mx.float32) * x).sum(), mx.array([1.5, 2.5]), [2.0, 4.0]),
        (lambda x: mx.count_nonzero(x) * 1.0, mx.array([1.5, 0.0]), [0.0, 0.0]),
    ],
)
def test_gradients_of_integers_are_the_wheels(f, x, want):
    found = mx.grad(f)(x)
    assert found.dtype is x.dtype
    assert found.tolist() == want
