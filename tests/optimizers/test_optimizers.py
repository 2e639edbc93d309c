"""Ten steps of every optimizer, and the schedules, beside the MLX wheel's numbers."""

from __future__ import annotations

import mlx.core as peer
import mlx.optimizers as peer_optim
import numpy as np
import pytest

import isthmus.core as mx
import isthmus.optimizers as optim

RNG = np.random.default_rng(0)
START = {"w": RNG.standard_normal((4, 3)).astype(np.float32), "inner": [{"b": RNG.standard_normal(3).astype(np.float32)}]}

OPTIMIZERS = {
    "SGD": lambda o: o.SGD(0.1),
    "SGD momentum": lambda o: o.SGD(0.1, momentum=0.9, weight_decay=0.01),
    "SGD nesterov": lambda o: o.SGD(0.1, momentum=0.9, nesterov=True),
    "SGD dampening": lambda o: o.SGD(0.1, momentum=0.9, dampening=0.3),
    "RMSprop": lambda o: o.RMSprop(0.01),
    "Adagrad": lambda o: o.Adagrad(0.1),
    "AdaDelta": lambda o: o.AdaDelta(1.0),
    "Adam": lambda o: o.Adam(0.01),
    "Adam corrected": lambda o: o.Adam(0.01, betas=[0.8, 0.95], bias_correction=True),
    "AdamW": lambda o: o.AdamW(0.01, weight_decay=0.1),
    "Adamax": lambda o: o.Adamax(0.01),
    "Lion": lambda o: o.Lion(0.01, weight_decay=0.1),
    "Adafactor": lambda o: o.Adafactor(0.01, relative_step=False, scale_parameter=False),
}


def run(optim, mx, make) -> list[np.ndarray]:
    optimizer = make(optim)
    tree = {"w": mx.array(START["w"]), "inner": [{"b": mx.array(START["inner"][0]["b"])}]}
    rng = np.random.default_rng(1)
    for _ in range(10):
        grads = {
            "w": mx.array(rng.standard_normal((4, 3)).astype(np.float32)),
            "inner": [{"b": mx.array(rng.standard_normal(3).astype(np.float32))}],
        }
        tree = optimizer.apply_gradients(grads, tree)
        mx.eval(tree, optimizer.state)
    return [np.array(tree["w"]), np.array(tree["inner"][0]["b"])]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_the_wheels(name):
    got, want = run(optim, mx, OPTIMIZERS[name]), run(peer_optim, peer, OPTIMIZERS[name])
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


SCHEDULES = {
    "exponential_decay": lambda o: o.exponential_decay(0.1, 0.9),
    "step_decay": lambda o: o.step_decay(0.1, 0.9, 5),
    "cosine_decay": lambda o: o.cosine_decay(0.1, 20),
    "linear_schedule": lambda o: o.linear_schedule(0.0, 0.1, 10),
    "join_schedules": lambda o: o.join_schedules([o.linear_schedule(0.0, 0.1, 5), o.cosine_decay(0.1, 20)], [5]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_the_wheels(name):
    ours, theirs = SCHEDULES[name](optim), SCHEDULES[name](peer_optim)
    for step in (0, 1, 4, 5, 6, 19, 30):
        got, want = np.array(ours(mx.array(step))), np.array(theirs(peer.array(step)))
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-8)


def test_a_schedule_moves_the_rate():
    optimizer = optim.SGD(optim.step_decay(0.5, 0.1, 2))
    tree = {"w": mx.zeros((1,))}
    rates = []
    for _ in range(5):
        tree = optimizer.apply_gradients({"w": mx.ones((1,))}, tree)
        rates.append(round(optimizer.learning_rate.item(), 6))
    assert rates == [0.5, 0.5, 0.05, 0.05, 0.005]


def test_clip_grad_norm():
    grads, norm = optim.clip_grad_norm({"a": mx.full((4,), 3.0), "b": mx.full((1,), 8.0)}, 5.0)
    assert norm.item() == pytest.approx(10.0)
    assert np.array(grads["b"]).tolist() == pytest.approx([4.0])
