"""Sources of results: those files, and positions, that a search through all cells finds."""

import gc
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.arrays import inputs
from aggarray.arrays.master import MasterArray
from tests.support.netcdf import cube, write


@pytest.fixture(scope="module")
def tas(tmp_path_factory: pytest.TempPathFactory) -> MasterArray:
    """Six tiles over time and latitude: months of two years, one of them in degC, one with decreasing latitudes."""
    folder = tmp_path_factory.mktemp("tiles")
    for n, days in enumerate(([0, 10, 20, 31], [40, 370], [380, 400, 420])):
        for m, lats in enumerate(((10.0, 20.0), (50.0, 40.0, 30.0))):
            write(folder / f"{n}{m}.nc", cube(days, lats=lats))
    return aa.open(folder)["tas"]


def files_of_cells(array: MasterArray) -> np.ndarray:
    """Return the number of the file of each cell."""
    numbers = np.full(array.shape, -1)
    for n, source in enumerate(array.sources()):
        numbers[np.ix_(*(np.arange(size)[i] for size, i in zip(array.shape, source.location, strict=True)))] = n
    assert (numbers >= 0).all()
    return numbers


def months(array: MasterArray) -> np.ndarray:
    return np.array([date.astype("M8[M]").astype(int) % 12 for date in array.coords["time"].datetimes().astype("M8[s]")])


#: What is computed of an array; and the files of the cells that an element needs, of all files, all months and its position.
CASES: dict[str, tuple[Callable[[MasterArray], MasterArray], Callable[[np.ndarray, np.ndarray, tuple[int, ...]], Any]]] = {
    "mean": (lambda a: a.mean("time"), lambda f, m, at: f[:, at[0], at[1]]),
    "several": (lambda a: a.max(["time", "lon"]), lambda f, m, at: f[:, at[0]]),
    "all": (lambda a: a.sum(), lambda f, m, at: f),
    "by": (lambda a: a.mean("time", by="month"), lambda f, m, at: f[m == np.unique(m)[at[0]], at[1], at[2]]),
    "median": (lambda a: a.median("lat"), lambda f, m, at: f[at[0], :, at[1]]),
    "quantiles": (lambda a: a.quantile([0.1, 0.5], "time"), lambda f, m, at: f[:, at[1], at[2]]),
    "running": (lambda a: a.running_mean(3), lambda f, m, at: f[at[0] : at[0] + 3, at[1], at[2]]),
    "anomaly": (lambda a: a.anomaly(), lambda f, m, at: f[m == m[at[0]], at[1], at[2]]),
    "twice": (lambda a: a.mean("time", by="month").max("month"), lambda f, m, at: f[:, at[0], at[1]]),
    "lazy": (lambda a: a.mean("time").lazy[1:4, ::-1], lambda f, m, at: f[:, 1 + at[0], -1 - at[1]]),
    "flipped": (lambda a: a.mean("time").flip("lat").transpose("lon", "lat"), lambda f, m, at: f[:, -1 - at[1], at[0]]),
    "index": (lambda a: a.running_mean(2).lazy[:, 3], lambda f, m, at: f[at[0] : at[0] + 2, 3, at[1]]),
    "array": (lambda a: a.mean("time").lazy[[4, 0]], lambda f, m, at: f[:, [4, 0][at[0]], at[1]]),
}


@pytest.mark.parametrize("name", CASES)
def test_sources_are_those_of_the_cells(name: str, tas: MasterArray) -> None:
    make, cells_of = CASES[name]
    result, files, number = make(tas), files_of_cells(tas), months(tas)
    uris = [source.uri for source in tas.sources()]
    rng = np.random.default_rng(5)
    keys: list[Any] = [...]
    if result.ndim:
        keys += [tuple(rng.integers(result.shape)), tuple(slice(rng.integers(n), None, 2) for n in result.shape)]
    for key in keys:
        chosen = np.zeros(result.shape, bool)
        chosen[key] = True
        found: dict[tuple[int, ...], set[str | None]] = {}
        for source in result.sources(key):
            served = np.zeros(result.shape, bool)
            served[np.ix_(*(np.arange(n)[i] for n, i in zip(result.shape, source.location, strict=True)))] = True
            assert served.any() and not (served & ~chosen).any()
            for at in np.argwhere(served):
                found.setdefault(tuple(at.tolist()), set()).add(source.uri)
        positions = map(tuple, np.argwhere(chosen).tolist())
        assert found == {at: {uris[n] for n in np.unique(cells_of(files, number, at))} for at in positions}


def test_sources_have_the_conversions_and_the_operation(tas: MasterArray) -> None:
    source = tas.mean("time", by="month").sources((0, 4))[0]
    assert "mean over time by month" in source.conversions and "direction lat decreasing -> increasing" in source.conversions
    assert source.variable == "tas" and len(source.part) == 3 and source.tracking_id is None


def test_values_that_are_pickled_or_saved_have_no_files(tas: MasterArray) -> None:
    result = tas.mean("time")
    (source,) = pickle.loads(pickle.dumps(result)).sources()
    assert source.uri is None
    number = id(result._matrix.references.memory[0])
    assert number in inputs._inputs
    del result
    gc.collect()
    assert number not in inputs._inputs
