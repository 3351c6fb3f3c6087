"""Traits: laws about the elements of an operator's results, or about their values, as words of its row.

An analysis asks for a law (`node.has(VIEW)`), never for an operator. So a new operator needs a row and
nothing else. tests/operators/test_traits.py checks each law with onnxruntime on every operator that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Trait(StrEnum):
    """One law: the origin of the elements of a result, or a property of their values."""

    SAME = "same"
    VIEW = "view"
    TURN = "turn"
    REPEAT = "repeat"
    TAKE = "take"
    JOIN = "join"
    WRITE = "write"
    SIZES = "sizes"
    SUM = "sum"
    RANK = "rank"
    WHOLE = "whole"
    QUANTISE = "quantise"
    DEQUANTISE = "dequantise"
    JUMP = "jump"
    POLE = "pole"


SAME, VIEW, TURN, REPEAT = Trait.SAME, Trait.VIEW, Trait.TURN, Trait.REPEAT
TAKE, JOIN, WRITE, SIZES = Trait.TAKE, Trait.JOIN, Trait.WRITE, Trait.SIZES
MOVES = SAME, VIEW, TURN, REPEAT, TAKE, JOIN
"""Traits of operators whose results are moved elements of operands."""
SUM, RANK, JUMP, POLE = Trait.SUM, Trait.RANK, Trait.JUMP, Trait.POLE
WHOLE, QUANTISE, DEQUANTISE = Trait.WHOLE, Trait.QUANTISE, Trait.DEQUANTISE

LAWS: Mapping[Trait, str] = {
    SAME: "each element is that of operand 0 at its place, in the element type of the result",
    VIEW: "the elements of operand 0 in row-major order, in another shape",
    TURN: "the elements of operand 0, each once, in another order",
    REPEAT: "the elements of operand 0, each once or more",
    TAKE: "elements of operand 0, at places that no element of it decides; some may be left out",
    JOIN: "the elements of all operands, each once",
    WRITE: "elements of operand 0, and in places those of operand 2 (zero where absent), or their sum",
    SIZES: "the shapes of the operands decide the results, their elements do not",
    SUM: "the sum of all operands",
    RANK: "last result: places along an axis by the order of operand 0 along it; first of two: what is there",
    WHOLE: "a next whole number; whole numbers stay as they are",
    QUANTISE: "whole numbers nearest to x / step + zero; operand 1 is step, operand 2 zero, if there is one",
    DEQUANTISE: "(q − zero) · step of such numbers q",
    POLE: "infinite, or no number, for some finite numbers; without it, finite for all of them",
    JUMP: "zero at zero, perhaps not continuous there; what is zero at zero is continuous without it",
}
"""Each law in words, as docs/theory.md has it."""
