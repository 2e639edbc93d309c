"""Trees of arrays, as the transforms see them: nested dicts, lists and tuples whose leaves are arrays.

`isthmus.utils` has the public functions; what stands here is what the rooms below it need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from isthmus.graph.array import array


def like(sequence: Any, items: list[Any]) -> Any:
    """`items` in a list or tuple as `sequence` is one; named tuples keep their type."""
    kind = type(sequence)
    if kind is tuple:
        return tuple(items)
    if isinstance(sequence, list):
        return items
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree with `fn` of each leaf; dicts become plain ones."""
    if isinstance(tree, array):
        return fn(tree)
    if isinstance(tree, dict):
        return {k: map_leaves(fn, v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return like(tree, [map_leaves(fn, v) for v in tree])
    return fn(tree)


def leaves(tree: Any) -> list[Any]:
    """The leaves in order."""
    found: list[Any] = []
    map_leaves(found.append, tree)
    return found


def rebuild(tree: Any, items: Iterator[Any]) -> Any:
    """A tree like `tree` with the next of `items` at each leaf."""
    return map_leaves(lambda _: next(items), tree)


def prefix_leaves(prefix: Any, tree: Any, what: str) -> list[Any]:
    """For each leaf of `tree`, what stands in `prefix` at the same place or above it.

    Raises:
        ValueError: `prefix` branches where `tree` does not, or otherwise.
    """
    found: list[Any] = []
    _match(prefix, tree, what, found)
    return found


def _match(prefix: Any, tree: Any, what: str, found: list[Any]) -> None:
    if isinstance(prefix, dict):
        if not isinstance(tree, dict) or set(prefix) != set(tree):
            raise ValueError(f"{what} must be a prefix of the tree it belongs to: {_kind(prefix)} stands where that has {_kind(tree)}.")
        for k, v in tree.items():
            _match(prefix[k], v, what, found)
    elif isinstance(prefix, (list, tuple)):
        if not isinstance(tree, (list, tuple)) or len(prefix) != len(tree):
            raise ValueError(f"{what} must be a prefix of the tree it belongs to: {_kind(prefix)} stands where that has {_kind(tree)}.")
        for p, t in zip(prefix, tree, strict=True):
            _match(p, t, what, found)
    else:
        map_leaves(lambda _: found.append(prefix), tree)


def _kind(tree: Any) -> str:
    if isinstance(tree, dict):
        return f"a dict with keys {sorted(map(str, tree))}"
    if isinstance(tree, (list, tuple)):
        return f"a {type(tree).__name__} of {len(tree)}"
    return f"a leaf of type {type(tree).__name__}"


def array_leaf(x: Any, what: str) -> array:
    """`x`, which must be an array.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(x, array):
        raise ValueError(
            f"[tree_flatten] The argument should contain only arrays: {what} holds a {type(x).__name__}; wrap numbers with mx.array, or pass what is not traced as another argument."
        )
    return x
