"""Map a file's names to a module's: renaming, joining and splitting, as in loading a checkpoint into its
class.

Classes add or strip a prefix, rename layers, and join tensors (all experts of a layer, say) that files store
separately. transformers defines the conversions. Here they run for a few tensors at a time, and on tensors
without data where only names and shapes are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from growc.algebra.indexmap import Array
from growc.checkpoint.files.safetensors_file import DTYPES, HeaderEntry
from growc.checkpoint.files.shards import TensorGroup
from growc.checkpoint.files.torch_tensors import entry_of, without_data
from growc.checkpoint.files.views import Uncopied, View, rows_of_parts, together, views
from growc.dialects.torch.operators.arrays import to_numpy, to_torch
from growc.errors.diagnostic import Attempt
from growc.plans.lazy_rows import Rows, stored

if TYPE_CHECKING:
    import torch

    Read = Callable[[str], torch.Tensor]


JOINED = 4
"""Copies of joined or split tensors in memory at once: of source and result, as stored and converted."""


@dataclass
class _Conversion:
    """A conversion of some tensors together.

    parts: for each tensor, the pattern that it matched and its name. rename: the renaming that the results'
    names still need.
    """

    transform: Any
    first: str
    module: Any
    parts: list[tuple[str, str]] = field(default_factory=list)
    rename: Callable[[str], str] = str

    @property
    def renames(self) -> bool:
        """Whether the conversion only renames a tensor."""
        from transformers.core_model_loading import WeightRenaming

        return isinstance(self.transform, WeightRenaming)

    def run(self, read: Read) -> dict[str, torch.Tensor]:
        """The results by name, as torch tensors."""
        transform = deepcopy(self.transform)
        for pattern, name in self.parts:
            transform.add_tensor(self.first, name, pattern, partial(read, name))
        converted = transform.convert(self.first, model=self.module, config=self.module.config)
        return {self.rename(n): t[0] if isinstance(t, list) else t for n, t in converted.items()}

    def arrays(self, read: Callable[[str], Array]) -> dict[str, Array]:
        """The results as arrays."""
        return {n: to_numpy(t) for n, t in self.run(lambda name: to_torch(read(name))).items()}

    def rows(self, make: Callable[[str], Rows], whole: Callable[[str], Array]) -> dict[str, Rows]:
        """The results by rows; joined or split tensors are made as a whole."""
        if self.renames:
            [(_, name)] = self.parts
            return {self.rename(self.transform.target_patterns[0]): make(name)}
        return {n: stored(array) for n, array in self.arrays(whole).items()}

    def views(self, entries: Mapping[str, HeaderEntry]) -> dict[str, list[View]] | None:
        """For each input tensor, its parts among the results; None if they do not cover it."""
        inputs = {name: without_data(entries[name]) for _, name in self.parts}
        with Uncopied():
            results = self.run(inputs.__getitem__)
        return views(results, inputs)

    def outline(self, entries: Mapping[str, HeaderEntry]) -> tuple[HeaderEntry, ...]:
        """The entries of the results, computed without data."""
        results = self.run(lambda name: without_data(entries[name]))
        return tuple(entry_of(name, tensor) for name, tensor in results.items())


class ModuleNames:
    """A file's tensors by the names that its class gives them.

    entries: name, element type and shape of each. unused: the file's tensors that the class does not take.
    """

    def __init__(self, module: Any, file: Mapping[str, HeaderEntry], read: Callable[[str], Array]) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping

        self._read, self._module, self._file = read, module, file
        self._mapping = get_model_conversion_mapping(module)
        self.entries: dict[str, HeaderEntry] = {}
        self._origins: dict[str, _Conversion] = {}
        conversions, self.unused = _loading(module, list(file), self._mapping)
        for conversion in conversions:
            for entry in conversion.outline(file):
                self.entries[entry.name] = entry
                self._origins[entry.name] = conversion
        self._last: tuple[_Conversion | None, dict[str, Array]] = (None, {})

    def read(self, name: str) -> Array:
        """One tensor of the module. Results of a joining or splitting are kept for the next call."""
        conversion = self._origins[name]
        if self._last[0] is not conversion:
            self._last = (None, {})
            self._last = (conversion, conversion.arrays(self._read))
        array = self._last[1][name]
        if conversion.renames:
            self._last = (None, {})
        return array

    def rows(self, name: str) -> Rows | None:
        """A tensor of the module by rows, if the file has it in parts."""
        if name not in self.parted:
            return None
        entry = self.entries[name]
        return rows_of_parts(self.parted[name], entry.shape, DTYPES[entry.dtype], self._read)

    @cached_property
    def parted(self) -> dict[str, list[View]]:
        """The parts of each of the module's tensors that the file stores in parts and that consist of these
        alone.
        """
        whole_parts: dict[str, list[View]] = {}
        sound: dict[object, bool] = {}
        for conversion in _saving(self._module, sorted(self.entries, key=_natural), self._used):
            if conversion.renames or (parted := conversion.views(self.entries)) is None:
                continue
            for name, parts in parted.items():
                is_stored = all(
                    view.name in self._file
                    and self._file[view.name].shape == view.shape
                    and self._file[view.name].dtype == self.entries[name].dtype
                    for view in parts
                )
                origin = self._origins[name]
                key = origin.transform
                if is_stored and key not in sound:
                    sound[key] = _agree(conversion, self._origins, self.entries, parted)
                if is_stored and sound[key]:
                    whole_parts[name] = parts
        return whole_parts

    @property
    def _used(self) -> list[object]:
        """The conversions that loading the file used."""
        return [transform for transform in self._mapping if transform.was_used()]

    def files(
        self, module: object, entries: Mapping[str, HeaderEntry], make: Callable[[str], Rows]
    ) -> Iterator[TensorGroup]:
        """The tensors of a module of the same class as a file stores them, in the file's order."""
        return in_file(module, entries, make, self._used)


def in_file(
    module: Any,
    entries: Mapping[str, HeaderEntry],
    make: Callable[[str], Rows],
    conversions: Sequence[object] | None = None,
) -> Iterator[TensorGroup]:
    """The tensors of a module as a file stores them, in the file's order.

    conversions: those of transformers that loading the file used. By default, those with which a module is
    saved that was not loaded from a file.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import PrefixChange

    def whole(name: str) -> Array:
        return make(name).whole().reshape(entries[name].shape)

    if conversions is None:
        mapping = get_model_conversion_mapping(module, add_legacy=False)
        conversions = [
            conversion_rule for conversion_rule in mapping if not isinstance(conversion_rule, PrefixChange)
        ]
    place = 0
    for conversion in _saving(module, sorted(entries, key=_natural), conversions):
        outline = conversion.outline(entries)
        numbers = tuple(range(place, place := place + len(outline)))
        parted = None if conversion.renames else conversion.views(entries)
        if parted is not None:
            numbered = {entry.name: (number, entry) for number, entry in zip(numbers, outline, strict=True)}
            for group in together(view for parts in parted.values() for view in parts):
                yield _part(group, numbered, make)
            continue
        bytes_at_once = 0 if conversion.renames else JOINED * sum(entry.nbytes for entry in outline)
        names = tuple(name for _, name in conversion.parts)
        yield TensorGroup(
            outline, partial(conversion.rows, make, whole), bytes_at_once, names, positions=numbers
        )


def _part(
    group: Sequence[View], known: Mapping[str, tuple[int, HeaderEntry]], make: Callable[[str], Rows]
) -> TensorGroup:
    """Parts that are in the same rows of a tensor."""
    numbers, entries = zip(*(known[view.name] for view in group), strict=True)
    first = group[0]
    at_once = JOINED * sum(entry.nbytes for entry in entries)
    return TensorGroup(
        entries, partial(_parts_of, group, make), at_once, (first.whole,), first.ranges[0], numbers
    )


def _parts_of(group: Sequence[View], make: Callable[[str], Rows]) -> dict[str, Rows]:
    block = make(group[0].whole).read(np.arange(*group[0].ranges[0]))
    return {view.name: stored(view.of(block)) for view in group}


def _agree(
    saving: _Conversion,
    loading: Mapping[str, _Conversion],
    entries: Mapping[str, HeaderEntry],
    parted: Mapping[str, Sequence[View]],
) -> bool:
    """Whether loading joins the parts that saving makes, tried on small tensors."""
    random = np.random.default_rng(0)
    small = {n: HeaderEntry(n, "F32", _small(entries[n].shape, views)) for n, views in parted.items()}
    with Attempt():
        splits = saving.views(small)
        if splits is None:
            return False
        wholes = {n: random.standard_normal(entry.shape).astype(np.float32) for n, entry in small.items()}
        parts = {v.name: v.of(wholes[n][slice(*v.ranges[0])]) for n, views in splits.items() for v in views}
        joined: dict[str, Array] = {}
        for name in wholes:
            joined |= loading[name].arrays(lambda part: parts[part])
        return all(np.array_equal(joined[name], whole) for name, whole in wholes.items())
    return False


def _small(shape: tuple[int, ...], views: Sequence[View]) -> tuple[int, ...]:
    """A small shape that is cut into as many parts along each axis; the axes differ in length."""
    sizes = []
    for axis, size in enumerate(shape):
        step = gcd(size, *(end for view in views for end in view.ranges[axis]))
        sizes.append(size // step * (axis + 2 if step > 1 else 1))
    return tuple(sizes)


def _natural(name: str) -> list[object]:
    from transformers.core_model_loading import dot_natural_key

    return list(dot_natural_key(name))


def _by_kind(transforms: Sequence[object]) -> tuple[list[Any], list[Any], dict[str, object]]:
    """Renamings, converters, and the converter of every pattern."""
    from transformers.core_model_loading import WeightConverter, WeightRenaming

    converters = [t for t in transforms if isinstance(t, WeightConverter)]
    renamings = [t for t in transforms if isinstance(t, WeightRenaming)]
    return renamings, converters, {p: c for c in converters for p in c.source_patterns}


def _loading(
    module: Any, names: Sequence[str], mapping: Sequence[Any]
) -> tuple[list[_Conversion], tuple[str, ...]]:
    """Conversions from a file's names to the module's, as transformers loads; and the names it does not
    take.
    """
    from transformers.core_model_loading import WeightRenaming, rename_source_key

    renamings, converters, of_pattern = _by_kind(mapping)
    prefix, state = module.base_model_prefix, module.state_dict()
    conversions: dict[str, _Conversion] = {}
    unused: list[str] = []
    for name in sorted(names, key=_natural):
        target, pattern = rename_source_key(name, renamings, converters, prefix, state)
        if target not in state and name in state:
            target, pattern = rename_source_key(name, [], [], prefix, state)
        if target not in state:
            unused.append(name)
            continue
        transform = WeightRenaming(name, target) if pattern is None else of_pattern[pattern]
        conversion = conversions.setdefault(target, _Conversion(transform, target, module))
        conversion.parts.append((name if pattern is None else pattern, name))
    return list(conversions.values()), tuple(unused)


def _saving(module: Any, names: Sequence[str], used: Sequence[Any]) -> list[_Conversion]:
    """Conversions from the module's names to the file's, as transformers saves a module that it loaded."""
    from transformers.core_model_loading import WeightRenaming, apply_converters, apply_renamings

    renamings, converters, of_pattern = _by_kind([t.reverse_transform() for t in reversed(used)])
    conversions: dict[str, _Conversion] = {}
    for name in names:
        target, pattern = apply_converters(name, converters)
        if pattern is None:
            target = apply_renamings(name, renamings)
            new = _Conversion(WeightRenaming(name, target), target, module)
        else:
            rename = partial(apply_renamings, weight_renamings=renamings)
            new = _Conversion(of_pattern[pattern], target, module, rename=rename)
        conversion = conversions.setdefault(target, new)
        conversion.parts.append((name if pattern is None else pattern, name))
    return list(conversions.values())
