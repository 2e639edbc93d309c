"""Trees: nested dicts, lists and tuples whose leaves are anything else (arrays, as a rule).

A leaf has a path, its keys and positions joined by dots: in ``{"layers": [{"weight": w}]}`` the leaf ``w`` is at
``"layers.0.weight"``. All functions here follow from two facts: a dict, list or tuple is a branch and everything else
a leaf, and a function over several trees takes its shape from the first. Nothing here knows about arrays.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["tree_flatten", "tree_map", "tree_map_with_path", "tree_merge", "tree_reduce", "tree_unflatten"]

IsLeaf = Callable[[Any], bool]


def tree_map(fn: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Apply ``fn`` to every leaf of ``tree`` and keep the structure.

    Args:
        fn: Called with a leaf of ``tree`` and what stands at the same place in each tree of ``rest``.
        tree: The tree that gives the structure.
        rest: Further trees; each must have at least the branches of ``tree``, and may have more.
        is_leaf: Says of a node whether it counts as a leaf although it is a branch.

    Returns:
        A tree like ``tree``. Every dict becomes a plain dict; tuples stay tuples, named or not.

    Raises:
        KeyError, IndexError: A tree of ``rest`` lacks a place that ``tree`` has.

    Example:
        >>> tree_map(lambda x, y: x + y, {"a": 1, "b": [2, 3]}, {"a": 10, "b": [20, 30]})
        {'a': 11, 'b': [22, 33]}
    """
    if is_leaf is not None and is_leaf(tree):
        return fn(tree, *rest)
    if isinstance(tree, dict):
        if not rest:
            return {k: tree_map(fn, v, is_leaf=is_leaf) for k, v in tree.items()}
        return {k: tree_map(fn, v, *_at(rest, k, "tree_map"), is_leaf=is_leaf) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return _like(tree, [tree_map(fn, v, *_at(rest, i, "tree_map"), is_leaf=is_leaf) for i, v in enumerate(tree)])
    return fn(tree, *rest)


def tree_map_with_path(
    fn: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf | None = None, path: str | None = None
) -> Any:
    """Apply ``fn`` to the path and the value of every leaf; otherwise as :func:`tree_map`.

    Args:
        fn: Called with the path, a leaf of ``tree``, and what stands there in each tree of ``rest``.
        tree: The tree that gives the structure.
        rest: Further trees.
        is_leaf: Says of a node whether it counts as a leaf although it is a branch.
        path: Put in front of every path. A lone leaf gets exactly this, so ``None`` by default.

    Example:
        >>> tree_map_with_path(lambda path, x: f"{path}={x}", {"a": [5, 6]})
        {'a': ['a.0=5', 'a.1=6']}
    """
    if is_leaf is not None and is_leaf(tree):
        return fn(path, tree, *rest)

    def below(key: Any, child: Any) -> Any:
        place = f"{path}.{key}" if path else str(key)
        return tree_map_with_path(
            fn, child, *_at(rest, key, "tree_map_with_path"), is_leaf=is_leaf, path=place
        )

    if isinstance(tree, dict):
        return {k: below(k, v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return _like(tree, [below(i, v) for i, v in enumerate(tree)])
    return fn(path, tree, *rest)


def tree_flatten(
    tree: Any,
    prefix: str = "",
    is_leaf: IsLeaf | None = None,
    destination: list[tuple[str, Any]] | dict[str, Any] | None = None,
) -> Any:
    """List the leaves of ``tree`` with their paths, in order.

    Args:
        tree: The tree to take apart.
        prefix: Put in front of every path; its first character is dropped, so write ``".model"``.
        is_leaf: Says of a node whether it counts as a leaf although it is a branch.
        destination: Where to put the pairs: a list is appended to, a dict is written into.

    Returns:
        ``destination``, or a new list of pairs (path, leaf).

    Raises:
        ValueError: ``destination`` is neither a list nor a dict.

    Example:
        >>> tree_flatten({"a": [1, 2], "b": 3})
        [('a.0', 1), ('a.1', 2), ('b', 3)]
        >>> tree_flatten({"a": {"b": 1}}, destination={})
        {'a.b': 1}
    """
    if destination is None:
        destination = []
    elif not isinstance(destination, (list, dict)):
        raise ValueError(
            f"[tree_flatten] destination has type {type(destination).__name__}; it must be a list, a dict or None."
        )

    def walk(node: Any, path: str) -> None:
        if is_leaf is None or not is_leaf(node):
            if isinstance(node, dict):
                for k, v in node.items():
                    walk(v, f"{path}.{k}")
                return
            if isinstance(node, (list, tuple)):
                for i, v in enumerate(node):
                    walk(v, f"{path}.{i}")
                return
        if isinstance(destination, list):
            destination.append((path[1:], node))
        else:
            destination[path[1:]] = node

    walk(tree, prefix)
    return destination


def tree_unflatten(tree: list[tuple[str, Any]] | dict[str, Any]) -> Any:
    """Build a tree from its paths and leaves: the inverse of :func:`tree_flatten`.

    Keys that are all whole numbers make a list; a number that is skipped leaves an empty dict there, which is what a
    layer without parameters looks like. Tuples come back as lists.

    Args:
        tree: Pairs (path, leaf), or a dict from path to leaf.

    Raises:
        ValueError: A list would get more than a million places.

    Example:
        >>> tree_unflatten([("layers.0.weight", 1), ("layers.2.weight", 2)])
        {'layers': [{'weight': 1}, {}, {'weight': 2}]}
    """
    pairs = tree.items() if isinstance(tree, dict) else tree
    root = _Branch()
    for path, leaf in pairs:
        *above, last = path.split(".")
        node = root
        for key in above:
            child = node.get(key)
            if not isinstance(child, _Branch):  # nothing there yet, or a leaf that also has paths below it
                child = node[key] = _Branch() if key not in node else _Branch({"": child})
            node = child
        if isinstance(there := node.get(last), _Branch):
            there[""] = leaf
        else:
            node[last] = leaf
    return _plain(root) if root else []


def tree_reduce(fn: Callable[[Any, Any], Any], tree: Any, initializer: Any = None, is_leaf: IsLeaf | None = None) -> Any:
    """Fold the leaves of ``tree``, in order, into one value.

    Args:
        fn: Called with the value so far and the next leaf.
        tree: The tree to fold.
        initializer: The value to start from; ``None`` starts from the first leaf.
        is_leaf: Says of a node whether it counts as a leaf although it is a branch.

    Returns:
        The last value; ``initializer`` if there are no leaves.

    Example:
        >>> tree_reduce(lambda total, x: total + x, {"a": [1, 2, 3], "b": [4, 5]})
        15
    """
    value = initializer
    for _, leaf in tree_flatten(tree, is_leaf=is_leaf):
        value = leaf if value is None else fn(value, leaf)
    return value


def tree_merge(tree_a: Any, tree_b: Any, merge_fn: Callable[[Any, Any], Any] | None = None) -> Any:
    """Join two trees into one that has the leaves of both.

    An empty branch, or ``None``, gives way to what stands at its place in the other tree.

    Args:
        tree_a: The first tree; its order and its kinds of sequence are kept.
        tree_b: The second tree.
        merge_fn: Makes one leaf from two at the same place.

    Raises:
        ValueError: Both trees have a leaf at the same place and ``merge_fn`` is ``None``, or branches of different
            kinds meet.

    Example:
        >>> tree_merge({"a": 1, "c": [{}]}, {"b": 2, "c": [{"d": 3}]})
        {'a': 1, 'c': [{'d': 3}], 'b': 2}
    """
    if _is_absent(tree_b) and tree_a is not None:
        if tree_b is not None and _is_absent(tree_a) and type(tree_a) is not type(tree_b):
            raise ValueError(f"[tree_merge] an empty {type(tree_a).__name__} meets an empty {type(tree_b).__name__}.")
        return tree_a
    if _is_absent(tree_a):
        return tree_b
    if isinstance(tree_a, dict) and isinstance(tree_b, dict):
        merged = dict(tree_a)
        for k, v in tree_b.items():
            merged[k] = tree_merge(merged[k], v, merge_fn) if k in merged else v
        return merged
    if isinstance(tree_a, (list, tuple)) and isinstance(tree_b, (list, tuple)):
        shared = min(len(tree_a), len(tree_b))
        items = [tree_merge(a, b, merge_fn) for a, b in zip(tree_a, tree_b, strict=False)]
        return _like(tree_a, [*items, *tree_a[shared:], *tree_b[shared:]])
    if merge_fn is None:
        raise ValueError(
            f"[tree_merge] both trees have something at the same place, of types {type(tree_a).__name__} and "
            f"{type(tree_b).__name__}; pass merge_fn to make one of the two."
        )
    return merge_fn(tree_a, tree_b)


class _Branch(dict[str, Any]):
    """A branch of a tree under construction, told apart from a leaf that happens to be a dict."""


LONGEST_LIST = 1_000_000  # a path comes from a file as a rule: "0.999999999999" must not fill the memory


def _plain(node: Any) -> Any:
    """A _Branch as what it stands for: a list where all keys are whole numbers, else a dict; the leaf if it is alone."""
    if not isinstance(node, _Branch):
        return node
    if len(node) == 1 and "" in node and not isinstance(node[""], _Branch):
        return node[""]
    places = {int(k) for k in node if k.isdecimal()}
    if len(places) < len(node):  # also "1" beside "01"
        return {k: _plain(v) for k, v in node.items()}
    items = {int(k): _plain(v) for k, v in node.items()}
    length = max(items) + 1
    if length > max(LONGEST_LIST, len(items)):
        raise ValueError(f"[tree_unflatten] position {length - 1} in a list of {len(items)} leaves is too far out.")
    return [items.get(i, {}) for i in range(length)]


def _at(trees: tuple[Any, ...], key: Any, caller: str) -> list[Any]:
    """What stands at ``key`` in each tree."""
    try:
        return [tree[key] for tree in trees]
    except (KeyError, IndexError, TypeError) as e:
        kind = KeyError if isinstance(e, TypeError) else type(e)
        raise kind(
            f"[{caller}] a further tree has nothing at {key!r}: every tree needs the branches of the first one."
        ) from None


def _like(sequence: Any, items: list[Any]) -> Any:
    """``items`` in a sequence of the same type as ``sequence``."""
    if isinstance(sequence, list):
        return items
    kind = type(sequence)
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def _is_absent(tree: Any) -> bool:
    return tree is None or (isinstance(tree, (dict, list, tuple)) and not tree)
