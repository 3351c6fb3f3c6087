"""The places of the source's units in resized inputs and outputs of a grown model, for verification."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from growc.algebra.indexmap import Array
from growc.ir.graph import wide

Integers = NDArray[np.integer]

JUNK = 1.0
"""The value fed to units that nothing may depend on."""


@dataclass(frozen=True)
class UnitMap:
    """The places of the source's units on one axis of one output of the grown model.

    axis: the axis of the output.
    index: shape (d,); the source's unit i stands at position index[i] of the grown axis.
    scale: shape (d,); grown values are divided by it before they are compared. None: ones.
    """

    axis: int
    index: Integers
    scale: Array | None = None

    def restrict(self, source: Array, grown: Array) -> tuple[Array, Array]:
        """Both arrays on the source's units.

        Raises IndexError where the grown output has no place for them.
        """
        shown = np.take(grown, self.index, axis=self.axis)
        if self.scale is None:
            return source, shown
        return source, np.asarray(shown / _along(self.scale, self.axis, shown.ndim))


@dataclass(frozen=True)
class StateMap:
    """One axis of a state of the grown model in terms of the source's, for its input and its output.

    axis: the axis of both.
    index: shape (D,); the grown unit j is the source's unit index[j], and zero where index[j] is -1.
    scale: shape (D,); grown units are multiplied by it. None: ones.
    mean: shape (D,); the factor of the mean of all units, which is added. None: zeros.
    junk: shape (D,); units that may have any value. None: there are none.
    """

    axis: int
    index: Integers
    scale: Array | None = None
    mean: Array | None = None
    junk: NDArray[np.bool_] | None = None

    def extend(self, array: Array) -> Array:
        """The grown state for the source's."""
        index = np.asarray(self.index)
        factor = np.where(index < 0, 0, 1 if self.scale is None else self.scale)
        grown = np.take(array, np.maximum(index, 0), axis=self.axis) * _along(factor, self.axis, array.ndim)
        if self.mean is not None and array.shape[self.axis]:
            means = wide(array).mean(axis=self.axis, keepdims=True)
            grown = grown + means * _along(self.mean, self.axis, array.ndim)
        if self.junk is not None:
            grown = np.where(_along(self.junk, self.axis, array.ndim), JUNK, grown)
        return np.asarray(grown, dtype=array.dtype)

    def restrict(self, source: Array, grown: Array) -> tuple[Array, Array]:
        """Both on the grown units. Raises IndexError where the grown output has another number of them."""
        if self.axis >= grown.ndim or grown.shape[self.axis] != len(self.index):
            raise IndexError(self.axis)
        extended = self.extend(source)
        if self.junk is not None:
            grown = np.where(_along(self.junk, self.axis, grown.ndim), extended.dtype.type(JUNK), grown)
        return extended, grown


@dataclass(frozen=True)
class BlendMap:
    """One axis of a state in terms of the source's, where units are means of several.

    axis: the axis of the input and of the output. matrix: shape (D, d); each grown unit is the sum of the
    source's units, weighted by its row.
    """

    axis: int
    matrix: Array

    def extend(self, array: Array) -> Array:
        """The grown state for the source's."""
        product = np.tensordot(self.matrix, wide(array), axes=(1, self.axis))
        return np.asarray(np.moveaxis(product, 0, self.axis), dtype=array.dtype)

    def restrict(self, source: Array, grown: Array) -> tuple[Array, Array]:
        """Both on the grown units. Raises IndexError where the grown output has another number of them."""
        if self.axis >= grown.ndim or grown.shape[self.axis] != len(self.matrix):
            raise IndexError(self.axis)
        return self.extend(source), grown


@dataclass(frozen=True)
class NumberMap:
    """Numbers of units where some units are dropped: the result's unit j is the source's unit kept[j]."""

    kept: Integers

    def extend(self, array: Array) -> Array:
        """The result's numbers for the source's. Raises IndexError for numbers of dropped units."""
        places = np.full(max(int(np.max(self.kept)), int(np.max(array, initial=0))) + 1, -1)
        places[self.kept] = np.arange(len(self.kept))
        moved = np.where(array < 0, array, places[np.maximum(array, 0)])
        if ((moved < 0) & (array >= 0)).any():
            raise IndexError("numbers of units that are gone")
        return np.asarray(moved, dtype=array.dtype)

    def narrow(self, array: Array) -> Array:
        """The source's numbers for the result's."""
        return np.asarray(np.asarray(self.kept)[array], dtype=array.dtype)


OutputMap = UnitMap | StateMap | BlendMap
"""The place of the source's units in an output."""

InputMap = StateMap | BlendMap | NumberMap
"""The rule that fills an input from the source's."""


def _along(vector: Array, axis: int, ndim: int) -> Array:
    """A vector shaped to broadcast along one axis of `ndim`."""
    shape = [1] * ndim
    shape[axis] = -1
    return np.asarray(vector).reshape(shape)
