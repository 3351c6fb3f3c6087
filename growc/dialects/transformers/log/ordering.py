"""Entries of a log in the order that their results ask for.

Needs: entries, and what each is given. Gives: the same, each behind what it is made from, without those that
reach nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from growc.dialects.transformers.log.entry import Entry, Wire
from growc.ir.walk import postorder

Ordered = tuple[tuple[Entry, ...], tuple[tuple[Wire, ...], ...]]
"""Entries, and what each is given, with the results last."""


def ordered(
    entries: Sequence[Entry],
    given: Sequence[Sequence[Wire]],
    results: Sequence[Wire],
    kept: Collection[int] = (),
) -> Ordered:
    """Entries and wires. What is computed twice from the same counts once: layers may share it, or each
    compute its own. kept: numbers of entries that stay whatever they reach.
    """
    places: dict[int, int] = {}
    found: dict[object, int] = {}
    chosen: list[Entry] = []
    wires: list[tuple[Wire, ...]] = []
    wanted = [wire[0] for wire in results if not isinstance(wire, str)]
    for number in _order(given, [*wanted, *kept]):
        those = given[number] if number < len(given) else ()
        from_these = tuple(_moved(wire, places) for wire in those)
        key = number if number in kept else (entries[number], from_these)
        places[number] = found.setdefault(key, len(chosen))
        if places[number] == len(chosen):
            chosen.append(entries[number])
            wires.append(from_these)
    return tuple(chosen), (*wires, tuple(_moved(wire, places) for wire in results))


def _moved(wire: Wire, places: Mapping[int, int]) -> Wire:
    return wire if isinstance(wire, str) else (places[wire[0]], wire[1])


def _order(given: Sequence[Sequence[Wire]], last: Sequence[int]) -> list[int]:
    """Operators behind what they are made from, first operands first: whatever order they ran in."""

    def needs(number: int) -> Iterator[int]:
        those = given[number] if number < len(given) else ()
        yield from (wire[0] for wire in those if not isinstance(wire, str))

    return list(postorder(last, needs))
