"""Trees: what the functions of isthmus.utils do, and that they do what the wheel's do."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest

from isthmus import utils
from isthmus.utils import tree_flatten, tree_map, tree_map_with_path, tree_merge, tree_reduce, tree_unflatten

Pair = namedtuple("Pair", "a b")
TREES = [
    5,
    None,
    [],
    {},
    [1, 2],
    (1, (2, 3)),
    {"a": 1, "b": [2, (3, 4)], "c": {}, "d": [], "e": None},
    {"layers": [{"weight": 1}, {}, {"weight": 2, "bias": 3}]},
    Pair(1, [2, 3]),
    OrderedDict(x=1, y=[2]),
    {1: 2, "a": 3},
]
FLAT = [
    [],
    {},
    [("", 5)],
    [("a", 1), ("b.0", 2)],
    [("0", 1), ("2", 3)],
    [("0", 1), ("a", 3)],
    [("a.0.x", 1), ("a.3.y", 2)],
    {"a.b": 1, "a.c": 2},
    [("a", 1), ("a.b", 2)],
    [("a.b", 2), ("a", 1)],
    [("10", 1), ("9", 2)],
    [("a..b", 3)],
    [("x", 5), ("", 4)],
]
PAIRS = [
    ({"a": 1}, {"b": 2}),
    ([{"a": 1}], [{"b": 1}, 5]),
    ({"a": None}, {"a": 2}),
    (1, None),
    ({"a": {"b": 1}}, {"a": {"c": 2}}),
    ({"a": {}}, {"a": 5}),
    ([{}, {"a": 1}], [{"b": 2}, {}]),
    ([], [1]),
    (({"a": 1},), ({"b": 2}, {"c": 1})),
    ({}, {}),
]


@pytest.fixture(scope="module")
def wheel():
    return pytest.importorskip("mlx.utils", reason="the MLX wheel exists for x86-64 alone")


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_flatten_map_and_reduce_are_the_wheels(wheel, tree):
    assert tree_flatten(tree) == wheel.tree_flatten(tree)
    assert tree_flatten(tree, prefix=".p.q") == wheel.tree_flatten(tree, prefix=".p.q")
    for fn in (lambda x: (x,), repr):
        assert tree_map(fn, tree) == wheel.tree_map(fn, tree)
    named = tree_map_with_path(lambda path, x: f"{path}={x}", tree)
    assert named == wheel.tree_map_with_path(lambda path, x: f"{path}={x}", tree)
    assert tree_reduce(lambda a, x: f"{a}{x}", tree, "") == wheel.tree_reduce(lambda a, x: f"{a}{x}", tree, "")


@pytest.mark.parametrize("flat", FLAT, ids=repr)
def test_unflatten_is_the_wheels(wheel, flat):
    assert tree_unflatten(flat) == wheel.tree_unflatten(flat)


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=repr)
def test_merge_is_the_wheels(wheel, a, b):
    assert tree_merge(a, b) == wheel.tree_merge(a, b)
    assert tree_merge(a, b, lambda x, y: (x, y)) == wheel.tree_merge(a, b, lambda x, y: (x, y))


@pytest.mark.parametrize("tree", [{"a": [1, {"b": 2}], "c": 3}, [[1], [2, 3]], 7], ids=repr)
def test_unflatten_undoes_flatten(tree):
    assert tree_unflatten(tree_flatten(tree)) == tree
    assert tree_unflatten(tree_flatten(tree, destination={})) == tree


def test_kinds_of_sequence_are_kept():
    assert tree_map(lambda x: x + 1, Pair(1, (2, [3]))) == Pair(2, (3, [4]))
    assert type(tree_map(lambda x: x, OrderedDict(a=1))) is dict


def test_is_leaf_stops_the_walk():
    assert tree_map(len, [[1, 2], [3]], is_leaf=lambda x: x and isinstance(x[0], int)) == [2, 1]
    assert tree_flatten([[1], {"x": 2}], is_leaf=lambda x: isinstance(x, dict)) == [("0.0", 1), ("1", {"x": 2})]


def test_further_trees_may_have_more_but_not_less():
    assert tree_map(lambda x, y: (x, y), {"a": 1}, {"a": 2, "b": 3}) == {"a": (1, 2)}
    with pytest.raises(IndexError, match="nothing at 1"):
        tree_map(lambda x, y: x, [1, 2], [1])
    with pytest.raises(KeyError, match="nothing at 'a'"):
        tree_map(lambda x, y: x, {"a": 1}, {"b": 1})


def test_an_error_of_the_function_is_passed_on():
    with pytest.raises(KeyError, match="mine"):
        tree_map(lambda x, y: {}["mine"], [1], [2])


def test_flatten_into_a_destination():
    pairs = [("z", 0)]
    assert tree_flatten({"a": [1]}, destination=pairs) is pairs
    assert pairs == [("z", 0), ("a.0", 1)]
    with pytest.raises(ValueError, match="must be a list, a dict or None"):
        tree_flatten([1], destination=3)


def test_two_leaves_at_one_place_need_a_function():
    with pytest.raises(ValueError, match="merge_fn"):
        tree_merge({"a": 1}, {"a": 2})


def test_a_far_position_from_a_file_does_not_fill_the_memory():
    with pytest.raises(ValueError, match="too far out"):
        tree_unflatten([("layers.999999999999.weight", 1)])


def test_all_names_are_public():
    assert set(utils.__all__) <= set(vars(utils))
