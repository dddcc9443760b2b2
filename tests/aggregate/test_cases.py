"""Every case of the table has the expected outcome in any order of files."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from tests.aggregate.cases_along import cases as along
from tests.aggregate.cases_conform import cases as conform
from tests.aggregate.cases_equal import cases as equal
from tests.aggregate.cases_gaps import cases as gaps
from tests.aggregate.cases_members import cases as members
from tests.aggregate.cases_overlap import cases as overlap
from tests.aggregate.cases_signature import cases as signature
from tests.aggregate.cases_units import cases as units
from tests.support.cases import Folder, Outcome, fingerprint, verify
from tests.support.netcdf import cube, write

CASES = [*along, *conform, *equal, *gaps, *members, *overlap, *signature, *units]


@dataclass(slots=True)
class Written:
    """The files of a case, the expected outcome, and the first actual one."""

    paths: list[str]
    outcome: Outcome
    first: Any = None


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Written]:
    """Return a function that writes the files of a case once."""
    known: dict[str, Written] = {}

    def get(case: Callable[[Folder], Outcome]) -> Written:
        if case.__name__ not in known:
            folder = Folder(tmp_path_factory.mktemp(case.__name__))
            outcome = case(folder)
            known[case.__name__] = Written(folder.paths, outcome)
        return known[case.__name__]

    return get


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Any, seed: int, written: Callable[[Any], Written]) -> None:
    """Each case in three orders has the expected outcome.

    Partitions and reasons are the same in every order.
    """
    result, rng = written(case), np.random.default_rng(seed)
    paths = list(result.paths)
    if not result.outcome.as_given:
        rng.shuffle(paths)
    agg = aa.open(paths, rules=result.outcome.make_rules(), processes=1)
    verify(agg, result.outcome, rng)
    print_of = fingerprint(agg)
    result.first = result.first or print_of
    assert print_of == result.first


def test_cases_have_unique_names_and_docstrings() -> None:
    """Cases have unique names and docstrings."""
    assert len({case.__name__ for case in CASES}) == len(CASES) >= 50
    assert all(case.__doc__ for case in CASES)


BAD: list[tuple[str, dict[str, Any], list[str]]] = [
    ("a facet that no file has", {"separate_by": ["no_such"]}, ["no_such"]),
    ("one of several facets that no file has", {"separate_by": ["source_id", "no_such"]}, ["no_such"]),
    ("new dimension of an attribute that no file has", {"new_dimension": "no_such"}, ["no_such"]),
    ("pattern without a group", {"new_dimension": "member=r\\d+"}, ["group"]),
    ("pattern with two groups", {"new_dimension": "member=(r\\d+)(i\\d+)"}, ["group"]),
    ("pattern that is none", {"new_dimension": "member=(r\\d+"}, ["member"]),
    ("pattern without a name", {"new_dimension": "=(r\\d+)"}, []),
    ("pattern that fits no file", {"new_dimension": "member=_(x\\d+)_"}, ["member"]),
    ("new dimension that is a facet", {"new_dimension": "source_id", "separate_by": ["source_id"]}, ["source_id"]),
    ("along a dimension that no array has", {"along": ["depth"]}, ["depth"]),
    ("order of a dimension that no array has", {"order": {"depth": "name"}}, ["depth"]),
    ("direction of a dimension that no array has", {"directions": {"depth": True}}, ["depth"]),
    ("order of a dimension not joined along", {"along": ["time"], "order": {"lat": "name"}}, ["lat"]),
    ("overlap unknown", {"overlap": "newest"}, ["newest"]),
    ("holes unknown", {"holes": "ignore"}, ["ignore"]),
    ("order unknown", {"order": {"lat": "size"}}, ["size"]),
    ("tolerance negative", {"tolerance": -1}, ["tolerance"]),
    ("coverage beyond all", {"coverage": 1.5}, ["coverage"]),
    ("along is text", {"along": "time"}, ["along"]),
]


@pytest.mark.parametrize(("rules", "texts"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_invalid_rules(tmp_path: Path, rules: dict[str, Any], texts: list[str]) -> None:
    """Contradictory rules raise an AggregationError of one line, with values."""
    for start in (0, 2):
        write(tmp_path / f"tas_r{start + 1}i1_.nc", cube([start, start + 1]), {"source_id": "X"})
    with pytest.raises(aa.AggregationError) as error:
        aa.open(tmp_path, rules=aa.Rules(**rules))
    assert "\n" not in str(error.value) and all(t in str(error.value) for t in texts)


GOOD: list[dict[str, Any]] = [
    {"separate_by": ["source_id"]},
    {"along": ["time"]},
    {"along": ["latitude", "time"]},
    {"directions": {"latitude": False}},
    {"directions": {"lat": False}},
    {"separate_by": []},
]


@pytest.mark.parametrize("rules", GOOD, ids=str)
def test_valid_rules(tmp_path: Path, rules: dict[str, Any]) -> None:
    """Dimensions are given by name or identity; default facets may be absent."""
    for start in (0, 2):
        write(tmp_path / f"{9 - start}.nc", cube([start, start + 1]), {"source_id": "X"})
    (array,) = aa.open(tmp_path, rules=aa.Rules(**rules))
    assert array.shape == (4, 3, 2)
    lats = [30, 20, 10] if "directions" in rules else [10, 20, 30]
    np.testing.assert_array_equal(array.coords["lat"][...], lats)
