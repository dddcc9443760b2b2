"""Pickles of earlier releases still load, in this process and in one without any imports.

`tests/fixtures/pickles/make.py` wrote them. They are compared with the public interface on the sample data.
"""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray import dap, memory
from sample_data.stations import expected_profiles
from tests.support.kerchunk import values as year
from tests.support.netcdf import check, write
from tests.support.pickles import FOLDER, KEPT, MARK, ROOT, names_in, relocate, same

SAMPLES = ROOT / "sample_data"
PATHS = {path.stem: path for path in sorted(FOLDER.glob("*.pickle"))}
#: Pickles of xarray and dask objects, which need not load with other versions of these libraries.
THEIRS = {name for name in PATHS if name.startswith(("xarray", "dask"))}
VERSIONS = json.loads((KEPT / "versions.json").read_text())
CHECKS: dict[str, Callable[[Any], None]] = {}


def checks(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as the check of pickles; a check of several gets the name as well."""

    def enter(check: Callable[..., None]) -> Callable[..., None]:
        for name in names:
            CHECKS[name] = check if len(names) == 1 else lambda found, name=name: check(found, name)
        return check

    return enter


def relocated(name: str) -> bytes:
    """Return a pickle with the paths of this folder."""
    if not str(ROOT).isascii() or "\\" in str(ROOT):
        pytest.skip(f"{ROOT!s}: pickles inside of pickles are relocated to plain paths alone")
    if name in THEIRS:
        changed = [library for library in ("xarray", "dask") if metadata.version(library) != VERSIONS[library]]
        if changed:
            pytest.skip(f"{changed[0]} {metadata.version(changed[0])}: the pickle is of {VERSIONS[changed[0]]}")
    return relocate(PATHS[name].read_bytes(), MARK, str(ROOT))


@lru_cache
def archive() -> aa.MasterArray:
    """Return the sample archive, opened again."""
    return aa.open(SAMPLES / "archive")["tas"]


@lru_cache
def days() -> np.ndarray:
    """Return all values of the sample archive."""
    return archive()[...]


# Arrays of an index and of files

Eager = Callable[[np.ndarray], np.ndarray]
LAZY: dict[str, tuple[Callable[[aa.MasterArray], aa.MasterArray], Eager | None]] = {
    "index": (lambda a: a, lambda v: v),
    "index_lazy": (lambda a: a.lazy[30:300:7, ::-1, [3, 1, 8]], lambda v: v[30:300:7, ::-1][:, :, [3, 1, 8]]),
    "index_mask": (lambda a: a.lazy[:3, [0, 5, 10, 15], -1], lambda v: v[:3, np.arange(18) % 5 == 0, -1]),
    "index_transpose": (lambda a: a.transpose("lon", "time", "lat"), lambda v: v.transpose(2, 0, 1)),
    "index_flip": (lambda a: a.flip("lat"), lambda v: v[:, ::-1]),
    "index_sel": (lambda a: a.sel(time="2001-03"), lambda v: v[59:90]),
    "index_sel_nearest": (lambda a: a.sel(method="nearest", lat=12.0, lon=[33.0, 99.0]), None),
    "index_to_units": (lambda a: a.to_units("degF"), lambda v: (v.astype("f8") - 273.15) * 1.8 + 32),
    "index_astype": (lambda a: a.astype("f8"), lambda v: v.astype("f8")),
    "index_chain": (
        lambda a: a.transpose("lat", "time", "lon").lazy[2:5].to_units("degC").sel(time="2001-07").astype("f8"),
        lambda v: v.transpose(1, 0, 2)[2:5, 181:212].astype("f8") - 273.15,
    ),
    "index_joined": (lambda a: aa.concat([a.lazy[:40], a.lazy[40:60]], "time"), lambda v: v[:60]),
    "index_options": (lambda a: a, lambda v: v),
    "archive": (lambda a: a, lambda v: v),
    "archive_lazy": (lambda a: a.lazy[100:130, ::-3].to_units("degC"), lambda v: v[100:130, ::-3] - 273.15),
}


@checks(*LAZY)
def _lazy(found: aa.MasterArray, name: str) -> None:
    lazily, eagerly = LAZY[name]
    same(found, lazily(archive()))
    if eagerly is not None:
        np.testing.assert_allclose(found[...], eagerly(days()), rtol=1e-5, atol=1e-4)


@checks("index_coordinate", "coordinate")
def _coordinate(found: aa.MasterArray, name: str) -> None:
    coordinates = archive().coords
    same(found, coordinates["time"].lazy[::30] if name == "index_coordinate" else coordinates["lat"])


@checks("index_cf113")
def _index_cf113(found: aa.MasterArray) -> None:
    check(found, np.arange(16.0))
    same(found, aa.open(KEPT / "alike")["tas"])


@checks("tiles", "index_cfa04")
def _tiles(found: aa.MasterArray, name: str) -> None:
    y, x = np.mgrid[0:8, 0:7]
    assert (found.name, found.dimensions, found.pmshape, found.units) == ("value", ("y", "x"), (4, 6), "1")
    np.testing.assert_array_equal(found[...], 10 * y + x)
    np.testing.assert_array_equal(found.lazy[5:1:-2, [4, 0]][...], (10 * y + x)[5:1:-2][:, [4, 0]])
    assert found.partitions.shape == (4, 6) and found.partitions[0, 0].data.uri == str(SAMPLES / "tiles" / "tile_01.nc")


@checks("tiles_hole")
def _tiles_hole(found: aa.MasterArray) -> None:
    there = ~np.ma.getmaskarray(found.read(masked=True))
    y, x = np.mgrid[0:8, 0:7]
    with_hole = [SAMPLES / "tiles" / f"tile_{n:02}.nc" for n in range(1, 11) if n != 4]
    same(found, aa.open(with_hole, rules=aa.Rules(coverage=0.1))["value"])
    assert not there.all() and np.isnan(found[...][~there]).all()
    np.testing.assert_array_equal(found[...][there], (10 * y + x)[there])


@checks("alike")
def _alike(found: aa.MasterArray) -> None:
    check(found, np.arange(16.0))
    same(found, aa.open(KEPT / "alike", rules=aa.Rules(trust="assume"))["tas"])


@checks("references")
def _references(found: aa.MasterArray) -> None:
    stored = np.concatenate([year(0)[1], year(1)[1]])
    np.testing.assert_array_equal(found[...], np.where(stored == -1, np.nan, stored * 0.5))
    assert (found.name, found.units, found.dimensions) == ("pr", "mm", ("time", "lat", "lon"))


@checks("ragged", "index_ragged")
def _ragged(found: aa.MasterArray, name: str) -> None:
    same(found, aa.open(SAMPLES / "stations")["temperature"])
    truth = expected_profiles()
    assert found.shape == (len(truth),) and found.units == "degC"
    for row, expected in zip(found[:], truth, strict=True):
        np.testing.assert_allclose(row, expected, atol=0.01)


@checks("ragged_rows")
def _ragged_rows(found: aa.MasterArray) -> None:
    same(found, aa.open(SAMPLES / "stations")["temperature"].lazy[[7, 0, 16]])
    for row, number in zip(found[:], (7, 0, 16), strict=True):
        np.testing.assert_allclose(row, expected_profiles()[number], atol=0.01)


@checks("ragged_coordinate")
def _ragged_coordinate(found: aa.MasterArray) -> None:
    same(found, aa.open(SAMPLES / "stations")["temperature"].coords["depth"])


@checks("partitions")
def _partitions(found: aa.PartitionMatrix) -> None:
    assert isinstance(found, aa.PartitionMatrix) and found.shape == (4, 6) and found.dimensions == ("y", "x")
    assert [p.location for p in found] == [p.location for p in aa.open(SAMPLES / "tiles")["value"].partitions]


@checks("partition")
def _partition(found: aa.Partition) -> None:
    expected = aa.open(SAMPLES / "tiles")["value"].partitions[1, 2]
    assert isinstance(found, aa.Partition) and found.index == (1, 2)
    assert (found.location, found.part, found.virtual) == (expected.location, expected.part, expected.virtual)
    np.testing.assert_array_equal(found.data.read(), expected.data.read())


# Arrays in memory


@checks("memory")
def _memory(found: aa.MasterArray) -> None:
    np.testing.assert_array_equal(found[...], [[0, 1, 2], [3, 4, 5], [np.nan] * 3, [0, 1000, 2000]])
    assert (found.name, found.units, found.dimensions, found.pmshape) == ("height", "m", ("y", "x"), (3,))
    np.testing.assert_array_equal(found.read(masked=True).mask[:, 0], [False, False, True, False])


@checks("memory_text")
def _memory_text(found: aa.MasterArray) -> None:
    assert found[...].tolist() == ["", "a", "", "ecu"] and found.dimensions == ("x",)


@checks("memory_integers")
def _memory_integers(found: aa.MasterArray) -> None:
    assert found[...].tolist() == [0, 1, -9, 3] and found.dtype == "i4" and found.fill_value == -9
    assert found.read(masked=True).mask.tolist() == [False, False, True, False]


@checks("subarray_file")
def _subarray_file(found: aa.SubArray) -> None:
    path = SAMPLES / "tiles" / "tile_01.nc"
    expected = aa.SubArray.from_file(path, "value")
    assert isinstance(found, aa.SubArray) and found.uri == str(path) and found.variable == "value"
    for name in ("format", "shape", "dtype", "dimensions", "directions", "units", "calendar", "scale_factor", "add_offset"):
        assert getattr(found, name) == getattr(expected, name), name
    np.testing.assert_array_equal(found.read(), expected.read())


@checks("subarray_memory")
def _subarray_memory(found: aa.SubArray) -> None:
    assert (found.uri, found.units, found.dimensions, found.fill_value) == (None, "K", ("y", "x"), 2)
    assert found.read(masked=True).tolist() == [[1, None]]


@checks("aggregation")
def _aggregation(found: aa.Aggregation) -> None:
    assert isinstance(found, aa.Aggregation) and found.names == ("value", "temperature")
    _tiles(found["value"], "tiles")
    _ragged(found["temperature"], "ragged")
    _said(found.refusals[0], "refusal")
    _said(found.skipped[0], "skipped")
    _said(found.duplicates[0], "duplicate")


# Maps, distributions, sections

ODD = dap.Unstructured(7, [np.array([5, 0, 2]), np.array([1, 6, 3, 4])], one_to_one=True)
MAPS: dict[str, dap.Map] = {
    "map_block": dap.Block([0, 3, 5, 9], padding=[(0, 1), (1, 2), (2, 0)]),
    "map_block_even": dap.Block.even(10, 3),
    "map_block_periodic": dap.Block.even(9, 3, padding=(1, 2), periodic=True, outer="wrap"),
    "map_cyclic": dap.Cyclic(11, 3),
    "map_cyclic_blocks": dap.Cyclic(11, 3, 2),
    "map_unstructured": ODD,
    "map_unstructured_shared": dap.Unstructured(5, [np.array([0, 1, 2]), np.array([2, 3, 4, 1])]),
}


@checks(*MAPS)
def _map(found: dap.Map, name: str) -> None:
    expected = MAPS[name]
    assert type(found) is type(expected) and found == expected and hash(found) == hash(expected)
    version = "0.9.0" if name == "map_block_periodic" else "0.10.0"
    for rank in range(expected.nprocs):
        assert repr(found.dim_dict(rank, version)) == repr(expected.dim_dict(rank, version))
        np.testing.assert_array_equal(found.indices(rank), expected.indices(rank))


def blocks() -> dap.Distribution:
    """Return a distribution of the archive: padded blocks, and cyclic."""
    return dap.Distribution.regular((365, 18, 36), "bcb", (2, 3, 1), block_size={1: 2}, padding={0: (1, 2)})


@checks("distribution", "distribution_partitions", "distribution_cost")
def _distribution(found: dap.Distribution, name: str) -> None:
    tas = aa.open(KEPT / "archive.nca")["tas"]  # has stored sizes
    by_cost = dap.Distribution.from_partitions(tas, 4, balance="cost")
    by_place = dap.Distribution.from_partitions(tas, (3, 2, 1))
    assert found == {"distribution": blocks(), "distribution_partitions": by_place, "distribution_cost": by_cost}[name]


@checks("distribution_one_process")
def _distribution_one_process(found: dap.Distribution) -> None:
    assert isinstance(found, dap.Distribution) and (found.shape, found.nprocs) == ((7,), 2)
    assert found.indices(1)[0].tolist() == [1, 6, 3, 4]


@checks("local")
def _local(found: dap.LocalArray) -> None:
    assert isinstance(found, dap.LocalArray) and found.distribution == blocks() and found.rank == 4
    np.testing.assert_array_equal(found.buffer, days()[np.ix_(*blocks().indices(4))])
    assert len(found.partitions) == len(archive().local(blocks(), 4).partitions)


@checks("local_view")
def _local_view(found: dap.LocalArray) -> None:
    assert found.buffer.tolist() == [[3.0, 4.0, 5.0]] and found.rank == 1


@checks("local_imported")
def _local_imported(found: dap.LocalArray) -> None:
    assert bytes(found.buffer) == b"abc" and found.distribution.shape == (3,)


@checks("local_reduced")
def _local_reduced(found: dap.LocalArray) -> None:
    np.testing.assert_allclose(found.buffer, [1.0, 335.0, 669.0], rtol=1e-12)
    assert isinstance(found, dap.LocalArray) and found.distribution.shape == (3,)


@checks("local_ragged")
def _local_ragged(found: Any) -> None:
    truth = expected_profiles()
    first = found.counts.global_indices[0][0]
    assert found.rank == 1 and 0 < first < len(truth)
    for row, expected in zip(found.ragged, truth[first:], strict=True):
        np.testing.assert_allclose(row, expected, atol=0.01)


# Objects of `aggarray.memory`


@checks("memory_array", "memory_array_frozen", "memory_array_text")
def _memory_array(found: memory.Array, name: str) -> None:
    read, write, forever = memory.Access.READ, memory.Access.WRITE, memory.Access.IMMUTABLE
    kind, access, values = {
        "memory_array": ("2 * 3 * byteswap[int32]", read | write, [[0, 1, 2], [3, 4, 5]]),
        "memory_array_frozen": ("2 * float64", read | forever, [1.5, 2.5]),
        "memory_array_text": ("3 * string", read, ["a", "", "ecu"]),
    }[name]
    assert isinstance(found, memory.Array) and str(found.type) == kind and found.numpy().tolist() == values
    assert found.access == access or name == "memory_array_text"


@checks("memory_rows", "memory_rows_masked")
def _memory_rows(found: memory.Ragged, name: str) -> None:
    assert isinstance(found, memory.Ragged)
    assert [row.tolist() for row in found] == ([[1, 2], [], [3]] if name == "memory_rows" else [[1.0, None], [3.0]])


@checks("memory_type")
def _memory_type(found: memory.Type) -> None:
    assert found == memory.Type((40, "var"), np.dtype(">f8"), True, True)


@checks("memory_access")
def _memory_access(found: memory.Access) -> None:
    assert found is memory.Access.READ | memory.Access.IMMUTABLE


# Rules, reports and structures

SAID: dict[str, Any] = {
    "rules": aa.Rules(
        along=("x", "time", "profile"),
        order={"profile": "given"},
        separate_by=("title",),
        tolerance=1e-4,
        overlap="first",
        holes="refuse",
        coverage=0.75,
        units={"tas": "degC"},
        directions={"lat": True},
    ),
    "rules_default": aa.Rules(),
    "rules_member": aa.Rules(new_dimension=r"member=_(r\d+)\.", versions="expver", trust="assume"),
    "refusal": aa.Refusal(("tas", "tas"), ("a.nc", "b.nc"), "units", "units differ: 'K' and 'm'"),
    "skipped": aa.Skipped("a.nc", "tas", "no numbers"),
    "duplicate": aa.Duplicate("tas", "b.nc", "a.nc"),
    "problem": aa.Problem("changed", "a.nc", "other size"),
    "report": aa.Report(False, (aa.Problem("gap", None, "2 steps are missing"),)),
}


@checks(*SAID)
def _said(found: Any, name: str) -> None:
    assert type(found) is type(SAID[name]) and found == SAID[name] and repr(found) == repr(SAID[name])


@checks("extracted")
def _extracted(found: Any) -> None:
    assert (found.path, found.variables, found.unchanged) == (str(KEPT / "memory.nc"), ("height",), True)
    assert (found.nbytes, found.resumed) == (96, 0)


@checks("storage")
def _storage(found: Any) -> None:
    assert found.of("s3") == {"anon": True} and found.of("http") == {} and repr(found) == "StorageOptions(...)"


@checks("attributes")
def _attributes(found: Any) -> None:
    assert isinstance(found, dict) and found == archive().attrs and type(found) is type(archive().attrs)


ERRORS: dict[str, type[Exception]] = {
    **dict.fromkeys(("AggregationError", "ExchangeError", "ProtocolError", "UnitsError"), ValueError),
    **dict.fromkeys(("FormatError", "IndexFileError", "ChangedFileError"), OSError),
    **{"AggarrayError": Exception, "MissingFileError": FileNotFoundError, "NotFoundError": KeyError},
    **{"AccessError": BufferError, "MemoryAccessError": BufferError, "SelectionError": IndexError},
    **{"ForbiddenPathError": OSError},
}


@checks(*(f"error_{name}" for name in ERRORS))
def _error(found: Any, name: str) -> None:
    kind = name.removeprefix("error_")
    assert type(found) is getattr(aa.errors, kind) and isinstance(found, aa.AggarrayError) and isinstance(found, ERRORS[kind])
    if kind == "ProtocolError":
        assert str(found) == "two faults" and found.faults == ("first", "second")
    else:
        assert str(found) == f"a.nc: {kind} 3" and found.args == (f"a.nc: {kind}", 3)


# xarray and dask objects of arrays


@checks("xarray", "xarray_engine", "xarray_chunks")
def _xarray(found: Any, name: str) -> None:
    assert found.name == "tas" and found.dims == ("time", "lat", "lon") and (found.chunks is None) == (name != "xarray_chunks")
    assert list(found.coords) == list(archive().to_xarray().coords)
    np.testing.assert_array_equal(found[40:70, ::5].values, days()[40:70, ::5])
    np.testing.assert_array_equal(found["lat"].values, archive().coords["lat"][...])
    assert found["time"].values[59] == np.datetime64("2001-03-01T12:00")


@checks("xarray_engine_dataset")
def _xarray_engine_dataset(found: Any) -> None:
    _xarray(found["tas"], "xarray_engine")


@checks("xarray_files")
def _xarray_files(found: Any) -> None:
    y, x = np.mgrid[0:8, 0:7]
    np.testing.assert_array_equal(found.values, 10 * y + x)
    assert found.name == "value" and found.dims == ("y", "x")


@checks("dask")
def _dask(found: Any) -> None:
    assert found.shape == (365, 18, 36) and found.chunks[0] == tuple(np.diff(archive().partitions.edges[0]).tolist())
    np.testing.assert_array_equal(found[20:40, 3].compute(scheduler="synchronous"), days()[20:40, 3])


@checks("dask_files")
def _dask_files(found: Any) -> None:
    y, x = np.mgrid[0:8, 0:7]
    assert found.chunks == ((4, 4), (4, 3))
    np.testing.assert_array_equal(found.compute(scheduler="synchronous"), 10 * y + x)


@checks("block")
def _block(found: Any) -> None:
    np.testing.assert_array_equal(found.read(), days()[0:3, 2:4, 0:36:6])


@checks("block_files")
def _block_files(found: Any) -> None:
    y, x = np.mgrid[0:5, 2:4]
    np.testing.assert_array_equal(found.read(), 10 * y + x)


# All pickles


@pytest.mark.parametrize("name", PATHS)
def test_a_kept_pickle_loads(name: str) -> None:
    CHECKS[name](pickle.loads(relocated(name)))


def test_every_pickle_has_a_check() -> None:
    assert set(CHECKS) == set(PATHS)


def test_every_error_is_kept() -> None:
    kinds = [kind for kind in vars(aa.errors).values() if isinstance(kind, type) and issubclass(kind, aa.AggarrayError)]
    later = {f"error_{kind.__name__}" for kind in kinds} - set(CHECKS)
    assert not later, "make a pickle of each with the release that adds it"


def test_pickles_contain_no_path_of_their_origin() -> None:
    for name, path in PATHS.items():
        data = path.read_bytes()
        assert str(ROOT).encode() not in data, name
        assert not {used for used in names_in(data) if used.startswith(("tests", "make", "__main__"))}, name


WORKER = """
import pickle, sys
import numpy as np
assert not any(name.startswith("aggarray") for name in sys.modules)
for path in sys.stdin.read().splitlines():
    with open(path, "rb") as file:
        found = pickle.load(file)
    if hasattr(found, "read"):
        found = found.read()
    if hasattr(found, "shape") and hasattr(found, "dtype") and not hasattr(found, "flat"):
        np.asarray(found)
print("all", end="")
"""


@pytest.mark.parametrize("former", ["aggarray.index.columns\nLazyValues", "aggarray.indexes.known\nStoredValues"])
def test_large_coordinates_of_an_index_load_from_former_modules(former: str, tmp_path: Path) -> None:
    """They are pickled as the place of their values in the index."""
    x = np.arange(20_000.0)
    write(tmp_path / "a.nc", {"v": (("x",), x + 1), "x": (("x",), x)})
    aa.open(tmp_path / "a.nc").save(tmp_path / "a.nca")
    pickled = pickle.dumps(aa.open(tmp_path / "a.nca")["v"].coords["x"], 2)
    changed = pickled.replace(b"aggarray.index.decoder\nLazyValues", former.encode())
    assert changed != pickled
    np.testing.assert_array_equal(pickle.loads(changed)[...], x)


def test_pickles_load_without_imports(tmp_path: Path) -> None:
    paths = []
    for name in PATHS:
        if name in THEIRS and any(metadata.version(library) != VERSIONS[library] for library in ("xarray", "dask")):
            continue
        path = tmp_path / f"{name}.pickle"
        path.write_bytes(relocated(name))
        paths.append(str(path))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WORKER], input="\n".join(paths), capture_output=True, text=True, cwd=ROOT
    )
    assert (done.stdout, done.stderr) == ("all", "")
