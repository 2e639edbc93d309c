"""The functions over trees, on odd trees and with every argument: the wheel's results and errors."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest

from tests.conformance.beside import OURS, assert_as_wheel

Pair = namedtuple("Pair", "a b")
TREES = {
    "leaf": 5,
    "None": None,
    "string": "abc",
    "empty": {},
    "empties": [[], {}, (), [[{}]]],
    "nested": {"a": [1, (2, {"b": [3]})], "c": {"d": {"e": 4}}, "f": None},
    "named": Pair([1], {"x": Pair(2, 3)}),
    "ordered": OrderedDict(z=1, a=[2]),
    "keys": {1: "one", (2, 3): "pair", "": "empty", "a.b": "dots"},
    "values": [{1, 2}, range(3), "text", 1.5, None],
}
short = lambda x: isinstance(x, (list, tuple)) and len(x) <= 2
CALLS = {
    "map": lambda u, t: u.tree_map(lambda x: [x], t),
    "map pairs": lambda u, t: u.tree_map(lambda *x: x, t, t, t),
    "map with leaves": lambda u, t: u.tree_map(repr, t, is_leaf=short),
    "map with path": lambda u, t: u.tree_map_with_path(lambda p, x: (p, x), t),
    "map with path and prefix": lambda u, t: u.tree_map_with_path(lambda p, *x: (p, x), t, t, path="at.top"),
    "map with path and leaves": lambda u, t: u.tree_map_with_path(lambda p, x: (p, repr(x)), t, is_leaf=short),
    "map with empty prefix": lambda u, t: u.tree_map_with_path(lambda p, x: (p, x), t, path=""),
    "flatten": lambda u, t: u.tree_flatten(t),
    "flatten with prefix": lambda u, t: u.tree_flatten(t, prefix="xyz"),
    "flatten with leaves": lambda u, t: u.tree_flatten(t, is_leaf=short),
    "flatten onto a list": lambda u, t: u.tree_flatten(t, destination=[("there", 0)]),
    "flatten into a dict": lambda u, t: u.tree_flatten(t, destination={"there": 0}),
    "there and back": lambda u, t: u.tree_unflatten(u.tree_flatten(t)),
    "there and back by dict": lambda u, t: u.tree_unflatten(u.tree_flatten(t, destination={})),
    "reduce": lambda u, t: u.tree_reduce(lambda a, x: f"({a},{x})", t),
    "reduce from": lambda u, t: u.tree_reduce(lambda a, x: f"({a},{x})", t, "start"),
    "reduce with leaves": lambda u, t: u.tree_reduce(lambda a, x: f"({a},{x})", t, "start", is_leaf=short),
    "merge with own": lambda u, t: u.tree_merge(t, t, lambda a, b: (a, b)),
    "merge with nothing": lambda u, t: u.tree_merge(t, None),
}


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("call", CALLS)
def test_call(call, tree):
    if not (call.startswith("merge") and tree in ("None", "empty", "nested", "values")):  # see the next
        assert_as_wheel(lambda m: CALLS[call](m.utils, TREES[tree]))


@pytest.mark.parametrize("trees", [(None, None), (None, {}), ({}, None), ({"a": None}, {"a": []})], ids=repr)
def test_two_absent_trees_make_one(trees):
    """The wheel takes them for two leaves at one place; it happens where two optimizers leave out the same layer."""
    assert OURS.utils.tree_merge(*trees) in ({}, None, {"a": []})


FLAT = [
    *[[(k, 1)] for k in ("", "a", "0", "3", "a.0", "0.a", "a.2.b", "a..b", ".", "01", "-", "1.5x")],
    *[[("1", "a"), ("01", "b")], [("a.1", "a"), ("a.01", "b"), ("a.0", "c")], [("b", 1), ("a", 2)], [("2", 1), ("0", 2)]],
    *[{}, {"a.b": 1, "c": 2}, {"": 1}, [("a", {"kept": []}), ("b", [1, {}])]],
]


@pytest.mark.parametrize("flat", FLAT, ids=repr)
def test_unflatten(flat):
    assert_as_wheel(lambda m: m.utils.tree_unflatten(flat))


MERGES = [
    *[({"a": 1}, {"b": [2]}), ([1], [None, 2]), ([{}, 1], [2]), ([], []), ({}, {}), (None, 3), (3, {}), ([], {"a": 1})],
    *[({"a": {"b": 1}, "c": [{}]}, {"a": {"d": 2}, "c": [{"e": 3}, 4]}), (([1],), [[None, 2], 3]), (Pair({"a": 1}, None), ({"b": 2}, 3))],
]


@pytest.mark.parametrize("trees", MERGES, ids=repr)
def test_merge(trees):
    assert_as_wheel(lambda m: m.utils.tree_merge(*trees))


@pytest.mark.parametrize("trees", [*MERGES, (1, 2), ({"a": 1}, {"a": [2]}), ([1, 2], (3,)), ({"a": 1}, 5)], ids=repr)
def test_merge_of_leaves(trees):
    assert_as_wheel(lambda m: m.utils.tree_merge(*trees, lambda a, b: {"both": [a, b]}))


@pytest.mark.parametrize(
    "program",
    [
        *[lambda u, t=t: u.tree_merge(*t) for t in [(1, 2), ({"a": 1}, {"a": 1}), ([1], {"a": 1}), ({"a": [1]}, {"a": 2}), ([], {}), ((), [])]],
        *[lambda u, t=t: u.tree_map(max, *t) for t in [({"a": 1}, {"b": 1}), ([1, 2], [1])]],
        lambda u: u.tree_map_with_path(max, {"a": [1, 2]}, {"a": [1]}),
        *[lambda u, d=d: u.tree_flatten([1], destination=d) for d in ((), "text", 5)],
    ],
)
def test_error_has_the_wheels_type(program):
    assert_as_wheel(lambda m: program(m.utils), raises=True)


def test_the_arguments_are_left_alone():
    a, b, flat = {"x": [{}], "y": 1}, {"x": [{"z": 2}]}, [("a.b", 1)]
    OURS.utils.tree_merge(a, b)["x"][0]["new"] = OURS.utils.tree_unflatten(flat)
    assert a == {"x": [{}], "y": 1} and flat == [("a.b", 1)]
