"""Which recipe benchmarks/savings advises: what stands first, and how the papers' order is compared."""

from __future__ import annotations

import sys

from graphs import ROOT

sys.path.append(str(ROOT))

from dataclasses import replace

import pytest

from benchmarks.savings.advice import advice, agreement, controls
from benchmarks.savings.reading import Line
from benchmarks.savings.tables import MINIATURE, TABLES

TABLE = TABLES["cpu"](MINIATURE)


def line(name, *finals, saves=None, flops=100):
    """A line whose runs have lost less by the logarithm of the operations, to these final losses."""
    records = tuple(
        {
            "decayed": [[2, 0.4 * flops, final + 1], [4, 0.7 * flops, final + 0.3], [6, flops, final]],
            "curve": [[0, 0, 5.0]],
            "needs": [{"flops": 30, "tokens_per_parameter": 9.0}] if name != "scratch" else [],
        }
        for final in finals
    )
    row = TABLE.row(name)
    return Line(row if saves is None else replace(row, paper=saves), records)


SCRATCH = line("scratch", 1.0, 1.01, 0.99)


def test_the_cheapest_row_stands_first_and_its_source_is_added():
    text = advice(
        TABLE, [SCRATCH, line("FPI", 0.9), line("AKI", 0.4), line("DirectCopy", 1.2)], complete=True
    )
    _, have, want, take, operations, together, others, _ = text.split("|")
    assert (have, want) == (" a trained model ", " the same depth, wider ")
    assert take == " [AKI](../examples/04-bert2bert-aki/README.md) "
    percent = int(operations.strip(" ≤%"))
    assert 40 < percent < 75
    assert together.strip() == f"{percent + 30} %"
    assert others.strip() == "none"


def test_a_row_of_another_size_is_a_control_and_is_not_advised():
    lines = [SCRATCH, line("source trained on", 0.3, flops=50), line("AKI", 0.4)]
    text = advice(TABLE, lines, complete=True)
    assert "[AKI]" in text.split("|")[3]
    assert "source trained on" not in text
    (said,) = controls(lines)
    assert said.startswith("The row `source trained on` keeps its size. It reaches scratch's loss at ")
    assert "ends at 0.3000 after 50 %. The row `AKI` has the wanted size" in said
    assert not list(controls([SCRATCH, line("AKI", 0.4)]))


def test_rows_within_twice_the_seeds_spread_are_as_good():
    lines = [line("scratch", 1.0, 1.1, 0.9), line("FPI", 0.61), line("AKI", 0.6), line("DirectCopy", 1.2)]
    text = advice(TABLE, lines, complete=True)
    assert "[AKI]" in text.split("|")[3]
    assert "[FPI]" in text.split("|")[6]
    assert "DirectCopy" not in text


def test_no_row_is_advised_where_the_seeds_tell_none_from_scratch():
    lines = [line("scratch", 1.0, 1.1, 0.9), line("FPI", 0.99), line("AKI", 1.4)]
    text = advice(TABLE, lines, complete=True)
    assert text.split("|")[3] == " scratch: the seeds tell no row from it "
    assert "[FPI]" in text.split("|")[6]


def test_no_row_is_advised_where_none_reaches_scratch():
    text = advice(TABLE, [SCRATCH, line("FPI", 1.4), line("AKI", 1.2)], complete=True)
    assert text.split("|")[3] == " scratch: no row reaches its loss "


def test_missing_measurements_are_named_with_the_papers_numbers():
    text = advice(TABLE, [SCRATCH, line("AKI", 0.4)], complete=False)
    assert "not measured yet" in text
    assert text.index("45.2") < text.index("38.4") < text.index("30.4") < text.index("12.2")


@pytest.mark.parametrize(
    ("aki", "fpi", "said"),
    [
        (0.4, 0.9, "the same for 1, the opposite for 0, and open for 0."),
        (0.9, 0.4, "the same for 0, the opposite for 1 (FPI before AKI), and open for 0."),
        (0.9, 0.9, "the same for 0, the opposite for 0, and open for 1."),
        (1.3, 1.4, "the same for 0, the opposite for 0, and open for 1."),
        (0.9, 1.4, "the same for 1, the opposite for 0, and open for 0."),
    ],
)
def test_pairs_are_compared_with_the_papers(aki, fpi, said):
    text = " ".join(agreement([SCRATCH, line("FPI", fpi), line("AKI", aki)]))
    assert text.startswith("Papers rank 1 pairs of these rows. ")
    assert said in text
