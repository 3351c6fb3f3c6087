"""Equations of Einsum."""

from __future__ import annotations

import re
from collections.abc import Sequence

Letters = list[str]
"""The axes of one term; `...` stands for any number of them."""


def parse(text: str) -> tuple[list[Letters], Letters]:
    """Return the operands' axes and the result's, which is spelled out if the equation leaves it implicit."""
    left, arrow, right = text.replace(" ", "").partition("->")
    operands = [re.findall(r"\.\.\.|\w", part) for part in left.split(",")]
    if arrow:
        return operands, re.findall(r"\.\.\.|\w", right)
    every = [letter for part in operands for letter in part]
    once = sorted(x for x in set(every) if every.count(x) == 1 and x != "...")
    return operands, (["..."] if "..." in every else []) + once


def spell(operands: Sequence[Letters], result: Letters) -> str:
    """Return the equation as text."""
    return ",".join("".join(part) for part in operands) + "->" + "".join(result)


def pairwise(operands: Sequence[Letters], result: Letters) -> list[str]:
    """Return equations for the first two operands, then for their result and the next operand, and so on."""
    equations = []
    current = operands[0]
    for i, part in enumerate(operands[1:], 1):
        later = {letter for other in (*operands[i + 1 :], result) for letter in other}
        both = dict.fromkeys([*current, *part])
        letters = result if i == len(operands) - 1 else [letter for letter in both if letter in later]
        equations.append(spell([current, part], letters))
        current = letters
    return equations
