"""GPUs that are not there, in this process: `simulated` puts them in and takes them away again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import isthmus.core as mx
from isthmus.backends.cuda import device
from isthmus.backends.cuda.device import Gpu
from isthmus.backends.cuda.simulate import Simulated
from isthmus.graph.device import defaults, gpus
from isthmus.schedule import run, worker

MEMORY = 4 << 30


class Gpus:
    """The simulated GPUs of a test, started; the first is the default device."""

    def __init__(self) -> None:
        self.all = [self.start(index) for index in range(2)]

    def start(self, index: int, total_bytes: int = MEMORY) -> Gpu:
        """GPU `index` anew, with so much memory; plans of the one before are forgotten."""
        self.forget_plans()
        device._gpus[index] = Gpu(index, Simulated(index, total_bytes))
        return device._gpus[index]

    def __getitem__(self, index: int) -> Gpu:
        return device._gpus[index]

    @staticmethod
    def forget_plans() -> None:
        """Of GPUs."""
        for key, family in list(run._families.items()):
            if any(plan.place > 0 for plan in [*family.plans.values(), family.wide] if plan is not None):
                del run._families[key]


@pytest.fixture
def simulated() -> Iterator[Gpus]:
    """Two simulated GPUs; afterwards devices, streams, plans, the random state and errors are what they were."""
    state = [mx.array(x) for x in mx.random.state]
    mx.eval(state)
    mx.synchronize()
    before: list[Any] = [gpus.count, dict(device._gpus), defaults.device, defaults.stream]
    gpus.count = lambda: 2
    device._gpus.clear()
    try:
        found = Gpus()
        mx.set_default_device(mx.gpu)
        yield found
    finally:
        try:
            worker.wait()
        except Exception:  # a test's own, which it has looked at as far as it wanted
            pass
        gpus.count = before[0]
        device._gpus.clear()
        device._gpus.update(before[1])
        defaults.device, defaults.stream = before[2], before[3]
        mx.random.state[:] = state
        Gpus.forget_plans()
