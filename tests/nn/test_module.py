"""What a Module promises: its tree, its modes, updates that are checked, and errors that say what to do."""

from __future__ import annotations

import copy
import doctest
import importlib
import pickle

import numpy as np
import pytest

import isthmus.core as mx
from isthmus import nn, optimizers, utils
from isthmus.utils import tree_flatten, tree_map

DOCUMENTED = [
    *(f"isthmus.nn.layers.{m}" for m in "activations base containers dropout linear normalization".split()),
    *(f"isthmus.nn.{m}" for m in "init losses utils".split()),
    "isthmus.optimizers.optimizers",
    "isthmus.optimizers.schedulers",
    "isthmus.utils",
]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_examples_hold(name):
    names = {"mx": mx, "nn": nn, "optim": optimizers, **{n: getattr(utils, n) for n in utils.__all__}}
    assert doctest.testmod(importlib.import_module(name), extraglobs=names).failed == 0


class Net(nn.Module):
    """Modules and arrays directly, in a list, in a dict in it, in a tuple; and what is neither."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 3)
        self.l = [nn.Linear(2, 2), {"x": nn.Linear(1, 1), "y": mx.ones(2)}]
        self._p = mx.ones(3)
        self.n = 3
        self.none = None
        self.t = (mx.ones(1), nn.Linear(1, 1))


def shapes(tree):
    return tree_map(lambda x: x.shape, tree)


def test_arrays_and_trees_are_entries_and_the_rest_are_attributes():
    net = Net()
    assert list(net) == ["a", "l", "_p", "t"]
    assert net.n == 3
    assert net.state is net
    net.n = mx.ones(1)
    assert "n" in net and "n" not in vars(net)
    net.n = 4
    assert "n" not in net and net.n == 4
    del net.n, net.a
    assert "a" not in net and not hasattr(net, "n")


def test_parameters_leave_out_hidden_names_and_tuples():
    assert shapes(Net().parameters()) == {
        "a": {"weight": (3, 2), "bias": (3,)},
        "l": [{"weight": (2, 2), "bias": (2,)}, {"x": {"weight": (1, 1), "bias": (1,)}, "y": (2,)}],
    }


def test_the_walk_is_filter_and_map():
    net = Net()
    net.a.freeze()
    net.freeze(keys="l.1.y", recurse=False)
    assert shapes(net.parameters()) == net.filter_and_map(nn.Module.valid_parameter_filter, lambda x: x.shape)
    assert shapes(net.trainable_parameters()) == net.filter_and_map(nn.Module.trainable_parameter_filter, lambda x: x.shape)


def test_names_of_modules_come_last_first():
    net = Net()
    assert [name for name, _ in net.named_modules()] == ["", "l.1.x", "l.0", "a"]
    assert net.modules()[0] is net
    assert net.children() == {"a": net.a, "l": [net.l[0], {"x": net.l[1]["x"], "y": {}}]}
    nested = nn.Sequential(nn.Sequential(nn.Linear(1, 1)), nn.ReLU())
    assert nested.leaf_modules() == {"layers": [{"layers": [nested.layers[0].layers[0]]}, nested.layers[1]]}


def test_repr_shows_the_tree():
    assert repr(nn.Sequential(nn.Linear(2, 3), nn.relu, nn.Dropout(0.1), nn.LayerNorm(3), nn.RMSNorm(3))) == (
        "Sequential(\n"
        "  (layers.0): Linear(input_dims=2, output_dims=3, bias=True)\n"
        "  (layers.2): Dropout(p=0.1)\n"
        "  (layers.3): LayerNorm(3, eps=1e-05, affine=True)\n"
        "  (layers.4): RMSNorm(3, eps=1e-05)\n"
        ")"
    )
    assert repr(nn.Bilinear(2, 3, 4)) == "Bilinear(input1_dims=2, input2_dims=3, output_dims=4, bias=True)"


UPDATES = {
    "no such name": ({"zz": mx.ones(1)}, 'named "zz"; there is'),
    "no array": ({"a": {"weight": 3}}, "int for 'a.weight'; it must be an array"),
    "an array for a module": ({"a": mx.ones(1)}, "array for 'a'; it must be a dict"),
    "a list for a module": ({"a": [mx.ones(1)]}, "list for 'a'; it must be a dict"),
    "a list too long": ({"l": [{}, {}, {}]}, "index 2 is out of bounds: 'l' has length 2"),
    "an attribute": ({"n": mx.ones(1)}, 'named "n"'),
    "no tree": (3, "int"),
}


@pytest.mark.parametrize("name", UPDATES)
def test_update_refuses_what_does_not_fit(name):
    tree, message = UPDATES[name]
    with pytest.raises(ValueError, match=message):
        Net().update(tree)
    if name != "no array":
        assert list(Net().update(tree, strict=False)) == ["a", "l", "_p", "t"]


def test_update_modules():
    net = Net()
    net.update_modules({"l": [nn.Linear(4, 4), {"x": nn.Linear(6, 6)}]})
    assert net.l[0].weight.shape == (4, 4) and net.l[1]["x"].weight.shape == (6, 6)
    net.update_modules(net.children())
    for tree, message in [({"zz": nn.ReLU()}, '"zz"; there is'), ({"a": 3}, "int for 'a'"), ({"a": {"weight": nn.ReLU()}}, "no module")]:
        with pytest.raises(ValueError, match=message):
            net.update_modules(tree)
        net.update_modules(tree, strict=False)


def test_freezing_by_name_is_checked_if_asked():
    net = Net()
    assert net.freeze(keys="zz") is net
    with pytest.raises(KeyError, match="zz"):
        net.freeze(keys=["zz"], strict=True)
    net.freeze()
    assert tree_flatten(net.trainable_parameters()) == []
    net.unfreeze(keys=["weight"])
    assert {path.split(".")[-1] for path, _ in tree_flatten(net.trainable_parameters())} == {"weight"}


def test_modes_reach_all_modules():
    net = Net()
    net.eval()
    assert not any(m.training for m in net.modules())
    assert net.train() is net and all(m.training for m in net.modules())
    with pytest.raises(AttributeError):
        net.training = False


def test_a_missing_attribute_and_a_missing_init():
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'zz'"):
        Net().zz  # noqa: B018

    class Bare(nn.Module):
        def __init__(self):
            self.x = mx.ones(1)

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\)"):
        Bare().trainable_parameters()


def test_dtypes():
    net = Net()
    net.l[1]["y"] = mx.ones(2, mx.int32)
    net.set_dtype(mx.bfloat16)
    assert net.a.weight.dtype == mx.bfloat16 and net.l[1]["y"].dtype == mx.int32
    net.set_dtype(mx.float16, predicate=None)
    assert net.l[1]["y"].dtype == mx.float16
    net.apply(lambda x: x.astype(mx.float32), lambda m, k, v: nn.Module.valid_parameter_filter(m, k, v) and k != "bias")
    assert net.a.weight.dtype == mx.float32 and net.a.bias.dtype == mx.float16
    with pytest.raises(ValueError, match="predicate"):
        net.set_dtype(mx.float32, predicate=3)


def test_weights_from_a_list():
    layer = nn.Linear(2, 2)
    good = [("weight", mx.eye(2)), ("bias", mx.ones(2))]
    assert layer.load_weights(good) is layer and layer.bias.tolist() == [1, 1]
    for weights, message in [
        (good[:1], "Missing 1 parameters:\nbias"),
        ([*good, ("b.c", mx.ones(1))], "Received 1 parameters not in model:\nb.c"),
        ([good[0], ("bias", mx.ones(3))], r"shape \(2,\) but received shape \(3,\) for parameter bias"),
        ([good[0], ("bias", 3)], "int for 'bias'"),
    ]:
        with pytest.raises(ValueError, match=message):
            layer.load_weights(weights)
    layer.load_weights([("weight", mx.zeros((2, 2))), ("b.c", mx.ones(1))], strict=False)
    assert layer.weight.tolist() == [[0, 0], [0, 0]] and layer.bias.tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"\.npz or \.safetensors"):
        layer.save_weights("weights.txt")


def test_modules_are_copied_and_pickled():
    net = Net()
    net.freeze().eval()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert type(other) is Net and not other.training and other.a._no_grad == {"weight", "bias"}
        assert other.a is not net.a
        np.testing.assert_array_equal(np.array(other.a.weight), np.array(net.a.weight))


# value_and_grad


def test_a_frozen_model_has_no_gradient():
    layer = nn.Linear(2, 2).freeze()
    with pytest.raises(ValueError, match="no trainable parameters"):
        nn.value_and_grad(layer, lambda x: layer(x).sum())(mx.ones((1, 2)))


def test_the_model_is_whole_after_an_error():
    layer = nn.Linear(2, 2)
    weight = layer.weight

    def fails(x):
        layer(x)
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        nn.value_and_grad(layer, fails)(mx.ones((1, 2)))
    assert layer.weight is weight


def test_what_the_function_puts_into_the_model_stays():
    layer = nn.Linear(2, 2, bias=False)
    layer.weight = mx.eye(2)

    def doubles(x):
        layer.weight = layer.weight * 2
        layer.seen = x.sum()
        return layer(x).sum()

    value, grads = nn.value_and_grad(layer, doubles)(mx.ones((1, 2)))
    assert value.item() == 4 and grads["weight"].tolist() == [[2, 2], [2, 2]]
    assert layer.weight.tolist() == [[2, 0], [0, 2]] and layer.seen.item() == 2


def test_further_values_and_keywords_pass_through():
    layer = nn.Linear(2, 1, bias=False)
    layer.inner = {"act": nn.ReLU()}

    def fn(x, scale=1):
        y = layer(x)
        return y.sum() * scale, {"y": y}

    (value, aux), grads = nn.value_and_grad(layer, fn)(mx.ones((3, 2)), scale=2)
    assert value.shape == () and aux["y"].shape == (3, 1)
    assert grads["weight"].tolist() == [[6, 6]] and grads["inner"] == {"act": {}}


@pytest.mark.parametrize("returned", [lambda x: x, lambda x: 3.0, lambda x: ([], x)], ids=["vector", "number", "list"])
def test_only_a_scalar_array_has_a_gradient(returned):
    layer = nn.Linear(1, 1)
    with pytest.raises(ValueError):
        nn.value_and_grad(layer, returned)(mx.ones(2))
