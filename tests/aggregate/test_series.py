"""Series of files: their join as columns equals the join of the arrays of all files."""

import shutil
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aggarray as aa
import aggarray.aggregate.series
from aggarray.index.store import Reader
from aggarray.scan.files import scan_files
from aggarray.scan.structure_table import StructureTable
from tests.support.examples import examples

_find_series = aggarray.aggregate.series.find_series


@contextmanager
def single_arrays() -> Iterator[None]:
    """Join the arrays of all files, without series."""
    aggarray.aggregate.series.find_series = lambda *_, **__: iter(())
    try:
        yield
    finally:
        aggarray.aggregate.series.find_series = _find_series


def content(agg: aa.Aggregation) -> list[Any]:
    """Return everything that arrays consist of, as texts and bytes."""
    return [described(item) for array in agg for item in (array, *array.coords.values())]


def described(array: aa.MasterArray) -> list[Any]:
    """Return the fields of an array, the columns of its matrix included."""
    matrix, known = array._matrix, array._known
    references = matrix.references
    parts = [
        (axis, column.tolist()) for columns in (matrix.parts.starts, matrix.parts.steps) for axis, column in columns.items()
    ]
    columns = references.uri, references.variable, references.stamps, references.seen
    # The order of templates is free.
    templates = [references.templates[number] for number in references.template]
    return [
        *(array.name, array.dtype, array.units, array.calendar, repr(array.fill_value), list(array.coords)),
        *(repr(array.attrs), repr(array.file_attrs), matrix.dimensions, matrix.directions, parts),
        *([edges.tolist() for edges in matrix.edges], matrix.refs.tolist(), list(references.uris), list(references.variables)),
        *([(values.dtype, repr(values.tolist())) for values in references.memory],),
        *(templates, [None if column is None else column.tolist() for column in columns]),
        known and [None if values is None else (values.dtype, repr(values.tolist())) for values in known],
    ]


def write(path: Path, times: list[float], **changes: Any) -> None:
    """Write a file of one variable at some times, or at a ``scalar`` time."""
    values = changes.get("values", [t + changes.get("offset", 0) for t in times])
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.setncatts({"title": "series", "tracking_id": path.name, **changes.get("attrs", {})})
        along: tuple[str, ...] = () if changes.get("scalar") else ("time",)
        if along:
            file.createDimension("time", None)
        file.createDimension("lat", 2)
        file.createDimension("bnds", 2)
        time = file.createVariable("time", changes.get("dtype", "f8"), along, fill_value=changes.get("fill"))
        time.setncatts({"units": changes.get("units", "days since 2000-01-01"), "bounds": "time_bnds"})
        bounds = file.createVariable("time_bnds", "f8", (*along, "bnds"))
        lat = file.createVariable("lat", "f8", ("lat",))
        lat.units = "degrees_north"
        tas = file.createVariable("tas", "f4", (*along, "lat"))
        tas.setncatts({"units": "K", "standard_name": "air_temperature", "history": f"made as {path.name}"})
        lat[:] = np.array([10.0, 20.0]) + changes.get("north", 0.0)
        pairs = np.array([[t - 0.5, t + 0.5] for t in times])
        pairs = pairs[:, ::-1] if changes.get("falls") else pairs
        columns = np.array(values)[:, np.newaxis] + np.zeros(2)
        if not along:
            tas.coordinates = "time"
        time[...], bounds[:], tas[:] = (times, pairs, columns) if along else (times[0], pairs[0], columns[0])
        for name, (units, value) in changes.get("scalars", {}).items():
            file.createVariable(name, "f8", ())[...] = value
            file[name].units = units
            tas.coordinates = f"{getattr(tas, 'coordinates', '')} {name}".strip()


#: What may be unlike the other files of an archive.
ODD: list[dict[str, Any]] = [
    {},
    {"north": 1.0},
    {"north": 1e-9},
    {"offset": 3.0},
    {"units": "hours since 2000-01-01"},
    {"units": "days since 1999-12-31"},
    {"falls": True},
    {"attrs": {"source_id": "B"}},
    {"attrs": {"title": "other"}},
]
ANY = st.one_of(st.just(0), st.integers(0, len(ODD) - 1))
FILES = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3), ANY), min_size=2, max_size=9)
RULES = [
    aa.Rules(),
    aa.Rules(trust="assume"),
    aa.Rules(overlap="first"),
    aa.Rules(units={"air_temperature": "degC", "time": "hours since 1990-01-01"}),
    aa.Rules(along=["lat"]),
]


RUNS_IN_TWO_PARTS = [(10, 3, 0), (6, 1, 0), (0, 2, 7), (0, 3, 0), (6, 2, 0), (1, 2, 1), (12, 1, 4), (5, 2, 4)]


def check(folder: Path, paths: list[Path], rules: aa.Rules) -> None:
    """Compare the join of files by series with the join of their arrays."""
    joined = aa.open(paths, rules=rules)
    with single_arrays():
        expected = aa.open(paths, rules=rules)
    assert joined.refusals == expected.refusals
    assert (joined.skipped, joined.duplicates) == (expected.skipped, expected.duplicates)
    assert content(joined) == content(expected)
    shutil.rmtree(folder)


@settings(deadline=None, max_examples=examples(60))
@given(files=FILES, rules=st.sampled_from(RULES), order=st.randoms(use_true_random=False))
# Runs of one file in both parts of a divided group: before, such groups were divided without end.
@example(files=RUNS_IN_TWO_PARTS, rules=RULES[1], order=Random(0))
def test_a_series_equals_the_join_of_its_files(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[int, int, int]], rules: aa.Rules, order: Any
) -> None:
    folder = tmp_path_factory.mktemp("series")
    paths = []
    for number, (start, steps, odd) in enumerate(files):
        paths.append(folder / f"{number}.nc")
        write(paths[-1], [start + step + 0.0 for step in range(steps)], **ODD[odd])
    if len(files) > 6:  # an exact copy, and a damaged file
        shutil.copy(paths[0], folder / "copy.nc")
        (folder / "damaged.nc").write_bytes(paths[1].read_bytes()[:100])
        paths += [folder / "copy.nc", folder / "damaged.nc"]
    order.shuffle(paths)
    check(folder, paths, rules)


#: What may be unlike the other files of a scalar time.
ODD_SCALARS: list[dict[str, Any]] = [
    *ODD,
    {"scalar": False},
    {"dtype": "i4"},
    {"fill": 5.0},
    {"units": "days since 1999-12-31", "dtype": "i4"},
    {"scalars": {"height": ("m", 2.0)}},
    {"scalars": {"height": ("m", 3.0)}},
    {"scalars": {"lead": ("hours", 6.0)}},
]
SCALAR_RULES = [*RULES, aa.Rules(directions={"time": False}), aa.Rules(new_dimension="member=^.*/([0-9]+).nc")]


@settings(deadline=None, max_examples=examples(80))
@given(
    files=st.lists(
        st.tuples(st.integers(0, 12), st.one_of(st.just(0), st.integers(0, len(ODD_SCALARS) - 1))), min_size=2, max_size=9
    ),
    common=st.sampled_from(ODD_SCALARS),
    rules=st.sampled_from(SCALAR_RULES),
    order=st.randoms(use_true_random=False),
)
# A time that is scalar in one file and a dimension in another.
@example(files=[(0, 0), (0, len(ODD))], common={}, rules=RULES[0], order=Random(0))
def test_files_of_scalar_times_join_as_their_arrays_do(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[int, int]], common: Any, rules: aa.Rules, order: Any
) -> None:
    folder = tmp_path_factory.mktemp("scalars")
    paths = []
    for number, (start, odd) in enumerate(files):
        paths.append(folder / f"{number}.nc")
        write(paths[-1], [float(start)], **{"scalar": True, **common, **ODD_SCALARS[odd]})
    order.shuffle(paths)
    check(folder, paths, rules)


MEMBERS = ["1", "2", "3", "01", "-1", "10", "a", "r2", "r10", 4, 5, None]
MEMBER_RULES = [
    aa.Rules(new_dimension="realization"),
    aa.Rules(new_dimension="realization", along=["time"]),
    aa.Rules(new_dimension="realization", units={"air_temperature": "degC", "time": "hours since 1990-01-01"}),
    aa.Rules(new_dimension="realization", directions={"time": False}),
    aa.Rules(new_dimension="realization", trust="assume"),
    aa.Rules(new_dimension="member=^.*/([0-9]+).nc"),
]


@settings(deadline=None, max_examples=examples(80))
@given(
    files=st.lists(st.tuples(st.sampled_from(MEMBERS), ANY, st.sampled_from([0, 0, 0, 1])), min_size=2, max_size=9),
    steps=st.integers(1, 2),
    scalar=st.booleans(),
    rules=st.sampled_from(MEMBER_RULES),
    order=st.randoms(use_true_random=False),
)
def test_files_of_members_join_as_their_arrays_do(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[tuple[Any, int, int]],
    steps: int,
    scalar: bool,
    rules: aa.Rules,
    order: Any,
) -> None:
    folder = tmp_path_factory.mktemp("members")
    paths = []
    for number, (member, odd, start) in enumerate(files):
        paths.append(folder / f"{number}.nc")
        attrs = {"realization": "0"} if not number else {} if member is None else {"realization": member}
        times = [2.0 * start + step for step in range(1 if scalar else steps)]
        changes = {"values": [number + t for t in times], "scalar": scalar, **ODD[odd]}
        write(paths[-1], times, **{**changes, "attrs": {**attrs, **changes.get("attrs", {})}})
    order.shuffle(paths)
    check(folder, paths, rules)


GRIDS = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
GRID_RULES = [
    aa.Rules(),
    aa.Rules(coverage=1.0),
    aa.Rules(new_dimension="realization"),
    aa.Rules(new_dimension="member=^.*/r([0-9]+)_"),
    aa.Rules(units={"air_temperature": "degC", "time": "hours since 1990-01-01"}),
]


@settings(deadline=None, max_examples=examples(60))
@given(
    shape=GRIDS,
    steps=st.integers(1, 2),
    missing=st.sets(st.integers(0, 35), max_size=2),
    odd=st.dictionaries(st.integers(0, 35), ANY, max_size=1),
    rules=st.sampled_from(GRID_RULES),
    scalar=st.booleans(),
)
def test_series_join_as_the_files_do(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, int, int],
    steps: int,
    missing: set[int],
    odd: dict[int, int],
    rules: aa.Rules,
    scalar: bool,
) -> None:
    folder = tmp_path_factory.mktemp("grid")
    for number, (time, tile, member) in enumerate(np.ndindex(shape)):
        if number not in missing or not number:
            changes = {"north": 30.0 * tile, "attrs": {"realization": 10 * member}, "scalar": scalar}
            times = [10.0 * time + step for step in range(1 if scalar else steps)]
            write(folder / f"r{member}_{number}.nc", times, **{**changes, **ODD[odd.get(number, 0)]})
    check(folder, sorted(folder.iterdir()), rules)


@pytest.mark.parametrize("trust", ["verify", "assume"])
@pytest.mark.parametrize("kind", ["times", "scalars", "members"])
def test_indexes_of_series(tmp_path: Path, trust: str, kind: str) -> None:
    rules = aa.Rules(trust=trust, new_dimension="realization" if kind == "members" else None)
    for number in range(6):
        times = [0.0, 1.0] if kind == "members" else [2.0 * number, 2.0 * number + 1][: 1 if kind == "scalars" else 2]
        odd = ODD[5] if number == 4 and kind != "members" else {}
        write(
            tmp_path / f"{number}.nc",
            times,
            scalar=kind == "scalars",
            attrs={"realization": str(number) if kind == "members" else "0"},
            **odd,
        )
    paths = sorted(tmp_path.iterdir())
    stored = []
    for how in (nullcontext(), single_arrays()):
        with how:
            aa.open(paths, rules=rules).save(tmp_path / "index.nca", chunk_table=False)
        reader = Reader(str(tmp_path / "index.nca"))
        with reader.opened():
            names = reader._open._directory.columns
            stored.append({name: reader._slice(name, 0, reader._length(name)).tobytes() for name in names})
    assert stored[0] == stored[1]


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the series that are found."""
    found = []

    def find(*arguments: Any) -> Iterator[Any]:
        for series in _find_series(*arguments):
            found.append(len(series.rows))
            yield series

    monkeypatch.setattr(aggarray.aggregate.series, "find_series", find)
    return found


def test_successive_files_form_a_series(tmp_path: Path, lengths: list[int]) -> None:
    for number in range(12):
        write(tmp_path / f"{number}.nc", [10.0 * number + step for step in range(1 + number % 3)])
    assert aa.open(tmp_path)["tas"].shape == (24, 2)
    assert lengths == [12]


@pytest.mark.parametrize("own_units", [False, True])
def test_files_of_scalar_times_form_a_series(tmp_path: Path, lengths: list[int], own_units: bool) -> None:
    for number in range(12):
        changes = {"units": f"days since 2000-01-{1 + number:02}"} if own_units else {}
        write(tmp_path / f"{number}.nc", [0.25 if own_units else number + 0.25], scalar=True, values=[number], **changes)
    tas = aa.open(tmp_path)["tas"]
    assert (tas.dimensions, lengths) == (("time", "lat"), [12])
    np.testing.assert_array_equal(tas.coords["time"][...], np.arange(12) + 0.25)
    np.testing.assert_array_equal(tas.coords["time_bnds"][...], np.arange(12)[:, np.newaxis] + [-0.25, 0.75])
    np.testing.assert_array_equal(tas[...], np.arange(12)[:, np.newaxis] + [0, 0])


def test_a_table_returns_the_structures(shared_data: Path) -> None:
    structures = [
        s for _, s in scan_files(sorted(map(str, shared_data.glob("cmip6/**/*.nc")))[:60]) if not isinstance(s, Exception)
    ]
    table = StructureTable(structures)
    assert len(table) == len(structures)
    for one, other in zip(table, structures, strict=True):
        assert (one.uri, one.format, one.stamp, one.sizes, one.skipped) == (
            other.uri,
            other.format,
            other.stamp,
            other.sizes,
            other.skipped,
        )
        assert repr(one.attrs) == repr(other.attrs)
        assert list(map(repr, one.variables)) == list(map(repr, other.variables))
    assert [s.uri for s in table.take([5, 2])] == [structures[5].uri, structures[2].uri]


@pytest.mark.parametrize(("members", "dtype"), [(range(12), np.int64), ([f"r{n}" for n in range(12)], np.dtypes.StringDType())])
def test_files_of_members_form_a_series(tmp_path: Path, lengths: list[int], members: Any, dtype: Any) -> None:
    for number, member in enumerate(members):
        write(tmp_path / f"{11 - number}.nc", [0.0], values=[number], attrs={"realization": str(member)})
    tas = aa.open(tmp_path, rules=aa.Rules(new_dimension="realization"))["tas"]
    assert (tas.dimensions, lengths) == (("realization", "time", "lat"), [12])
    assert tas.coords["realization"].dtype == dtype
    assert tas.coords["realization"][...].tolist() == list(members)
    np.testing.assert_array_equal(tas[:, 0, 0], np.arange(12))


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("trust", "own_units", "scalar"),
    [
        ("verify", False, False),
        ("assume", False, False),
        ("verify", True, False),
        ("verify", False, True),
        ("verify", True, True),
    ],
)
def test_bytes_per_file(tmp_path: Path, trust: str, own_units: bool, scalar: bool) -> None:
    write(tmp_path / "0.nc", [0.0], scalar=scalar)
    first = (tmp_path / "0.nc").read_bytes()
    with netCDF4.Dataset(tmp_path / "0.nc") as file:
        assert float(file["time"][...].item()) == 0.0
    write(tmp_path / "1.nc", [1.0], scalar=scalar)
    second = (tmp_path / "1.nc").read_bytes()
    assert len(first) == len(second)
    count, value = 1000, np.array([1.0], ">f8").tobytes()
    at = next(n for n in range(len(first)) if second[n : n + 8] == value and first[n : n + 8] == bytes(8))
    for number in range(2, count):
        time = value if own_units else np.array([float(number)], ">f8").tobytes()
        data = second[:at] + time + second[at + 8 :]
        if own_units:
            date = np.datetime64("2000-01-01") + np.timedelta64(number, "D")
            data = data.replace(b"days since 2000-01-01", f"days since {date}".encode())
        (tmp_path / f"{number}.nc").write_bytes(data)
    # The bounded caches of units are filled before.
    aa.open(sorted(tmp_path.iterdir())[: None if own_units else 70], rules=aa.Rules(trust=trust), processes=1)
    tracemalloc.start()
    try:
        array = aa.open(tmp_path, rules=aa.Rules(trust=trust), processes=1)["tas"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert array.shape == (count, 2)
    assert peak / count < 2048


@pytest.mark.heavy
def test_bytes_per_file_of_a_member(tmp_path: Path) -> None:
    write(tmp_path / "0.nc", [0.0], attrs={"realization": np.int32(1111111111)})
    data, count, rules = (tmp_path / "0.nc").read_bytes(), 1000, aa.Rules(new_dimension="realization")
    for number in range(count):
        own = data.replace(np.array(1111111111, ">i4").tobytes(), np.array(number, ">i4").tobytes())
        (tmp_path / f"{number}.nc").write_bytes(own)
    aa.open(sorted(tmp_path.iterdir())[:70], rules=rules, processes=1)
    tracemalloc.start()
    try:
        array = aa.open(tmp_path, rules=rules, processes=1)["tas"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert array.shape == (count, 1, 2)
    assert peak / count < 2048
