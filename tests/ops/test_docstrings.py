"""The examples of the docstrings."""

import doctest
import importlib

import numpy as np
import pytest

import isthmus.core as mx

MODULES = "elementwise move reduce create convert index random contract".split()


@pytest.mark.parametrize("name", [*(f"isthmus.ops.{m}" for m in MODULES), "isthmus.methods", "isthmus.graph.limits", "isthmus.graph.show"])
def test_examples_hold(name):
    found = doctest.testmod(importlib.import_module(name), extraglobs={"mx": mx, "np": np})
    assert found.failed == 0
