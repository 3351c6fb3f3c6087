"""Records are read from JSON by the types of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from growc.errors.json_data import Json, record


@dataclass(frozen=True)
class Inner:
    share: float
    part: Literal["length", "direction"] = "length"


@dataclass(frozen=True)
class Outer:
    name: str
    sizes: tuple[tuple[int, ...], ...]
    near: Mapping[str, Inner]
    inner: Inner | None = None
    zero: bool = False


@dataclass(frozen=True)
class Rows:
    index: NDArray[np.int64]
    scale: NDArray[np.float64] | None = None


def test_a_record_is_what_it_was() -> None:
    outer = Outer("w", ((1, 2), ()), {"y": Inner(0.5, "direction")}, Inner(2.0), True)
    assert record(Outer, asdict(outer)) == outer


def test_fields_that_are_absent_have_their_defaults() -> None:
    assert record(Outer, {"name": "w", "sizes": [[3]], "near": {}}) == Outer("w", ((3,),), {})


def test_fields_that_are_given_are_not_read() -> None:
    assert record(Inner, {"share": "many"}, share=1.0) == Inner(1.0)


def test_arrays_have_the_type_of_their_field() -> None:
    rows = record(Rows, {"index": [1, 0], "scale": [1, 2]})
    assert rows.index.dtype == np.int64
    assert rows.scale is not None
    assert rows.scale.dtype == np.float64
    assert record(Rows, {"index": [], "scale": None}).scale is None


@pytest.mark.parametrize(
    "data",
    [
        [],
        {"share": "0.5"},
        {"share": None},
        {"share": 1.0, "part": 3},
        {},
    ],
)
def test_other_json_is_refused(data: Json) -> None:
    with pytest.raises(TypeError):
        record(Inner, data)


@pytest.mark.parametrize("wrong", [{"name": 1}, {"sizes": [1]}, {"near": []}, {"zero": 0}])
def test_other_json_in_a_field_is_refused(wrong: Mapping[str, Json]) -> None:
    with pytest.raises(TypeError):
        record(Outer, {"name": "w", "sizes": [], "near": {}} | wrong)
