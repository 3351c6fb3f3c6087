"""Sizes of a module as the solver compares them: of each axis of each stored tensor, and numbers of layers.

Needs: the shapes of a state dict. Gives: `Features`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from torch import nn

Feature = tuple[str, int]
"""A tensor's name and the number of an axis; a container's name and -1: how many layers it has."""
Features = Mapping[Feature, int]
LAYERS = -1
Ties = frozenset[frozenset[str]]
"""Names that are one tensor."""
Shape = tuple[int, ...]


def shapes_of(module: nn.Module) -> dict[str, Shape]:
    """The shapes of all that a checkpoint of the module holds."""
    state = module.state_dict(keep_vars=True)
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def same_tensors(module: nn.Module) -> list[list[str]]:
    """The names of each tensor of a module's state."""
    found: dict[int, list[str]] = defaultdict(list)
    for name, held in module.state_dict(keep_vars=True).items():
        found[id(held)].append(name)  # a state may hold other things too, not all of which have a hash
    return list(found.values())


def ties_of(module: nn.Module) -> Ties:
    """Names that are one tensor."""
    return frozenset(frozenset(names) for names in same_tensors(module) if len(names) > 1)


def read_by(reads: Collection[str], shapes: Mapping[str, Shape], ties: Ties) -> dict[str, Shape]:
    """The shapes of tensors that are read, by all of their names."""
    others = {name for names in ties if names & set(reads) for name in names}
    return {name: shape for name, shape in shapes.items() if name in reads or name in others}


def among(ties: Ties, names: Collection[str]) -> Ties:
    """The ties of some tensors."""
    return frozenset(tied for tied in ties if not tied.isdisjoint(names))


def features(shapes: Mapping[str, Shape]) -> dict[Feature, int]:
    """All sizes by name and axis, the rank of each tensor left to its axes, and the counts of layers."""
    found = {(name, axis): size for name, shape in shapes.items() for axis, size in enumerate(shape)}
    return found | {(name, LAYERS): count for name, count in layer_counts(shapes).items()}


def layer_counts(names: Iterable[str]) -> dict[str, int]:
    """How many numbered parts stand in each container, by the container's name.

    >>> layer_counts(["h.0.weight", "h.1.weight", "h.1.bias", "head.weight"])
    {'h': 2}
    """
    parts: dict[str, set[str]] = defaultdict(set)
    for name in names:
        words = name.split(".")
        for place, word in enumerate(words):
            if word.isdigit() and place:
                parts[".".join(words[:place])].add(word)
    return {container: len(found) for container, found in parts.items()}


def agreement(wanted: Features, found: Features) -> float:
    """Which part of all sizes is as wanted: 1 where they are equal."""
    either = len(wanted.keys() | found.keys())
    same = sum(found.get(feature) == size for feature, size in wanted.items())
    return same / either if either else 1.0
