"""The walk over a module's arrays that every training step makes; compiled by mypyc where possible."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from isthmus.graph.array import array


def arrays_of(module: Any, kind: type, trainable: bool) -> dict[str, Any]:
    """The arrays of a module and of the modules in it, as a tree of plain dicts and lists.

    Args:
        module: Of class `kind`, a dict of its members; names that begin with an underscore are passed over.
        kind: `Module`, which the layers define.
        trainable: Leave out what is frozen (the names in `module._no_grad`).
    """
    frozen: Container[str] = module._no_grad if trainable else ()
    out: dict[str, Any] = {}
    for key, value in module.items():
        if key.startswith("_") or key in frozen:
            continue
        if isinstance(value, array):
            out[key] = value
        elif isinstance(value, (dict, list)):
            out[key] = _inside(value, kind, trainable, frozen, key)
    return out


def _inside(value: Any, kind: type, trainable: bool, frozen: Container[str], name: str) -> Any:
    """The same of a member; an entry of a list or dict that is not kept leaves an empty dict in its place."""
    if isinstance(value, kind):
        return arrays_of(value, kind, trainable)
    inside: dict[Any, Any] = {}
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        full = f"{name}.{key}"
        if full in frozen or not isinstance(item, (array, dict, list)):
            inside[key] = {}
        else:
            inside[key] = item if isinstance(item, array) else _inside(item, kind, trainable, frozen, full)
    return inside if isinstance(value, dict) else list(inside.values())
