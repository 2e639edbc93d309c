"""Optimizers with each of their arguments, schedules, MultiOptimizer and clipping: the wheel's numbers and errors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.beside import assert_as_wheel

SHAPES = {"w": (5, 3), "wide": [(2, 7), {"b": (4,), "filters": (3, 2, 2, 4)}], "pair": ((1,), ()), "none": {}}


def tree(m, rng, shapes=SHAPES):
    if isinstance(shapes, dict):
        return {k: tree(m, rng, v) for k, v in shapes.items()}
    if isinstance(shapes, list):
        return [tree(m, rng, v) for v in shapes]
    if shapes and isinstance(shapes[0], tuple):
        return tuple(tree(m, rng, v) for v in shapes)
    return m.mx.array(rng.standard_normal(shapes).astype(np.float32))


RATE = lambda o: o.join_schedules([o.linear_schedule(0.01, 0.1, 2), o.cosine_decay(0.1, 4, end=0.02)], [2])

# make, and within how many ulps of an array's largest value: a sum or a product of matrices is not the wheel's to the last bit
STEPS = {
    "SGD": (lambda o: o.SGD(0.1), 0),
    "SGD, scheduled": (lambda o: o.SGD(RATE(o)), 1),
    "SGD, weight_decay": (lambda o: o.SGD(0.1, weight_decay=0.2), 0),
    "SGD, momentum": (lambda o: o.SGD(0.1, momentum=0.9), 0),
    "SGD, all": (lambda o: o.SGD(0.1, 0.9, 0.1, 0.3), 0),
    "SGD, nesterov": (lambda o: o.SGD(0.1, 0.9, 0.1, nesterov=True), 0),
    "RMSprop": (lambda o: o.RMSprop(0.1), 2),
    "RMSprop, all": (lambda o: o.RMSprop(RATE(o), alpha=0.8, eps=1e-3), 2),
    "Adagrad": (lambda o: o.Adagrad(0.1), 2),
    "Adagrad, all": (lambda o: o.Adagrad(RATE(o), eps=1e-2), 2),
    "AdaDelta": (lambda o: o.AdaDelta(0.1), 2),
    "AdaDelta, all": (lambda o: o.AdaDelta(RATE(o), rho=0.7, eps=1e-3), 2),
    "Adam": (lambda o: o.Adam(0.1), 2),
    "Adam, all": (lambda o: o.Adam(RATE(o), betas=(0.8, 0.9), eps=1e-3, bias_correction=True), 4),
    "Adam without means": (lambda o: o.Adam(0.1, betas=[0.0, 0.0], eps=1e-3), 2),
    "AdamW": (lambda o: o.AdamW(0.1), 2),
    "AdamW, all": (lambda o: o.AdamW(RATE(o), [0.8, 0.9], 1e-3, 0.3, True), 4),
    "Adamax": (lambda o: o.Adamax(0.1), 2),
    "Adamax, all": (lambda o: o.Adamax(RATE(o), [0.8, 0.9], 1e-3), 2),
    "Lion": (lambda o: o.Lion(0.1), 1),
    "Lion, all": (lambda o: o.Lion(RATE(o), [0.8, 0.9], 0.3), 2),
    "Adafactor": (lambda o: o.Adafactor(), 16),
    "Adafactor, warmup_init": (lambda o: o.Adafactor(warmup_init=True), 16),
    "Adafactor, learning_rate": (lambda o: o.Adafactor(RATE(o), relative_step=False), 16),
    "Adafactor, unscaled": (lambda o: o.Adafactor(0.1, scale_parameter=False, relative_step=False), 16),
    "Adafactor, all": (lambda o: o.Adafactor(None, (1e-8, 0.1), 0.5, -0.6, 0.9, 0.3, True, True, False), 16),
    "Muon": (lambda o: o.Muon(0.02), 64),
    "Muon, all": (lambda o: o.Muon(RATE(o), momentum=0.8, weight_decay=0.0, nesterov=False, ns_steps=3), 64),
    "Multi, one": (lambda o: o.MultiOptimizer([o.Adam(0.1)]), 2),
}


def steps(m, make, count=6, shapes=SHAPES):
    """Parameters and state (flat: beside a tuple of parameters ours is a list) after `count` steps."""
    rng, optimizer = np.random.default_rng(0), make(m.optim)
    parameters = tree(m, rng, shapes)
    for _ in range(count):
        parameters = optimizer.apply_gradients(tree(m, rng, shapes), parameters)
        m.mx.eval(parameters, optimizer.state)
    return parameters, dict(m.utils.tree_flatten(optimizer.state)), optimizer.learning_rate if "learning_rate" in optimizer.state else None


@pytest.mark.parametrize("name", STEPS)
def test_steps(name):
    make, ulp = STEPS[name]
    assert_as_wheel(lambda m: steps(m, make), ulp=ulp)


def multi(o):
    return o.MultiOptimizer([o.SGD(0.1, 0.9), o.Lion(0.05), o.Adam(RATE(o))], [lambda k, g: "b" in k, lambda k, g: g.ndim == 2 and g.size > 14])


def test_multi_optimizer():
    shapes = {"w": (5, 3), "layers": [{"b": (4,)}, {}, {"x": (2, 7), "b": (3,)}]}
    assert_as_wheel(lambda m: steps(m, multi, shapes=shapes)[:2], ulp=2)

    def of_a_model(m):
        model = m.nn.Sequential(m.nn.Linear(3, 5), m.nn.LayerNorm(5), m.nn.Linear(5, 1))
        model.update(tree(m, np.random.default_rng(0), {"layers": [{"weight": (5, 3), "bias": (5,)}, {"weight": (5,)}, {"weight": (1, 5)}]}))
        model.layers[2].bias = m.mx.zeros((1,))
        model.layers[1].freeze(keys="weight")
        optimizer = m.optim.MultiOptimizer([m.optim.SGD(0.1, 0.9), m.optim.Adam(0.1)], [lambda path, g: "layers.0" in path])
        optimizer.init(model.trainable_parameters())
        x = m.mx.array(np.random.default_rng(1).standard_normal((8, 3)).astype(np.float32))
        for _ in range(3):
            _, grads = m.nn.value_and_grad(model, lambda: model(x).square().mean())()
            optimizer.update(model, grads)
        optimizer.learning_rate = 0.5
        return model.parameters(), optimizer.state, optimizer.learning_rate

    # A few steps of Adam where gradients are near 0 enlarge the last bits.
    assert_as_wheel(of_a_model, ulp=2000)


def test_learning_rate_and_state():
    def program(m):
        o = m.optim.Adam(RATE(m.optim))
        rates = [o.learning_rate]
        for _ in range(8):
            o.update(m.nn.Identity(), {})
            rates.append(o.learning_rate)
        o.learning_rate = 3
        plain = m.optim.SGD(m.mx.array(0.5))
        plain.init({"a": [m.mx.ones((2,), m.mx.float16), {"b": m.mx.ones((1,))}], "c": {}})
        return rates, o.learning_rate, o.step, o.state, plain.state, plain.learning_rate

    assert_as_wheel(program, ulp=2)


def test_a_custom_schedule_by_name():
    def program(m):
        o = m.optim.Optimizer(schedulers={"anything": lambda step: step * 2})
        o.update(m.nn.Identity(), {})
        o.update(m.nn.Identity(), {})
        return o.state

    assert_as_wheel(program)


SCHEDULES = {
    "exponential_decay": lambda o: o.exponential_decay(0.1, 0.9),
    "step_decay": lambda o: o.step_decay(0.1, 0.9, 5),
    "step_decay, each": lambda o: o.step_decay(0.1, 0.5, 1),
    "cosine_decay": lambda o: o.cosine_decay(0.1, 20),
    "cosine_decay, end": lambda o: o.cosine_decay(0.1, 7, end=0.05),
    "cosine_decay, up": lambda o: o.cosine_decay(0.0, 7, end=2.0),
    "linear_schedule": lambda o: o.linear_schedule(0.0, 0.1, 10),
    "linear_schedule, down": lambda o: o.linear_schedule(1, -1, 1),
    "join, one": lambda o: o.join_schedules([o.linear_schedule(0.0, 0.1, 10)], []),
    "join, three": lambda o: o.join_schedules([o.linear_schedule(0.0, 0.1, 5), o.cosine_decay(0.1, 10), o.exponential_decay(0.05, 0.5)], [5, 12]),
    "join, same boundaries": lambda o: o.join_schedules([o.linear_schedule(0.0, 0.1, 5), o.exponential_decay(2.0, 0.5), o.step_decay(3.0, 0.5, 2)], [4, 4]),
}


@pytest.mark.parametrize("dtype", ["uint64", "int32"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name, dtype):
    schedule = lambda m, i: SCHEDULES[name](m.optim)(m.mx.array(i, getattr(m.mx, dtype)))
    assert_as_wheel(lambda m: m.mx.stack([schedule(m, i) for i in range(24)]), ulp=2)
    assert_as_wheel(lambda m: schedule(m, 3).dtype)


@pytest.mark.parametrize("dtypes", [["float32"] * 2, ["float16"] * 2, ["bfloat16"] * 2, ["float16", "float32"], ["float16", "bfloat16"]], ids=str)
@pytest.mark.parametrize("most", [0.0, 1.0, 100.0])
def test_clip_grad_norm(most, dtypes):
    grads = lambda m: {"a": [m.mx.array([3.0, -4.0], getattr(m.mx, dtypes[0])), {}], "b": m.mx.array([[12.0]], getattr(m.mx, dtypes[1]))}
    assert_as_wheel(lambda m: m.optim.clip_grad_norm(grads(m), most), ulp=1)


def test_clip_grad_norm_does_not_overflow():
    assert_as_wheel(lambda m: m.optim.clip_grad_norm({"a": m.mx.full((100,), 1000.0, m.mx.float16)}, 1.0), ulp=1)


ERRORS = {
    "SGD, nesterov without momentum": lambda o: o.SGD(0.1, nesterov=True),
    "SGD, nesterov with dampening": lambda o: o.SGD(0.1, 0.9, dampening=0.1, nesterov=True),
    "RMSprop, alpha": lambda o: o.RMSprop(0.1, alpha=-0.1),
    **{f"{n}, eps {eps}": lambda o, n=n, eps=eps: getattr(o, n)(0.1, eps=eps) for n in ("RMSprop", "Adagrad", "AdaDelta") for eps in (-1e-8, 0.0)},
    "AdaDelta, rho": lambda o: o.AdaDelta(0.1, rho=-0.1),
    **{f"{n}, eps": lambda o, n=n: getattr(o, n)(0.1, eps=-1e-8) for n in ("Adam", "AdamW", "Adamax")},
    **{
        f"{n}, {betas}": lambda o, n=n, betas=betas: getattr(o, n)(0.1, betas=betas)
        for n in ("Adam", "AdamW", "Adamax", "Lion")
        for betas in ([1.0, 0.9], [0.9, 1.0], [-0.1, 0.9], [0.9, -0.1])
    },
    "MultiOptimizer, filters": lambda o: o.MultiOptimizer([o.SGD(0.1), o.SGD(0.1)]),
    "MultiOptimizer, state": lambda o: setattr(o.MultiOptimizer([o.SGD(0.1)]), "state", {"step": 1}),
    "MultiOptimizer, states": lambda o: setattr(o.MultiOptimizer([o.SGD(0.1)]), "state", {"states": []}),
    "clip_grad_norm": lambda o: o.clip_grad_norm({}, -1.0),
    "step_decay": lambda o: o.step_decay(0.1, 0.5, 0),
    "cosine_decay": lambda o: o.cosine_decay(0.1, 0),
    "linear_schedule": lambda o: o.linear_schedule(0.0, 0.1, 0),
    "join_schedules, none": lambda o: o.join_schedules([], []),
    "join_schedules, boundaries": lambda o: o.join_schedules([o.step_decay(1, 1, 1)], [3]),
    "Optimizer": lambda o: o.Optimizer().init_single(None, {}),
    "Optimizer, apply": lambda o: o.Optimizer().apply_single(None, None, {}),
    "no learning rate": lambda o: o.SGD(),
    "Adafactor without a rate": lambda o: o.Adafactor().learning_rate,
}


@pytest.mark.parametrize("name", ERRORS)
def test_error_has_the_wheels_type(name):
    assert_as_wheel(lambda m: ERRORS[name](m.optim), raises=True)


def test_gradients_that_do_not_fit():
    def program(m):
        o = m.optim.SGD(0.1)
        o.apply_gradients({"a": m.mx.ones((1,))}, {"a": m.mx.ones((1,))})
        return o.apply_gradients({"b": m.mx.ones((1,))}, {"b": m.mx.ones((1,))})

    assert_as_wheel(program, raises=True)
