"""A file's names and a module's: what loading a checkpoint into its class renames, joins and parts.

Classes add or strip a prefix, rename layers, and keep tensors joined (all experts of a layer, say) that files
have apart. transformers says how; here its conversions are run for a few tensors at a time, and on tensors
without data where only names and shapes are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from growc.algebra.indexmap import Array
from growc.checkpoint.files.safetensors_file import Entry
from growc.checkpoint.files.shards import Part
from growc.checkpoint.files.torch_tensors import entry_of, without_data
from growc.dialects.torch.operators.arrays import to_numpy, to_torch
from growc.plans.rows import Rows, stored

if TYPE_CHECKING:
    import torch

    Read = Callable[[str], torch.Tensor]


JOINED = 4
"""How often tensors that are joined or parted are there at once: of source and result, as stored and not."""


@dataclass
class _Conversion:
    """What becomes of some tensors together: `parts` has the pattern that each matched, and its name.

    rename: what is still to be done to the names of the results.
    """

    transform: Any
    first: str
    module: Any
    parts: list[tuple[str, str]] = field(default_factory=list)
    rename: Callable[[str], str] = str

    @property
    def renames(self) -> bool:
        """Whether a tensor gets another name, and stays what it is."""
        from transformers.core_model_loading import WeightRenaming

        return isinstance(self.transform, WeightRenaming)

    def run(self, read: Read) -> dict[str, torch.Tensor]:
        """The results by name."""
        transform = deepcopy(self.transform)
        for pattern, name in self.parts:
            transform.add_tensor(self.first, name, pattern, partial(read, name))
        made = transform.convert(self.first, model=self.module, config=self.module.config)
        return {self.rename(n): t[0] if isinstance(t, list) else t for n, t in made.items()}

    def arrays(self, read: Callable[[str], Array]) -> dict[str, Array]:
        """The results as arrays."""
        return {n: to_numpy(t) for n, t in self.run(lambda name: to_torch(read(name))).items()}

    def rows(self, make: Callable[[str], Rows], whole: Callable[[str], Array]) -> dict[str, Rows]:
        """The results by rows; what is joined or parted is made as a whole."""
        if self.renames:
            [(_, name)] = self.parts
            return {self.rename(self.transform.target_patterns[0]): make(name)}
        return {n: stored(array) for n, array in self.arrays(whole).items()}

    def outline(self, entries: Mapping[str, Entry]) -> tuple[Entry, ...]:
        """What the results will be."""
        made = self.run(lambda name: without_data(entries[name]))
        return tuple(entry_of(name, tensor) for name, tensor in made.items())


class ModuleNames:
    """A file's tensors by the names that its class has for them.

    entries: what they are. unused: tensors of the file that the class does not take.
    """

    def __init__(self, module: Any, file: Mapping[str, Entry], read: Callable[[str], Array]) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping

        self._read = read
        self._mapping = get_model_conversion_mapping(module)
        self.entries: dict[str, Entry] = {}
        self._origins: dict[str, _Conversion] = {}
        conversions, self.unused = _loading(module, list(file), self._mapping)
        for conversion in conversions:
            for entry in conversion.outline(file):
                self.entries[entry.name] = entry
                self._origins[entry.name] = conversion
        self._last: tuple[_Conversion | None, dict[str, Array]] = (None, {})

    def read(self, name: str) -> Array:
        """One tensor of the module. What was joined or parted is kept for the next call."""
        conversion = self._origins[name]
        if self._last[0] is not conversion:
            self._last = (None, {})
            self._last = (conversion, conversion.arrays(self._read))
        found = self._last[1][name]
        if conversion.renames:
            self._last = (None, {})
        return found

    def files(
        self, module: object, entries: Mapping[str, Entry], make: Callable[[str], Rows]
    ) -> Iterator[Part]:
        """The tensors of a module of the same class as a file has them, in the file's order."""
        used = [transform for transform in self._mapping if transform.was_used()]
        return in_file(module, entries, make, used)


def in_file(
    module: Any,
    entries: Mapping[str, Entry],
    make: Callable[[str], Rows],
    conversions: Sequence[Any] | None = None,
) -> Iterator[Part]:
    """The tensors of a module in the file's order. conversions: of transformers, which loading it took; those
    with which a module is saved that no file was loaded into, where nobody says.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import PrefixChange

    def whole(name: str) -> Array:
        return make(name).whole().reshape(entries[name].shape)

    if conversions is None:
        own = get_model_conversion_mapping(module, add_legacy=False)
        conversions = [one for one in own if not isinstance(one, PrefixChange)]
    for conversion in _saving(module, sorted(entries, key=_natural), conversions):
        outline = conversion.outline(entries)
        bytes_at_once = 0 if conversion.renames else JOINED * sum(entry.nbytes for entry in outline)
        names = tuple(name for _, name in conversion.parts)
        yield Part(outline, partial(conversion.rows, make, whole), bytes_at_once, names)


def _natural(name: str) -> Any:
    from transformers.core_model_loading import dot_natural_key

    return dot_natural_key(name)


def _by_kind(transforms: Sequence[object]) -> tuple[list[Any], list[Any], dict[str, object]]:
    """Renamings, converters, and the converter of every pattern."""
    from transformers.core_model_loading import WeightConverter, WeightRenaming

    converters = [t for t in transforms if isinstance(t, WeightConverter)]
    renamings = [t for t in transforms if isinstance(t, WeightRenaming)]
    return renamings, converters, {p: c for c in converters for p in c.source_patterns}


def _loading(
    module: Any, names: Sequence[str], mapping: Sequence[Any]
) -> tuple[list[_Conversion], tuple[str, ...]]:
    """From a file's names to the module's, as transformers does when it loads; and what it does not take."""
    from transformers.core_model_loading import WeightRenaming, rename_source_key

    renamings, converters, of_pattern = _by_kind(mapping)
    prefix, state = module.base_model_prefix, module.state_dict()
    found: dict[str, _Conversion] = {}
    unused: list[str] = []
    for name in sorted(names, key=_natural):
        target, pattern = rename_source_key(name, renamings, converters, prefix, state)
        if target not in state and name in state:
            target, pattern = rename_source_key(name, [], [], prefix, state)
        if target not in state:
            unused.append(name)
            continue
        transform = WeightRenaming(name, target) if pattern is None else of_pattern[pattern]
        conversion = found.setdefault(target, _Conversion(transform, target, module))
        conversion.parts.append((name if pattern is None else pattern, name))
    return list(found.values()), tuple(unused)


def _saving(module: Any, names: Sequence[str], used: Sequence[Any]) -> list[_Conversion]:
    """From the module's names to the file's, as transformers does when it saves what it has loaded."""
    from transformers.core_model_loading import WeightRenaming, apply_converters, apply_renamings

    renamings, converters, of_pattern = _by_kind([t.reverse_transform() for t in reversed(used)])
    found: dict[str, _Conversion] = {}
    for name in names:
        target, pattern = apply_converters(name, converters)
        if pattern is None:
            target = apply_renamings(name, renamings)
            made = _Conversion(WeightRenaming(name, target), target, module)
        else:
            rename = partial(apply_renamings, weight_renamings=renamings)
            made = _Conversion(of_pattern[pattern], target, module, rename=rename)
        conversion = found.setdefault(target, made)
        conversion.parts.append((name if pattern is None else pattern, name))
    return list(found.values())
