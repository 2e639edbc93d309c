"""What a Module promises: the same programs over the same models as the wheel, their trees, errors and gradients."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.beside import OURS, assert_as_wheel

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 4)).astype(np.float32)


def net(m, seed=1):
    """A model with every kind of member: modules in lists and dicts, arrays in both, hidden and plain ones."""

    class Inner(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = m.mx.ones((3,))
            self.pair = [m.mx.zeros((2,)), m.mx.ones((2,))]
            self.table = {"a": m.mx.ones((1,)), "deep": [{"b": m.mx.zeros((1,))}, m.nn.RMSNorm(2)]}

    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [m.nn.Linear(4, 3), m.nn.relu, m.nn.Sequential(m.nn.Linear(3, 3, bias=False), m.nn.Dropout(0.5))]
            self.named = {"one": m.nn.LayerNorm(3), "two": m.nn.Bilinear(3, 3, 2)}
            self.inner = Inner()
            self.count = m.mx.array([1, 2])
            self.width = 3
            self.tuple = (m.mx.ones((1,)), 2)
            self._hidden = m.mx.ones((2,))

        def _extra_repr(self):
            return f"width={self.width}"

        def __call__(self, x):
            y = m.nn.relu(self.layers[0](x))
            y = self.named["one"](self.layers[2].layers[0](y)) * self.inner.scale + self.inner.table["a"]
            return self.named["two"](y, y) + self.inner.pair[0] * self.inner.pair[1]

    model = Net()
    rng = np.random.default_rng(seed)
    flat = sorted(m.utils.tree_flatten(model.parameters()), key=lambda pair: pair[0])
    flat = [(k, m.mx.array(rng.standard_normal(v.shape).astype(np.float32))) for k, v in flat if m.mx.issubdtype(v.dtype, m.mx.floating)]
    return model.load_weights(flat, strict=False)


LOOKS = {
    "parameters": lambda m, n: n.parameters(),
    "trainable_parameters": lambda m, n: n.trainable_parameters(),
    "children": lambda m, n: n.children(),
    "leaf_modules": lambda m, n: n.leaf_modules(),
    "modules": lambda m, n: n.modules(),
    "named_modules": lambda m, n: n.named_modules(),
    "repr": lambda m, n: repr(n),
    "state": lambda m, n: (n.state is n, sorted(n.state)),
    "training": lambda m, n: n.training,
    "is_module": lambda m, n: [n.is_module(v) for v in (n, n.layers, {}, n.count)],
    "items": lambda m, n: list(n),
    "plain attributes": lambda m, n: (n.width, n.tuple, "width" in n, "tuple" in n),
    "filter and map": lambda m, n: n.filter_and_map(n.valid_parameter_filter, lambda x: x.shape),
    "filter by key": lambda m, n: n.filter_and_map(lambda mod, k, v: not k.startswith(("layers", "_")) and not isinstance(v, (int, tuple))),
    "filter with leaves": lambda m, n: n.filter_and_map(n.valid_child_filter, len, lambda mod, k, v: n.is_module(v) or isinstance(v, list)),
    "filter names": lambda m, n: [k for _, k in names_seen(m, n)],
    "filters": lambda m, n: [[f(n, k, v) for k, v in n.items()] for f in (n.valid_child_filter, n.valid_parameter_filter, n.trainable_parameter_filter)],
}


def names_seen(m, n):
    seen = []
    n.filter_and_map(lambda mod, k, v: seen.append((type(mod).__name__, k)) or n.valid_parameter_filter(mod, k, v))
    return seen


@pytest.mark.parametrize("look", LOOKS)
def test_look(look):
    assert_as_wheel(lambda m: LOOKS[look](m, net(m)))


def test_an_empty_module_and_one_that_is_not_set_up():
    assert_as_wheel(lambda m: [LOOKS[k](m, m.nn.Module()) for k in ("parameters", "children", "leaf_modules", "repr", "named_modules")])
    assert_as_wheel(lambda m: type("Late", (m.nn.Module,), {"__init__": lambda self: None})().training, raises=True)


def test_leaf_modules_hold_no_modules():
    # The wheel takes one whose modules hold nothing at all for a leaf: Sequential(Tanh()).
    nn = OURS.nn
    assert nn.Sequential(nn.Sequential(nn.Tanh())).leaf_modules() == {"layers": [{"layers": [nn.Tanh()]}]}


# Changes: what each does, and what the model is like after it.
CHANGES = {
    "freeze": lambda m, n: n.freeze(),
    "freeze self": lambda m, n: n.freeze(recurse=False),
    "freeze key": lambda m, n: n.freeze(keys="bias"),
    "freeze keys": lambda m, n: n.freeze(keys=["weight", "scale"]),
    "freeze unknown key": lambda m, n: n.freeze(keys="other"),
    "freeze key within, strictly": lambda m, n: n.freeze(keys=["bias", "scale"], strict=True),
    "freeze own key, strictly": lambda m, n: n.freeze(recurse=False, keys="count", strict=True),
    "freeze list": lambda m, n: n.inner.freeze(keys="pair"),
    "freeze twice": lambda m, n: n.freeze().freeze(),
    "freeze some modules": lambda m, n: n.apply_to_modules(lambda k, v: v.freeze() if k.endswith("0") else None),
    "unfreeze": lambda m, n: n.freeze().unfreeze(),
    "unfreeze self": lambda m, n: n.freeze().unfreeze(recurse=False),
    "unfreeze key": lambda m, n: n.freeze().unfreeze(keys="bias"),
    "unfreeze key, strictly": lambda m, n: n.freeze().unfreeze(keys=["bias", "a"][:1], strict=True),
    "unfreeze own keys": lambda m, n: n.freeze().unfreeze(keys=["count"], recurse=False, strict=True),
    "update one": lambda m, n: n.update({"inner": {"scale": m.mx.zeros((3,))}}),
    "update shape and dtype": lambda m, n: n.update({"count": m.mx.zeros((7,), m.mx.float16)}),
    "update in a list": lambda m, n: n.update({"layers": [{"bias": m.mx.ones((3,))}]}),
    "update past holes": lambda m, n: n.update({"layers": [{}, {}, {"layers": [{"weight": m.mx.ones((3, 3))}]}]}),
    "update arrays in a list": lambda m, n: n.update({"inner": {"pair": [m.mx.ones((1,))], "table": {"deep": [{"b": m.mx.ones((4,))}]}}}),
    "update hidden": lambda m, n: n.update({"_hidden": m.mx.zeros((1,))}),
    "update with nothing": lambda m, n: n.update({}),
    "update with empty dicts": lambda m, n: n.update({"layers": {}, "inner": {"pair": {}, "table": {}}}),
    "update with own": lambda m, n: n.update(n.parameters()),
    "update with frozen": lambda m, n: n.freeze(keys="bias").update(n.trainable_parameters()),
    "update loosely unknown": lambda m, n: n.update({"other": m.mx.ones((1,)), "inner": {"more": {"x": 1}}}, strict=False),
    "update loosely long list": lambda m, n: n.update({"inner": {"pair": [m.mx.ones((1,))] * 5}}, strict=False),
    "update loosely no array": lambda m, n: n.update({"layers": 3}, strict=False),
    "update loosely an array by a number": lambda m, n: n.update({"count": 3}, strict=False),
    "update_modules": lambda m, n: n.update_modules({"inner": m.nn.RMSNorm(2)}),
    "update_modules in list": lambda m, n: n.update_modules({"layers": [m.nn.ReLU(), {}, {"layers": [m.nn.Identity()]}]}),
    "update_modules in dict": lambda m, n: n.update_modules({"named": {"two": m.nn.Tanh()}}),
    "update_modules with own": lambda m, n: n.update_modules(n.children()),
    "update_modules of leaves": lambda m, n: n.update_modules(m.utils.tree_map(lambda _: m.nn.Identity(), n.leaf_modules(), is_leaf=n.is_module)),
    "update_modules loosely": lambda m, n: n.update_modules({"other": m.nn.Tanh(), "count": m.nn.Tanh(), "layers": [m.nn.Tanh()] * 5}, strict=False),
    "apply": lambda m, n: n.apply(lambda x: x * 2),
    "apply to some": lambda m, n: n.apply(lambda x: x + 1, lambda mod, k, v: mod.valid_parameter_filter(mod, k, v) and k != "bias"),
    "train": lambda m, n: n.eval().train(),
    "train off": lambda m, n: n.train(False),
    "eval": lambda m, n: n.eval(),
    "eval of one": lambda m, n: n.layers[2].eval(),
    "set_dtype": lambda m, n: n.set_dtype(m.mx.float16) and None,
    "set_dtype of all": lambda m, n: n.set_dtype(m.mx.bfloat16, None) and None,
    "set_dtype of some": lambda m, n: n.set_dtype(m.mx.float32, lambda d: d == m.mx.int32) and None,
    "attribute to array": lambda m, n: setattr(n, "width", m.mx.ones((2,))),
    "array to attribute": lambda m, n: setattr(n, "count", 5),
    "array to None": lambda m, n: setattr(n, "count", None),
    "delete an array": lambda m, n: delattr(n, "count"),
    "delete an attribute": lambda m, n: (delattr(n, "width"), setattr(n, "width", 1))[1],
    "item": lambda m, n: n.__setitem__("more", m.mx.ones((1,))),
    "load a list": lambda m, n: n.load_weights(list(m.utils.tree_flatten(n.apply(lambda x: x + 1).parameters()))),
    "load a part loosely": lambda m, n: n.load_weights([("inner.scale", m.mx.ones((9,)))], strict=False),
    "load another loosely": lambda m, n: n.load_weights([("none.of.this", m.mx.ones((9,)))], strict=False),
    "load nothing loosely": lambda m, n: n.load_weights([], strict=False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change(change):
    def program(m):
        n = net(m)
        returned = CHANGES[change](m, n)
        modes = [(k, v.training) for k, v in n.named_modules()]
        return returned is n, n.parameters(), n.trainable_parameters(), repr(n), modes, n.width, n.get("_hidden"), list(n)

    assert_as_wheel(program)


ERRORS = {
    "freeze unknown key strictly": lambda m, n: n.freeze(keys="other", strict=True),
    "freeze key within, not recursively": lambda m, n: n.freeze(keys="bias", recurse=False, strict=True),
    "freeze by position": lambda m, n: n.freeze(True),
    "unfreeze unknown key strictly": lambda m, n: n.unfreeze(keys=["bias", "other"], strict=True),
    "unfreeze key within, not recursively": lambda m, n: n.unfreeze(keys="bias", recurse=False, strict=True),
    "update unknown": lambda m, n: n.update({"other": m.mx.ones((1,))}),
    "update unknown within": lambda m, n: n.update({"inner": {"other": m.mx.ones((1,))}}),
    "update long list": lambda m, n: n.update({"inner": {"pair": [m.mx.ones((1,))] * 3}}),
    "update array by number": lambda m, n: n.update({"count": 3}),
    "update array by dict": lambda m, n: n.update({"count": {"a": m.mx.ones((1,))}}),
    "update array in list by number": lambda m, n: n.update({"inner": {"pair": [3]}}),
    "update list by array": lambda m, n: n.update({"layers": m.mx.ones((1,))}),
    "update module by number": lambda m, n: n.update({"inner": 3}),
    "update_modules unknown": lambda m, n: n.update_modules({"other": m.nn.Tanh()}),
    "update_modules long list": lambda m, n: n.update_modules({"layers": [m.nn.Tanh()] * 5}),
    "update_modules array": lambda m, n: n.update_modules({"count": m.nn.RMSNorm(2)}),
    "update_modules by number": lambda m, n: n.update_modules({"inner": 3}),
    "update_modules function by module": lambda m, n: n.update_modules({"layers": [{}, m.nn.RMSNorm(2)]}),
    "load unknown": lambda m, n: n.load_weights([("other", m.mx.ones((1,)))]),
    "load missing": lambda m, n: n.load_weights([("count", m.mx.ones((2,)))]),
    "load other shape": lambda m, n: n.load_weights(m.utils.tree_flatten(m.utils.tree_map(lambda x: x[None], n.parameters()))),
    "load numbers": lambda m, n: n.load_weights([(k, 1) for k, _ in m.utils.tree_flatten(n.parameters())]),
    "save to another kind of file": lambda m, n: n.save_weights("weights.txt"),
    "attribute": lambda m, n: n.other,
    "delete": lambda m, n: delattr(n, "other"),
    "filter and map without leaves": lambda m, n: n.filter_and_map(lambda mod, k, v: True, is_leaf_fn=lambda mod, k, v: False),
}


@pytest.mark.parametrize("error", ERRORS)
def test_error_has_the_wheels_type(error):
    assert_as_wheel(lambda m: ERRORS[error](m, net(m)), raises=True)


def test_a_refused_update_says_where_and_what_there_is():
    with pytest.raises(ValueError, match=r'"inner\.other".*\'scale\''):
        net(OURS).update({"inner": {"other": OURS.mx.ones((1,))}})


# Gradients of a model.
GRADS = {
    "all": lambda m, n: None,
    "frozen biases": lambda m, n: n.freeze(keys="bias"),
    "one layer": lambda m, n: n.freeze(keys=["weight", "bias"]).layers[0].unfreeze(),
    "one array": lambda m, n: n.freeze(keys=["weight", "bias", "pair", "table"]),
    "in evaluation": lambda m, n: n.eval(),
}


@pytest.mark.parametrize("grads", GRADS)
def test_value_and_grad(grads):
    def program(m):
        n = net(m)
        del n.count  # no gradient by integers
        GRADS[grads](m, n)
        by_call = m.nn.value_and_grad(n, lambda x: n(x).square().mean())(m.mx.array(X))
        by_argument = m.nn.value_and_grad(n, lambda model, x, power: (model(x) ** power).mean())(n, m.mx.array(X), power=2)
        (value, shape), with_more = m.nn.value_and_grad(n, lambda x: (n(x).square().mean(), n(x).shape))(m.mx.array(X))
        return list(by_call), list(by_argument), value, shape, with_more, n.parameters()

    assert_as_wheel(program, ulp=40)


def test_a_frozen_array_in_a_list_or_dict_leaves_the_rest_trainable():
    # The wheel's strict update stumbles over the {} that stands for it.
    m, n = OURS, net(OURS)
    n.freeze().layers[0].unfreeze()
    before = dict(m.utils.tree_flatten(n.parameters()))
    _, grads = m.nn.value_and_grad(n, lambda x: n(x).square().mean())(m.mx.array(X))
    m.optim.SGD(0.1).update(n, grads)
    after = dict(m.utils.tree_flatten(n.parameters()))
    assert {k for k in before if before[k] is not after[k]} == {"layers.0.weight", "layers.0.bias"}


def test_value_and_grad_keeps_the_models_arrays_and_what_fn_puts_there():
    m, n = OURS, net(OURS)
    del n.count
    own = dict(m.utils.tree_flatten(n.parameters()))

    def loss(x):
        n.inner.scale = m.mx.full((3,), 9.0)
        n._hidden = m.mx.zeros((1,))
        return n(x).sum()

    fn = m.nn.value_and_grad(n, loss)
    assert fn.__name__ == "loss"
    fn(m.mx.array(X))
    after = dict(m.utils.tree_flatten(n.parameters()))
    assert {k for k in own if own[k] is not after[k]} == {"inner.scale"} and n.inner.scale.tolist() == [9.0] * 3
    with pytest.raises(ZeroDivisionError):
        m.nn.value_and_grad(n, lambda: 1 / 0)()
    assert all(v is after[k] for k, v in m.utils.tree_flatten(n.parameters()))


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.nn.value_and_grad(m.nn.Identity(), lambda: m.mx.array(1.0))(),
        lambda m: m.nn.value_and_grad(net(m).freeze(), lambda: m.mx.array(1.0))(),
        lambda m: m.nn.value_and_grad(n := m.nn.Linear(2, 2), lambda: n(m.mx.ones((1, 2))))(),
        lambda m: m.nn.value_and_grad(m.nn.Linear(2, 2), lambda: 3.0)(),
    ],
)
def test_value_and_grad_errors(program):
    assert_as_wheel(program, raises=True)


def test_a_tied_array_gets_the_gradient_of_each_place():
    def program(m):
        n = m.nn.Sequential(m.nn.Linear(4, 4), m.nn.Linear(4, 4))
        n.layers[1].weight = n.layers[0].weight = m.mx.array(X[:4] + 0)
        return list(m.nn.value_and_grad(n, lambda x: n(x).square().mean())(m.mx.array(X)))[1]["layers"][0]["weight"]

    m = OURS
    m.mx.random.seed(3)
    assert_as_wheel(lambda m: (m.mx.random.seed(3), program(m))[1], ulp=20)
