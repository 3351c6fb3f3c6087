"""Tables with a row for each layer (growc.passes.layers.layer_tables), while layers are rebuilt.

Needs: a model's layers, the layers to build. Gives: for each new layer the nodes that take its row; then the
tables with these rows, with zeros where a new layer adds nothing.

A node between two layers stands between any two of the new layers. If a new layer lacks the sum, it gets a
copy of another layer's sum, which adds zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from growc.dialects.onnx.capture.capture import ORDER
from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.layers.copy_nodes import copied
from growc.dialects.onnx.repair.shape_operands import numbered
from growc.dialects.onnx.writer import Writer
from growc.ir.graph import Node, Order
from growc.passes.edits import Patch
from growc.passes.layers.layer_runs import Layers, LayerTables, ResultLayer

Remember = Callable[[Iterable[ir.Node]], None]
"""A function called with nodes before they differ from the source's."""


class RowTables:
    """All tables of the rebuilt runs. `orders`: the layers to build in each run."""

    def __init__(
        self, layers: Layers, orders: Mapping[int, Sequence[ResultLayer]], clone: Clone, remember: Remember
    ) -> None:
        self.value_of, self.node_of, self.patch = clone.value_of, clone.node_of, Writer(clone).patch
        self.remember, self.orders = remember, orders
        self.all = [rows for rows in layers.rows if rows.run in orders]
        self.taken = {self.value_of(v) for rows in self.all for v in rows.taken}

    @property
    def shared(self) -> Iterator[ir.Value]:
        """The values that belong to no layer, even if only one reads them."""
        for rows in self.all:
            yield from (self.value_of(weight) for weight in rows.tables)
            yield from (self.value_of(v) for node in rows.way for v in node.outputs)

    def reads(self, run: int, layer: int, position: int) -> Iterator[Node]:
        """Yield the nodes of a source's layer that take its rows, if a copy at `position` has rows."""
        for rows in self.all:
            if rows.run == run and position < self.count(rows):
                yield from rows.reads[layer]

    def last_sums(self, run: int, layer: int, position: int) -> dict[ir.Node, int]:
        """Return the sums by which a source's layer adds a row, if a copy at `position` has none.

        Each sum comes with its operand.
        """
        tables = (r for r in self.all if r.run == run and position == self.count(r) and layer < len(r.sums))
        return {self.node_of(rows.sums[layer][0]): rows.sums[layer][1] for rows in tables}

    def missing(self, run: int, layer: int, position: int) -> Iterator[LayerTables]:
        """Yield the tables without a row for a source's layer, if a copy at `position` has one."""
        for rows in self.all:
            if rows.run == run and rows.sums and layer == len(rows.sums) and position < self.count(rows):
                yield rows

    def count(self, rows: LayerTables) -> int:
        """Return the number of a table's rows in the result."""
        return len(self.orders[rows.run]) - bool(rows.sums)

    def units(self, rows: LayerTables) -> list[int]:
        """Return the source's row for each row of the result; -1 if it is zero."""
        order = self.orders[rows.run][: self.count(rows)]
        return [i.source if self._read(rows, i) else -1 for i in order]

    @staticmethod
    def _read(rows: LayerTables, instance: ResultLayer) -> bool:
        """Whether a built layer has the row of its source."""
        own = {node.outputs[0] for node in rows.reads[instance.source]}
        return bool(own) and own.isdisjoint(instance.zeroed)

    def row(self, node: Node, number: int) -> ir.Node:
        """Return a copy of a node that takes a row, with the row of another number; it is in no graph yet."""
        self.remember([self.node_of(node)])
        copy = copied(self.node_of(node), self.node_of(node).inputs)
        self.patch(node, numbered(node, (number,)), copy)
        return copy

    def resize(self) -> None:
        """Give the tables the rows of the new layers, and the values computed from them the new sizes."""
        for rows in self.all:
            units = np.array(self.units(rows), dtype=np.int64)
            before = sum(map(bool, rows.reads))
            if len(units) == 0 or np.array_equal(units, np.arange(before)):
                continue  # a table that no layer reads is removed
            for weight, (axis, block) in rows.tables.items():
                elements = (units[:, None] * block + np.arange(block)).reshape(-1)
                elements[np.repeat(units < 0, block)] = -1
                self.value_of(weight).meta[ORDER] = Order(axis, elements, before * block, "layers")
            for node, (axis, block) in {self.node_of(n): (n, at) for n, at in rows.way.items()}.values():
                self._sized(node, axis, len(units) * block)

    def _sized(self, node: Node, axis: int, count: int) -> None:
        """Let a node's results have `count` elements along an axis."""
        origin = self.node_of(node)
        i = node.laws.shape
        value = None if i is None else node.input(i)
        known = None if value is None or value.known is None else value.known[0].reshape(-1).tolist()
        if i is not None and known is not None and known[axis] > 0:
            fixed = value is not None and value.weight is not None
            entries = [n if fixed else None for n in known]
            entries[axis] = count
            self.remember([origin])
            self.patch(node, Patch({i: tuple(entries)}), origin)
        for out in node.outputs:
            own = self.value_of(out)
            if own.shape is not None:
                own.shape = ir.Shape([count if k == axis else d for k, d in enumerate(own.shape)])
