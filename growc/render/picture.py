"""The branches on each residual stream, as a tree in plain text."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from growc.algebra.space import Space, atoms_of, find, leaves, segments
from growc.ir.graph import Value
from growc.passes.axes.queries import AxisQueries
from growc.passes.roles.name_axes import RoleAxis
from growc.render.text import many

if TYPE_CHECKING:
    from growc.passes.compilation import Analysis

WIDTH = 80
"""The most characters of a line."""


def picture_lines(c: Analysis) -> Iterator[str]:
    """Yield for every stream the nodes that make it, the branches on it by kind, and its last readers."""
    picture = _Picture(c)
    for k, axis in enumerate(c.roles.axes.get("hidden", [])):
        yield from [""] if k else []
        yield from picture.stream(axis)


class _Picture:
    def __init__(self, c: Analysis) -> None:
        self.c, self.flow = c, AxisQueries(c.axes)
        self.tied = {use for tie in c.ties for use in tie.uses if tie.is_head}
        self.names = {
            x: name
            for name in ("positions", "experts", "vocab", "ffn", "head_dim", "kv_heads", "heads", "hidden")
            for axis in c.roles.axes.get(name, [])
            for s in axis.spaces
            for x in leaves(s)
        }

    def stream(self, axis: RoleAxis) -> Iterator[str]:
        """Yield the lines of one stream."""
        [space] = axis.spaces
        sources, branches, ends = Counter(self.tables(space)), Counter[str](), Counter[str]()
        inner: set[Space] = set()
        for m in self.flow.maps:
            if find(space) in self.flow.made(m):
                spaces_read = self.flow.read(m)
                is_branch = any(self.role(s) in ("heads", "ffn") for s in spaces_read)
                (branches if is_branch else sources).update(
                    self.text(s) for s in spaces_read if s is not find(space)
                )
                inner |= {p for s in spaces_read for p in segments(s)}
        for m in self.flow.maps:
            if find(space) in self.flow.read(m):
                written = [s for s in self.flow.made(m) if not self.is_inner(s, inner | {find(space)})]
                tie = " (tied to the table)" if self.is_tied(m.node.inputs) else ""
                ends.update(self.text(s) + tie for s in written)
        norms = many(self.norms(space), "norm")
        where = " and ".join(sorted(self.c.roles.scopes.of(axis.spaces)))
        yield f"  hidden {axis.size}{f' in {where}' if where else ''} · {norms}"
        rows = [("from", ", ".join(sources))] if sources else []
        rows += [(f"{count} ×", text) for text, count in branches.items()]
        rows += [("to", ", ".join(ends))] if ends else []
        for k, (label, text) in enumerate(rows):
            last = k == len(rows) - 1
            first, rest = f"  {'└' if last else '├'}─ {label:<5}", f"  {' ' if last else '│'}       "
            yield from textwrap.wrap(text, WIDTH, initial_indent=first + " ", subsequent_indent=rest + " ")

    def is_inner(self, space: Space, inner: Collection[Space]) -> bool:
        """Whether a space is read back into the stream, in whole or by its parts."""
        atoms = list(leaves(space))
        return space in inner or any(find(p) in inner for p in segments(space)) or self.keys(atoms)

    def keys(self, atoms: Iterable[Space]) -> bool:
        """Whether these are the atoms of queries or keys, which attention reads."""
        return {self.names.get(x) for x in atoms} & {"heads", "kv_heads", "head_dim"} != set()

    def tables(self, space: Space) -> Iterator[str]:
        """Yield the tables whose rows are units of the stream."""
        for instance in self.flow.axes.instances:
            table = instance.node.input(0)
            terms = instance.line.inputs[0] if instance.line.inputs else None
            chosen = instance.node.outputs[0] in self.flow.chosen
            if table is None or chosen or table not in self.flow.parameters or "#" not in (terms or ()):
                continue
            spaces = [find(s) for s in self.flow.axes.of(table)]
            if find(space) in spaces:
                tie = " (tied to the head)" if self.is_tied([table]) else ""
                yield from (self.text(s) + tie for s in spaces if s is not find(space))

    def is_tied(self, operands: Iterable[Value | None]) -> bool:
        """Whether one of these is an embedding that is also a head, up to layout."""
        return any(value is not None and value.unmoved in self.tied for value in operands)

    def norms(self, space: Space) -> int:
        """Count the norms that run over the stream."""
        sources = [self.flow.axes.of(n.source)[k] for n in self.c.norms for k in n.axes if n.source.rank]
        closed = {n.close for n in self.c.norms}
        for instance in self.flow.axes.instances:
            source = instance.node.input(0)
            operator = instance.line.treatment in ("layer_norm", "rms_norm") and instance.node not in closed
            if operator and source is not None:
                sources += self.flow.axes.of(source)[-1:]
        return sum(find(s) is find(space) for s in sources)

    def role(self, space: Space) -> str:
        """Return the first name in a space: `heads` for heads × head_dim."""
        names = [self.names.get(x, "") for x in leaves(space)]
        return "heads" if {"heads", "kv_heads", "head_dim"} & set(names) else next(iter(names), "")

    def text(self, space: Space) -> str:
        """`heads 4 × head_dim 16`, `ffn 256`, `40 units`."""
        if self.role(space) == "heads":
            return self.attention(space)
        name = self.role(space)
        return f"{name} {space.size[0]}" if name else many(space.size[0], "unit")

    def attention(self, space: Space) -> str:
        """Return the heads in a space, and the size of one."""
        atoms = set(leaves(space))

        def size(name: str) -> int:
            role_axes = sorted(self.c.roles.axes.get(name, []), key=lambda a: not a.spaces)
            return next((a.size for a in role_axes if set(atoms_of(a.spaces)) <= atoms), 0)

        heads, groups = size("heads") or size("kv_heads"), size("kv_heads")
        grouped = f" in {many(groups, 'group')}" if groups and groups != heads else ""
        return f"attention of heads {heads}{grouped} × head_dim {space.size[0] // max(heads, 1)}"
