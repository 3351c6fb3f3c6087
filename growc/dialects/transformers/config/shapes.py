"""Sizes of a module in the form that the solver compares: axes of stored tensors, and numbers of layers.

They are computed from the shapes of a state dict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from torch import nn

Feature = tuple[str, int]
"""A tensor's name and an axis number, or a container's name and -1, which stands for its number of layers."""
Features = Mapping[Feature, int]
LAYERS = -1
Ties = frozenset[frozenset[str]]
"""Groups of names that are one tensor."""
TensorShape = tuple[int, ...]


def shapes_of(module: nn.Module) -> dict[str, TensorShape]:
    """Return the shapes of all tensors that a checkpoint of the module holds."""
    state = module.state_dict(keep_vars=True)
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def same_tensors(module: nn.Module) -> list[list[str]]:
    """Return the names of each tensor of a module's state."""
    names_of: dict[int, list[str]] = defaultdict(list)
    for name, tensor in module.state_dict(keep_vars=True).items():
        names_of[id(tensor)].append(name)  # by id: a state may hold values without a hash too
    return list(names_of.values())


def ties_of(module: nn.Module) -> Ties:
    """Return the groups of names that are one tensor."""
    return frozenset(frozenset(names) for names in same_tensors(module) if len(names) > 1)


def read_by(reads: Collection[str], shapes: Mapping[str, TensorShape], ties: Ties) -> dict[str, TensorShape]:
    """Return the shapes of tensors that are read, under all of their names."""
    tied_names = {name for names in ties if names & set(reads) for name in names}
    return {name: shape for name, shape in shapes.items() if name in reads or name in tied_names}


def among(ties: Ties, names: Collection[str]) -> Ties:
    """Return the ties that involve some tensors."""
    return frozenset(tied for tied in ties if not tied.isdisjoint(names))


def features(shapes: Mapping[str, TensorShape]) -> dict[Feature, int]:
    """Return all sizes by name and axis, and the numbers of layers. Ranks follow from the axes."""
    sizes = {(name, axis): size for name, shape in shapes.items() for axis, size in enumerate(shape)}
    return sizes | {(name, LAYERS): count for name, count in layer_counts(shapes).items()}


def layer_counts(names: Iterable[str]) -> dict[str, int]:
    """Return the number of numbered parts of each container, by the container's name.

    >>> layer_counts(["h.0.weight", "h.1.weight", "h.1.bias", "head.weight"])
    {'h': 2}
    """
    parts: dict[str, set[str]] = defaultdict(set)
    for name in names:
        words = name.split(".")
        for place, word in enumerate(words):
            if word.isdigit() and place:
                parts[".".join(words[:place])].add(word)
    return {container: len(numbers) for container, numbers in parts.items()}


def agreement(wanted: Features, present: Features) -> float:
    """Return the fraction of sizes that are as wanted: 1 if all are equal."""
    either = len(wanted.keys() | present.keys())
    same = sum(present.get(feature) == size for feature, size in wanted.items())
    return same / either if either else 1.0
