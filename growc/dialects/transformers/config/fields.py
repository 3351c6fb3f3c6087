"""The leaves of a config: its numbers, wherever they stand, and what it is with other ones.

Needs: a config as its file says it. Gives: the path to each leaf, changed copies, and values to try.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from torch import nn

Path = tuple[str | int, ...]
"""Keys and places in lists, from the top."""
Values = Mapping[Path, Any]
"""New values of some leaves."""
FEW = 4
"""So few fields, or fewer, are sizes even where their values are 0, 1, 2 and on."""


class NoConfigError(Exception):
    """Values that make no config: an entry behind the end of a list, or below what is no list."""


def leaves(config: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Numbers, truth values and None, with their paths; lists of numbers also as a whole.

    What only numbers names from nought on, as those of classes, has no sizes.
    """
    if isinstance(config, dict):
        if _numbers_names(config):
            return
        for key, value in config.items():
            yield from leaves(value, (*path, key))
    elif isinstance(config, list):
        for place, value in enumerate(config):
            yield from leaves(value, (*path, place))
        if len(config) > 1 and all(_is_number(value) for value in config):
            yield path, config
    elif config is None or isinstance(config, (bool, int, float)):
        yield path, config


def fields(config: Mapping[str, object], path: Path = ()) -> Iterator[tuple[Path, object]]:
    """What a config and the configs of classes in it have, with their paths."""
    for key, value in config.items():
        if isinstance(value, dict) and "model_type" in value:
            yield from fields(value, (*path, key))
        else:
            yield (*path, key), value


def without(config: Mapping[str, object], paths: Iterable[Path]) -> dict[str, object]:
    """A copy without these fields."""
    made = deepcopy(dict(config))
    for path in paths:
        del value_at(made, path[:-1])[path[-1]]
    return made


def complete(module: nn.Module, given: Mapping[str, object]) -> dict[str, object]:
    """A config with all fields that its class has, defaults too."""
    known: Any = getattr(module, "config", None)
    fields = {} if known is None else known.to_dict()
    return {**fields, **{name: value for name, value in given.items() if not isinstance(value, dict)}}


def value_at(config: Any, path: Path) -> Any:
    """What stands at a path."""
    for key in path:
        config = config[key]
    return config


def changed(config: Mapping[str, Any], values: Values) -> dict[str, object]:
    """A copy with other leaves; a path that the config lacks is added.

    Raises NoConfigError.
    """
    made = deepcopy(dict(config))
    try:
        for path in sorted(values, key=len):
            holder: Any = made
            for key in path[:-1]:
                holder = holder.setdefault(key, {}) if isinstance(holder, dict) else holder[key]
            holder[path[-1]] = deepcopy(values[path])
    except (IndexError, KeyError, TypeError) as error:
        raise NoConfigError from error
    return made


def path_of(spelling: str) -> Path:
    """The path that a person writes so. Raises ValueError where it is none.

    >>> path_of("text_config.depths[0]")
    ('text_config', 'depths', 0)
    """
    words = re.findall(r"(?:^|\.)([^.\[\]]+)|\[(\d+)\]", spelling)
    path = tuple(int(place) if place else name for name, place in words)
    if not path or spelled(path) != spelling:
        raise ValueError(f"`{spelling}` is no path to a field")
    return path


def scaled(value: Any, ratio: float) -> Any:
    """The value times a ratio, of the same kind; None where that is no value of its kind."""
    if isinstance(value, list):
        made = [scaled(element, ratio) for element in value]
        return None if None in made else made
    if not _is_number(value) or value == 0:
        return None
    if isinstance(value, float):
        return value * ratio
    product = round(value * ratio)
    return product if product > 0 and abs(product - value * ratio) < 1e-9 else None


def spelled(path: Path) -> str:
    """A path as a person writes it.

    >>> spelled(("text_config", "depths", 0))
    'text_config.depths[0]'
    """
    parts = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in path]
    return "".join(parts).removeprefix(".")


def _numbers_names(config: Mapping[str, object]) -> bool:
    """Whether each value is the place of its key; a few sizes may be that by chance, as 0, 1 and 2."""
    numbers = [value for value in config.values() if type(value) is int]
    return len(config) > FEW and sorted(numbers) == [*range(len(config))]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
