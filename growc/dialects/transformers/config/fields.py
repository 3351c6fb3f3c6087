"""Leaves of a config: paths to its numbers, copies with other values, and values to try.

The config is given as in its file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from torch import nn

FieldPath = tuple[str | int, ...]
"""Keys and list positions, from the top of a config."""
Values = Mapping[FieldPath, Any]
"""New values of some settings."""
FEW = 4
"""The most fields of a mapping that are taken for sizes even if their values are 0, 1, 2 and so on."""


class NoConfigError(Exception):
    """Values that fit no config: an entry behind the end of a list, or inside of a value that is no list."""


def settings(config: object, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    """Yield numbers, booleans and None with their paths, and lists of numbers as a whole too.

    A mapping that only numbers names from zero on, such as class labels, has no sizes and is skipped.
    """
    if isinstance(config, dict):
        if _numbers_names(config):
            return
        for key, value in config.items():
            yield from settings(value, (*path, key))
    elif isinstance(config, list):
        for place, value in enumerate(config):
            yield from settings(value, (*path, place))
        if len(config) > 1 and all(_is_number(value) for value in config):
            yield path, config
    elif config is None or isinstance(config, (bool, int, float)):
        yield path, config


def fields(config: Mapping[str, object], path: FieldPath = ()) -> Iterator[tuple[FieldPath, object]]:
    """Yield the fields of a config and of its sub-configs of classes, with their paths."""
    for key, value in config.items():
        if isinstance(value, dict) and "model_type" in value:
            yield from fields(value, (*path, key))
        else:
            yield (*path, key), value


def without(config: Mapping[str, object], paths: Iterable[FieldPath]) -> dict[str, object]:
    """Return a copy without these fields."""
    copy = deepcopy(dict(config))
    for path in paths:
        del value_at(copy, path[:-1])[path[-1]]
    return copy


def complete(module: nn.Module, config: Mapping[str, object]) -> dict[str, object]:
    """Return a config with all fields of its class, including defaults."""
    class_config: Any = getattr(module, "config", None)
    fields = {} if class_config is None else class_config.to_dict()
    return {**fields, **{name: value for name, value in config.items() if not isinstance(value, dict)}}


PER_LAYER = "per_layer_config"
"""The field of transformers' configs that holds values of other fields for single layers."""


def fields_by_layer(module: nn.Module, path: FieldPath) -> list[FieldPath]:
    """Return the places of a field in the values for each layer, none where the config has no such values."""
    holder: object = getattr(module, "config", None)
    for key in path[:-1]:
        holder = getattr(holder, str(key), None)
    try:
        count = len(getattr(holder, PER_LAYER))
    except (AttributeError, TypeError, ValueError):
        return []
    return [(*path[:-1], PER_LAYER, str(layer), path[-1]) for layer in range(count)]


def value_at(config: Any, path: FieldPath) -> Any:
    """Return the value at a path."""
    for key in path:
        config = config[key]
    return config


def changed(config: Mapping[str, Any], values: Values) -> dict[str, object]:
    """Return a copy with other settings. A path that the config lacks is added.

    Raises NoConfigError.
    """
    copy = deepcopy(dict(config))
    try:
        for path in sorted(values, key=len):
            holder: Any = copy
            for key in path[:-1]:
                holder = holder.setdefault(key, {}) if isinstance(holder, dict) else holder[key]
            holder[path[-1]] = deepcopy(values[path])
    except (IndexError, KeyError, TypeError) as error:
        raise NoConfigError from error
    return copy


def path_of(spelling: str) -> FieldPath:
    """Parse the written form of a path. Raises ValueError for any other text.

    >>> path_of("text_config.depths[0]")
    ('text_config', 'depths', 0)
    """
    words = re.findall(r"(?:^|\.)([^.\[\]]+)|\[(\d+)\]", spelling)
    path = tuple(int(place) if place else name for name, place in words)
    if not path or spelled(path) != spelling:
        raise ValueError(f"`{spelling}` is no path to a field")
    return path


def scaled(value: Any, ratio: float) -> Any:
    """Return the value times a ratio, of the same kind, or None if the product is no value of that kind."""
    if isinstance(value, list):
        scaled_elements = [scaled(element, ratio) for element in value]
        return None if None in scaled_elements else scaled_elements
    if not _is_number(value) or value == 0:
        return None
    if isinstance(value, float):
        return value * ratio
    product = round(value * ratio)
    return product if product > 0 and abs(product - value * ratio) < 1e-9 else None


def spelled(path: FieldPath) -> str:
    """Return the written form of a path.

    >>> spelled(("text_config", "depths", 0))
    'text_config.depths[0]'
    """
    parts = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in path]
    return "".join(parts).removeprefix(".")


def _numbers_names(config: Mapping[str, object]) -> bool:
    """Whether a mapping numbers names: its values are 0, 1, 2 and so on.

    A few sizes may have such values by chance.
    """
    numbers = [value for value in config.values() if type(value) is int]
    return len(config) > FEW and sorted(numbers) == [*range(len(config))]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
