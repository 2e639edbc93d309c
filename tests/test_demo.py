"""The demo is the main job on real input: it learns, and its step replays."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from pathlib import Path

import isthmus

EXAMPLES = Path(__file__).parent.parent / "examples"


def digits():
    spec = importlib.util.spec_from_file_location("digits", EXAMPLES / "digits.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["digits"] = module
    spec.loader.exec_module(module)
    return module


def test_digits_are_learned_and_the_step_replays(tmp_path):
    demo = digits()
    results = [demo.train(seed, 30, progress=False) for seed in range(5)]
    assert statistics.median(r.accuracy for r in results) >= 0.97
    for result in results:
        assert result.counters["plans"] <= 2
        assert result.counters["hits"] >= len(result.losses) * 20
    pictures = demo.draw(results[0], tmp_path)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    assert isthmus.stats()["plans"] > 0
