"""The state of optimizers: what is kept, restored, scheduled; and the errors of gradients that do not fit."""

from __future__ import annotations

import pytest

import isthmus.core as mx
import isthmus.nn as nn
import isthmus.optimizers as optim


def tree():
    return {"a": mx.ones(2), "b": [mx.ones(3), {}]}


def test_the_first_update_makes_the_state():
    optimizer = optim.SGD(0.1, momentum=0.9)
    assert list(optimizer.state) == ["step", "learning_rate"]
    optimizer.apply_gradients(tree(), tree())
    assert list(optimizer.state) == ["step", "learning_rate", "a", "b"]
    assert optimizer.step.dtype == mx.uint64 and optimizer.step.item() == 1
    assert optimizer.state["b"][1] == {}


def test_init_keeps_what_is_there():
    optimizer = optim.SGD(0.1, momentum=0.9)
    optimizer.apply_gradients(tree(), tree())
    velocity = optimizer.state["a"]["v"]
    optimizer.init({**tree(), "c": mx.ones(1)})
    assert optimizer.state["a"]["v"] is velocity
    assert optimizer.state["c"]["v"].tolist() == [0]


def test_a_state_is_taken_up_again():
    first, second = optim.Adam(0.1), optim.Adam(0.5)
    p = first.apply_gradients(tree(), tree())
    second.state = first.state
    assert second.learning_rate.item() == pytest.approx(0.1)
    q = second.apply_gradients(tree(), p)
    assert second.step.item() == 2 and q["a"].shape == (2,)


def test_a_state_from_a_file_may_lack_arrays_and_have_tuples():
    optimizer = optim.Adam(0.1)
    optimizer.state = {"step": mx.array(3), "learning_rate": mx.array(0.1), "b": ()}
    optimizer.apply_gradients(tree(), tree())
    assert optimizer.step.item() == 4 and set(optimizer.state["b"][0]) == {"m", "v"}


def test_a_gradient_without_state_or_parameter_is_named():
    optimizer = optim.SGD(0.1)
    optimizer.apply_gradients({"a": mx.ones(2)}, tree())
    with pytest.raises(KeyError, match="gradient at 'b'"):
        optimizer.apply_gradients(tree(), tree())
    with pytest.raises(KeyError, match="gradient at 'a'"):
        optim.SGD(0.1).apply_gradients({"a": mx.ones(2)}, {})


def test_parameters_may_be_more_than_gradients():
    updated = optim.SGD(0.5).apply_gradients({"a": mx.ones(2)}, tree())
    assert list(updated) == ["a"] and updated["a"].tolist() == [0.5, 0.5]


def test_frozen_parameters_stay():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    model.layers[0].freeze()
    frozen, free = model.layers[0].weight, model.layers[2].weight
    _, grads = nn.value_and_grad(model, lambda x: model(x).sum())(mx.ones((4, 2)))
    optim.Adam(0.1).update(model, grads)
    assert model.layers[0].weight is frozen and model.layers[2].weight is not free


def test_a_schedule_may_return_a_number():
    optimizer = optim.SGD(lambda step: 0.25)
    assert optimizer.apply_gradients({"a": mx.ones(1)}, {"a": mx.ones(1)})["a"].item() == 0.75


def test_the_rate_has_the_dtype_of_the_gradient():
    optimizer = optim.SGD(0.1)
    for dtype in (mx.float16, mx.bfloat16, mx.float32):
        assert optimizer.apply_gradients({"a": mx.ones(1, dtype)}, {"a": mx.ones(1, dtype)})["a"].dtype == dtype
    optimizer.learning_rate = 0.5
    assert optimizer.learning_rate.item() == 0.5


def test_an_optimizer_of_ones_own():
    class SignSGD(optim.Optimizer):
        def __init__(self, learning_rate):
            super().__init__()
            self._maybe_schedule("learning_rate", learning_rate)

        def init_single(self, parameter, state):
            state["count"] = mx.array(0)

        def apply_single(self, gradient, parameter, state):
            state["count"] = state["count"] + 1
            return parameter - self.learning_rate * mx.sign(gradient)

    optimizer = SignSGD(0.5)
    p = optimizer.apply_gradients(tree(), tree())
    assert p["a"].tolist() == [0.5, 0.5] and optimizer.state["a"]["count"].item() == 1
    with pytest.raises(NotImplementedError, match="init_single"):
        optim.Optimizer().apply_gradients(tree(), tree())


def test_several_optimizers():
    optimizer = optim.MultiOptimizer([optim.SGD(0.5), optim.SGD(0.25)], [lambda path, g: path.startswith("b")])
    p = optimizer.apply_gradients(tree(), tree())
    assert p["a"].tolist() == [0.75, 0.75] and p["b"][0].tolist() == [0.5] * 3
    assert [s["step"].item() for s in optimizer.state["states"]] == [1, 1]
    optimizer.learning_rate = 1.0
    assert [o.learning_rate.item() for o in optimizer.optimizers] == [1, 1]
    optimizer.state = optimizer.state
    with pytest.raises(ValueError, match="2 optimizers"):
        optimizer.state = {"states": [{}]}
    with pytest.raises(ValueError, match="0 filters but 1 needed"):
        optim.MultiOptimizer([optim.SGD(0.5), optim.SGD(0.25)])


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32])
def test_clipping_sums_in_float32(dtype):
    grads, norm = optim.clip_grad_norm({"a": mx.array([300.0, 400.0], dtype)}, 1.0)
    assert grads["a"].dtype == dtype and norm.dtype == (dtype if dtype == mx.bfloat16 else mx.float32)  # as MLX's
    assert norm.item() == pytest.approx(500, rel=4e-3)
    assert grads["a"].tolist() == pytest.approx([0.6, 0.8], rel=4e-3)
    assert optim.clip_grad_norm({}, 1.0)[1].item() == 0


ERRORS = {
    "nesterov": lambda: optim.SGD(0.1, nesterov=True),
    "alpha": lambda: optim.RMSprop(0.1, alpha=-1),
    "eps": lambda: optim.Adagrad(0.1, eps=-1),
    "rho": lambda: optim.AdaDelta(0.1, rho=-1),
    "eps of Adamax": lambda: optim.Adamax(0.1, eps=-1),
    "steps": lambda: optim.linear_schedule(0, 1, 0),
    "decay steps": lambda: optim.cosine_decay(1, 0),
    "no schedules": lambda: optim.join_schedules([], []),
    "boundaries": lambda: optim.join_schedules([optim.step_decay(1, 1, 1)], [3]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_wrong_arguments_are_refused_at_once(name):
    with pytest.raises(ValueError, match=r"^\[\w+\] "):
        ERRORS[name]()
