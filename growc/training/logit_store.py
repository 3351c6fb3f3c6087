"""A teacher's largest logits on disk, of a size known in advance, which a stopped run can continue.

A store is a folder. `store.json` holds its sizes and the number of positions written so far, in order.
`values`, `indices` and `rest` are arrays of that many positions. Qin et al. 2022, section 3.3 ("Saving
storage space with top-K logits").
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
"""The arrays of a store. Each number takes four bytes."""


StoredLogits = np.memmap[tuple[int, ...], np.dtype[np.float32 | np.int32]]


@dataclass(frozen=True)
class StoreSizes:
    """The sizes of a store. places: the number of tokens. count: K. temperature: that of `rest`."""

    places: int
    count: int
    temperature: float = 1.0

    @property
    def bytes(self) -> int:
        """The size of the store on disk: 4·(2·K + 1) bytes per position."""
        return 4 * (2 * self.count + 1) * self.places


class LogitStore:
    """The largest logits of `places` tokens, in order."""

    def __init__(self, folder: str | Path, sizes: StoreSizes | None = None) -> None:
        """Open a store, or create one of `sizes`.

        Raises ValueError if a store of other sizes exists, and FileNotFoundError if there is neither a store
        nor `sizes`.
        """
        self.folder = Path(folder)
        head = self.folder / "store.json"
        if not head.exists() and sizes is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.sizes, self.written = sizes, 0
            for name in ARRAYS:
                self._array(name, "w+")
            self._note()
        header = json.loads(head.read_text(encoding="utf-8"))
        self.written = int(header.pop("written"))
        self.sizes = StoreSizes(**header)
        if sizes not in (None, self.sizes):
            raise ValueError(f"`{self.folder}` is a store of {self.sizes}, and not of {sizes}")
        self.arrays = {name: self._array(name, "r+") for name in ARRAYS}

    def _array(self, name: str, mode: Literal["r+", "w+"]) -> StoredLogits:
        shape = (self.sizes.places,) if name == "rest" else (self.sizes.places, self.sizes.count)
        return np.memmap(self.folder / name, dtype=ARRAYS[name], mode=mode, shape=shape)

    def append(self, logits: TopLogits) -> None:
        """Write the logits of the next positions, [n, K]. Raises ValueError if they do not fit the store."""
        count, size = logits.values.shape[-1], logits.values[..., 0].numel()
        if (count, logits.temperature) != (self.sizes.count, self.sizes.temperature):
            raise ValueError(f"{count} logits at temperature {logits.temperature} are not for {self.sizes}")
        if self.written + size > self.sizes.places:
            raise ValueError(f"{self.written + size} places do not fit into {self.sizes.places}")
        target = slice(self.written, self.written + size)
        for name, array in self.arrays.items():
            array[target] = getattr(logits, name).reshape(size, *array.shape[1:]).cpu().numpy()
            array.flush()
        self.written += size
        self._note()

    def read(self, places: slice | torch.Tensor) -> TopLogits:
        """Return the logits of some positions. Raises IndexError for positions that are not yet written."""
        positions = np.arange(self.sizes.places)[places if isinstance(places, slice) else places.numpy()]
        if positions.size and positions.max() >= self.written:
            raise IndexError(f"place {int(positions.max())} is not written yet: {self.written} are")
        tensors = {
            name: torch.from_numpy(np.asarray(array[positions])) for name, array in self.arrays.items()
        }
        return TopLogits(
            tensors["values"], tensors["indices"].long(), tensors["rest"], self.sizes.temperature
        )

    def _note(self) -> None:
        """Record the number of written positions. Called only after they are written."""
        draft = self.folder / "store.json.new"
        draft.write_text(json.dumps({**asdict(self.sizes), "written": self.written}), encoding="utf-8")
        draft.replace(self.folder / "store.json")
