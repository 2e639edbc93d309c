"""Module: a dict of the arrays and modules that make up a model.

An attribute whose value is an array, a dict, a list or a tuple (a Module is a dict) is stored as an entry of the dict;
any other attribute is an ordinary one. So a model is a tree that every function over trees can walk, and its
parameters are found by looking, never registered. Frozen parameters are a set of names beside the dict.

Two walks do all the work: ``filter_and_map`` copies chosen parts of the tree out, ``update`` writes parts of it back.
"""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import isthmus.core as mx
from isthmus.nn.walk import arrays_of
from isthmus.utils import tree_flatten, tree_unflatten

__all__ = ["Module"]

Filter = Callable[["Module", str, Any], bool]

_STORED = (mx.array, dict, list, tuple)
_INNER = ("_no_grad", "_training")


class Module(dict[str, Any]):
    """The base of all layers and models.

    Subclasses call ``super().__init__()``, set arrays and other modules as attributes (also within lists and dicts),
    and define ``__call__``. Names that begin with an underscore are kept but are no parameters.

    Example:
        >>> class MLP(nn.Module):
        ...     def __init__(self, in_dims, hidden_dims, out_dims):
        ...         super().__init__()
        ...         self.layers = [nn.Linear(in_dims, hidden_dims), nn.Linear(hidden_dims, out_dims)]
        ...
        ...     def __call__(self, x):
        ...         return self.layers[1](nn.relu(self.layers[0](x)))
        >>> model = MLP(2, 8, 1)
        >>> model.layers[0].weight.shape
        (8, 2)
    """

    __call__: Callable[..., Any]

    def __init__(self) -> None:
        self._no_grad: set[str] = set()
        self._training = True

    # Attributes

    def __getattr__(self, key: str) -> Any:
        value = self.get(key)
        if value is not None:
            return value
        kind = type(self).__name__
        if key in _INNER:
            raise AttributeError(f"{kind!r} object is not set up: call super().__init__() in {kind}.__init__.")
        raise AttributeError(f"{kind!r} object has no attribute {key!r}", name=key, obj=self)

    def __setattr__(self, key: str, val: Any) -> None:
        if isinstance(val, _STORED):
            if key in self.__dict__:
                del self.__dict__[key]
            self[key] = val
        else:
            super().__setattr__(key, val)
            if key in self:
                del self[key]

    def __delattr__(self, name: str) -> None:
        if name in self:
            del self[name]
        else:
            super().__delattr__(name)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}({self._extra_repr()}"]
        for name, child in tree_flatten(self.children(), is_leaf=self.is_module):
            lines.append(textwrap.indent(f"({name}): {child!r}", "  "))
        return lines[0] + ")" if len(lines) == 1 else "\n".join([*lines, ")"])

    def _extra_repr(self) -> str:
        """What stands between the brackets of ``repr``; for subclasses to say their sizes."""
        return ""

    @property
    def state(self) -> "Module":
        """The module itself, as the dict of all that is stored in it: what is written here changes the module."""
        return self

    @property
    def training(self) -> bool:
        """Whether the module is in training mode; set it by :meth:`train` and :meth:`eval`."""
        return self._training

    # Filters, for filter_and_map

    @staticmethod
    def is_module(value: Any) -> bool:
        """Whether ``value`` is a Module."""
        return isinstance(value, Module)

    @staticmethod
    def valid_child_filter(module: "Module", key: str, value: Any) -> bool:
        """Keeps what may be a module or hold modules."""
        return isinstance(value, (dict, list))

    @staticmethod
    def valid_parameter_filter(module: "Module", key: str, value: Any) -> bool:
        """Keeps arrays, and what may hold arrays, whose name does not begin with an underscore."""
        return isinstance(value, (dict, list, mx.array)) and not key.startswith("_")

    @staticmethod
    def trainable_parameter_filter(module: "Module", key: str, value: Any) -> bool:
        """Keeps parameters that are not frozen."""
        return (
            isinstance(value, (dict, list, mx.array)) and not key.startswith("_") and key not in module._no_grad
        )

    # Reading

    def filter_and_map(
        self,
        filter_fn: Filter,
        map_fn: Callable[[Any], Any] | None = None,
        is_leaf_fn: Filter | None = None,
    ) -> dict[str, Any]:
        """Copy the parts of the module that ``filter_fn`` chooses into a tree of plain dicts and lists.

        Args:
            filter_fn: Called with the module, the name and the value of each entry, says whether to keep it. The name
                of an entry of a list or dict is joined to the names above it within the module: ``"layers.0"``.
            map_fn: Makes the value to store from the one found.
            is_leaf_fn: Called in the same way, says whether an entry is taken as it is. By default everything but
                modules, dicts and lists is.

        Returns:
            The tree. An entry of a list or of a dict that is not kept leaves an empty dict in its place.

        Raises:
            RuntimeError: ``is_leaf_fn`` denies a leaf that cannot be looked into.
        """

        def walk(module: Module, key: str, value: Any) -> Any:
            if not isinstance(value, (dict, list)) if is_leaf_fn is None else is_leaf_fn(module, key, value):
                return value if map_fn is None else map_fn(value)
            if isinstance(value, Module):
                return {k: walk(value, k, v) for k, v in value.items() if filter_fn(value, k, v)}
            if isinstance(value, dict):
                places: Any = value.items()
            elif isinstance(value, list):
                places = enumerate(value)
            else:
                raise RuntimeError(
                    f"[filter_and_map] {key!r} has type {type(value).__name__}, which cannot be looked into: "
                    "is_leaf_fn must return True for it."
                )
            inside = {}
            for k, v in places:
                name = f"{key}.{k}"
                inside[k] = walk(module, name, v) if filter_fn(module, name, v) else {}
            return inside if isinstance(value, dict) else list(inside.values())

        return {k: walk(self, k, v) for k, v in self.items() if filter_fn(self, k, v)}

    def parameters(self) -> dict[str, Any]:
        """All arrays of the module and of the modules in it, as a tree of dicts and lists."""
        return arrays_of(self, Module, False)

    def trainable_parameters(self) -> dict[str, Any]:
        """All arrays that are not frozen, as a tree of dicts and lists."""
        return arrays_of(self, Module, True)

    def children(self) -> dict[str, Any]:
        """The modules directly in this one."""
        return self.filter_and_map(
            self.valid_child_filter, is_leaf_fn=lambda module, key, value: isinstance(value, Module)
        )

    def leaf_modules(self) -> dict[str, Any]:
        """The modules within this one that hold no further modules."""

        def is_leaf_module(module: Module, key: str, value: Any) -> bool:
            return isinstance(value, Module) and not tree_flatten(value.children(), is_leaf=self.is_module)

        return self.filter_and_map(self.valid_child_filter, is_leaf_fn=is_leaf_module)

    def named_modules(self) -> list[tuple[str, "Module"]]:
        """This module, named ``""``, and all modules in it, each with its dotted name."""
        found: list[tuple[str, Module]] = []
        self.apply_to_modules(lambda name, module: found.append((name, module)))
        return found

    def modules(self) -> list["Module"]:
        """This module and all modules in it."""
        return [module for _, module in self.named_modules()]

    # Writing

    def update(self, parameters: dict[str, Any], strict: bool = True) -> "Module":  # type: ignore[override]
        """Replace parameters by those given.

        Args:
            parameters: A tree like that of :meth:`parameters`, or a part of it.
            strict: Refuse what does not fit the module; otherwise what does not fit is passed over.

        Returns:
            The module.

        Raises:
            ValueError: ``strict``, and ``parameters`` names something that is not a parameter of the module, or
                gives something that is not an array.

        Example:
            >>> model = nn.Linear(2, 2, bias=False)
            >>> model.update({"weight": mx.eye(2)})
            Linear(input_dims=2, output_dims=2, bias=False)
        """
        _update(self, parameters, strict, "")
        return self

    def update_modules(self, modules: dict[str, Any], strict: bool = True) -> "Module":
        """Replace modules in this one by those given.

        Args:
            modules: A tree like that of :meth:`children`, or a part of it.
            strict: Refuse what does not fit the module; otherwise what does not fit is passed over.

        Returns:
            The module.

        Raises:
            ValueError: ``strict``, and ``modules`` names something that is not a module in this one, or gives
                something that is not a module.
        """
        _update_modules(self, modules, strict, "")
        return self

    def apply(self, map_fn: Callable[[mx.array], mx.array], filter_fn: Filter | None = None) -> "Module":
        """Replace every parameter by ``map_fn`` of it; ``filter_fn`` may choose fewer.

        Example:
            >>> nn.Linear(2, 2).apply(lambda x: x.astype(mx.float16)).weight.dtype
            mlx.core.float16
        """
        return self.update(self.filter_and_map(filter_fn or self.valid_parameter_filter, map_fn))

    def apply_to_modules(self, apply_fn: Callable[[str, "Module"], Any]) -> "Module":
        """Call ``apply_fn`` with the dotted name and the module, for this module (named ``""``) and all in it.

        A module comes before those in it, the last of several first.
        """
        waiting: list[tuple[str, Module]] = [("", self)]
        while waiting:
            name, module = waiting.pop()
            apply_fn(name, module)
            prefix = f".{name}" if name else ""
            waiting += tree_flatten(module.children(), prefix=prefix, is_leaf=self.is_module)
        return self

    def set_dtype(
        self,
        dtype: Any,
        predicate: Callable[[Any], bool] | None = lambda x: mx.issubdtype(x, mx.floating),
    ) -> "Module":
        """Convert the parameters to ``dtype``.

        Args:
            dtype: The dtype to convert to.
            predicate: Called with a parameter's dtype, says whether to convert it; ``None`` converts all.

        Returns:
            The module.

        Raises:
            ValueError: ``predicate`` is neither ``None`` nor callable.
        """
        if predicate is None:
            self.apply(lambda x: x.astype(dtype))
        elif callable(predicate):
            self.apply(lambda x: x.astype(dtype) if predicate(x.dtype) else x)
        else:
            raise ValueError(f"[set_dtype] predicate must be a function of a dtype or None, not {predicate!r}.")
        return self

    # Modes

    def train(self, mode: bool = True) -> "Module":
        """Put the module and all in it into training mode, or out of it with ``mode=False``.

        Layers that act differently in training ask :attr:`training` (dropout).
        """
        self.apply_to_modules(lambda _, module: module._set_training_mode(mode))
        return self

    def eval(self) -> "Module":
        """Put the module and all in it into evaluation mode: ``train(False)``."""
        return self.train(False)

    def _set_training_mode(self, mode: bool) -> None:
        """For subclasses that have more to do than to remember the mode."""
        self._training = mode

    def freeze(
        self, *, recurse: bool = True, keys: str | list[str] | None = None, strict: bool = False
    ) -> "Module":
        """Take parameters out of the trainable ones, so that no gradient is computed for them.

        Args:
            recurse: Also in the modules within this one.
            keys: Only parameters of this name, or of these names.
            strict: Refuse a name that the module lacks; with ``recurse``, that no module within it has either.

        Returns:
            The module.

        Raises:
            KeyError: ``strict``, and there is no member of a name given.

        Example:
            >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
            >>> model.freeze(keys="bias").trainable_parameters().keys()
            dict_keys(['layers'])
        """

        def freeze_one(_: str, module: Module) -> None:
            if keys is None:
                own = module.filter_and_map(
                    lambda m, k, v: m.valid_parameter_filter(m, k, v) and not isinstance(v, Module)
                )
                module._no_grad.update(name for name, _ in tree_flatten(own))
            else:
                module._no_grad.update(names)

        names = self._names(keys, recurse, strict, "freeze")
        return self._each(freeze_one, recurse)

    def unfreeze(
        self, *, recurse: bool = True, keys: str | list[str] | None = None, strict: bool = False
    ) -> "Module":
        """Make frozen parameters trainable again; the arguments are those of :meth:`freeze`.

        Example:
            >>> model = nn.Linear(2, 2).freeze().unfreeze(keys="bias")
            >>> list(model.trainable_parameters())
            ['bias']
        """

        def unfreeze_one(_: str, module: Module) -> None:
            if keys is None:
                module._no_grad.clear()
            else:
                module._no_grad.difference_update(names)

        names = self._names(keys, recurse, strict, "unfreeze")
        return self._each(unfreeze_one, recurse)

    def _names(self, keys: str | list[str] | None, recurse: bool, strict: bool, caller: str) -> list[str]:
        """``keys`` as a list; strictly, each must be a member here or, with ``recurse``, of some module within."""
        names = [keys] if isinstance(keys, str) else list(keys or ())
        if strict:
            modules = self.modules() if recurse else [self]
            for name in names:
                if not any(name in module for module in modules):
                    raise KeyError(f"[{caller}] Module doesn't contain member {name}{_known(self)}.")
        return names

    def _each(self, fn: Callable[[str, "Module"], None], recurse: bool) -> "Module":
        if recurse:
            self.apply_to_modules(fn)
        else:
            fn("", self)
        return self

    # Files

    def load_weights(
        self, file_or_weights: str | Path | list[tuple[str, mx.array]], strict: bool = True
    ) -> "Module":
        """Replace parameters by those of a file or a list.

        Args:
            file_or_weights: The path of a ``.safetensors`` or ``.npz`` file, or pairs (name, array).
            strict: Every parameter of the module must be there, with its shape, and nothing else. Otherwise what the
                module has is taken, of any shape, and the rest passed over.

        Returns:
            The module.

        Raises:
            ValueError: ``strict``, and names or shapes do not match.
        """
        if isinstance(file_or_weights, (str, Path)):
            weights = list(mx.load(str(file_or_weights)).items())
        else:
            weights = list(file_or_weights)
        if strict:
            _check_weights(dict(tree_flatten(self.parameters())), dict(weights))
        if weights:
            self.update(tree_unflatten(weights), strict=False)
        return self

    def save_weights(self, file: str | Path) -> None:
        """Write all parameters to ``file``: ``.safetensors`` or ``.npz``.

        Raises:
            ValueError: The name ends in something else.
        """
        file = str(file)
        weights = tree_flatten(self.parameters(), destination={})
        if file.endswith(".npz"):
            mx.savez(file, **weights)
        elif file.endswith(".safetensors"):
            mx.save_safetensors(file, weights)
        else:
            raise ValueError(
                f"[save_weights] unknown kind of file {file!r}: the name must end in .npz or .safetensors."
            )


def _update(dst: Any, src: Any, strict: bool, place: str) -> None:
    """Write the arrays of the tree ``src`` into ``dst``, a module, dict or list that is at ``place`` in the model."""
    if isinstance(src, dict) and isinstance(dst, dict):
        for k, new in src.items():
            old = dst.get(k)
            if isinstance(old, mx.array):
                if strict and not isinstance(new, mx.array):
                    if _is_hole(new) and not isinstance(dst, Module):
                        continue
                    raise _not_a(new, "an array", f"{place}{k}", "update")
                dst[k] = new
            elif old is not None:
                _update(old, new, strict, f"{place}{k}.")
            elif strict:
                raise ValueError(f'[update] Module does not have parameter named "{place}{k}"{_known(dst)}.')
    elif isinstance(src, list) and isinstance(dst, list):
        for i, new in enumerate(src):
            if i >= len(dst):
                if strict:
                    raise ValueError(
                        f"[update] List index {i} is out of bounds: {place.rstrip('.')!r} has length {len(dst)}."
                    )
                break
            if isinstance(dst[i], mx.array):
                if strict and not isinstance(new, mx.array):
                    if _is_hole(new):
                        continue
                    raise _not_a(new, "an array", f"{place}{i}", "update")
                dst[i] = new
            else:
                _update(dst[i], new, strict, f"{place}{i}.")
    elif strict and not _is_hole(src):
        raise _not_a(src, f"a {_tree_kind(dst)}", place.rstrip("."), "update")


def _update_modules(dst: Any, src: Any, strict: bool, place: str) -> None:
    """Write the modules of the tree ``src`` into ``dst``, a module, dict or list that is at ``place`` in the model."""
    if isinstance(src, dict) and isinstance(dst, dict):
        places: Any = src.items()
    elif isinstance(src, list) and isinstance(dst, list):
        places = enumerate(src)
    elif strict and not _is_hole(src):
        raise _not_a(src, "a module", place.rstrip("."), "update_modules")
    else:
        return
    for k, new in places:
        if not (k in dst if isinstance(dst, dict) else k < len(dst)):
            if strict:
                raise ValueError(
                    f'[update_modules] Module does not have sub-module named "{place}{k}"'
                    f"{_known(dst) if isinstance(dst, dict) else f': the list has length {len(dst)}'}."
                )
        elif isinstance(dst[k], Module) and isinstance(new, Module):
            dst[k] = new
        elif isinstance(new, Module):
            if strict:
                raise ValueError(
                    f"[update_modules] Received invalid type: {type(new).__name__} for {place}{k}, which is no module."
                )
        else:
            _update_modules(dst[k], new, strict, f"{place}{k}.")


def _check_weights(own: dict[str, mx.array], given: dict[str, Any]) -> None:
    """Raise unless ``given`` has the names and shapes of ``own``."""
    if extra := sorted(given.keys() - own.keys()):
        raise ValueError(
            f"[load_weights] Received {len(extra)} parameters not in model:\n{_listed(extra)}\n"
            "Pass strict=False to leave them out."
        )
    if missing := sorted(own.keys() - given.keys()):
        raise ValueError(
            f"[load_weights] Missing {len(missing)} parameters:\n{_listed(missing)}\n"
            "Pass strict=False to keep the model's own."
        )
    for name, array in own.items():
        new = given[name]
        if not isinstance(new, mx.array):
            raise _not_a(new, "an array", name, "load_weights")
        if new.shape != array.shape:
            raise ValueError(
                f"[load_weights] Expected shape {array.shape} but received shape {new.shape} for parameter {name}."
            )


def _is_hole(value: Any) -> bool:
    """Whether this is what filter_and_map leaves, in a list or dict, in the place of what it does not keep."""
    return isinstance(value, (dict, list)) and not value


def _listed(names: list[str]) -> str:
    return ",\n".join(names)


def _known(members: dict[str, Any]) -> str:
    names = ", ".join(repr(k) for k in members)
    return f"; there is {names}" if names else "; it has none"


def _tree_kind(value: Any) -> str:
    return "list" if isinstance(value, list) else "dict"


def _not_a(value: Any, what: str, place: str, caller: str) -> ValueError:
    where = f" for {place!r}" if place else ""
    return ValueError(f"[{caller}] Received invalid type: {type(value).__name__}{where}; it must be {what}.")
