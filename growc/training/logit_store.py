"""Largest logits of a teacher on disk: sized beforehand, and written on where a run stopped.

A store is a folder: `store.json` says its sizes and how many places are written, in order; `values`,
`indices` and `rest` are arrays of that many places. Qin et al. 2022, section 3.3 ("Saving storage space with
top-K logits").
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from growc.training.inheritance import TopLogits

ARRAYS = {"values": np.float32, "indices": np.int32, "rest": np.float32}
"""What is stored of every place; a number takes four bytes."""


Stored = np.memmap[tuple[int, ...], np.dtype[np.float32 | np.int32]]


@dataclass(frozen=True)
class Sizes:
    """places: tokens in all. count: K. temperature: that of the rest."""

    places: int
    count: int
    temperature: float = 1.0

    @property
    def bytes(self) -> int:
        """What the store takes on disk: 4·(2·K + 1) bytes a place."""
        return 4 * (2 * self.count + 1) * self.places


class LogitStore:
    """The largest logits of `places` tokens, in their order."""

    def __init__(self, folder: str | Path, sizes: Sizes | None = None) -> None:
        """Open a store, or make one of `sizes`. Raises ValueError where it is there with other sizes, and
        FileNotFoundError where neither is given.
        """
        self.folder = Path(folder)
        head = self.folder / "store.json"
        if not head.exists() and sizes is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.sizes, self.written = sizes, 0
            for name in ARRAYS:
                self._array(name, "w+")
            self._note()
        known = json.loads(head.read_text(encoding="utf-8"))
        self.written = int(known.pop("written"))
        self.sizes = Sizes(**known)
        if sizes not in (None, self.sizes):
            raise ValueError(f"`{self.folder}` is a store of {self.sizes}, and not of {sizes}")
        self.arrays = {name: self._array(name, "r+") for name in ARRAYS}

    def _array(self, name: str, mode: Literal["r+", "w+"]) -> Stored:
        shape = (self.sizes.places,) if name == "rest" else (self.sizes.places, self.sizes.count)
        return np.memmap(self.folder / name, dtype=ARRAYS[name], mode=mode, shape=shape)

    def append(self, logits: TopLogits) -> None:
        """Write the logits of the next places, [n, K]. Raises ValueError for others than the store's."""
        count, size = logits.values.shape[-1], logits.values[..., 0].numel()
        if (count, logits.temperature) != (self.sizes.count, self.sizes.temperature):
            raise ValueError(f"{count} logits at temperature {logits.temperature} are not for {self.sizes}")
        if self.written + size > self.sizes.places:
            raise ValueError(f"{self.written + size} places do not fit into {self.sizes.places}")
        at = slice(self.written, self.written + size)
        for name, array in self.arrays.items():
            array[at] = getattr(logits, name).reshape(size, *array.shape[1:]).cpu().numpy()
            array.flush()
        self.written += size
        self._note()

    def read(self, places: slice | torch.Tensor) -> TopLogits:
        """The logits of some places. Raises IndexError for what is not written yet."""
        picked = np.arange(self.sizes.places)[places if isinstance(places, slice) else places.numpy()]
        if picked.size and picked.max() >= self.written:
            raise IndexError(f"place {int(picked.max())} is not written yet: {self.written} are")
        found = {name: torch.from_numpy(np.asarray(array[picked])) for name, array in self.arrays.items()}
        return TopLogits(found["values"], found["indices"].long(), found["rest"], self.sizes.temperature)

    def _note(self) -> None:
        """Say how much is written, only once it is."""
        draft = self.folder / "store.json.new"
        draft.write_text(json.dumps({**asdict(self.sizes), "written": self.written}), encoding="utf-8")
        draft.replace(self.folder / "store.json")
