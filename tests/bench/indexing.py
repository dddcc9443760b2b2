"""Time to save an index, to open it again, and to plan a read from it.

``index``: 1,000 real files. The others: a million fragments, files that need not exist, since only their names are used.
``index-foreign``: the same index as other software would write it, without the group of aggarray, its names as strings or as
characters.
cfdm reads the same index like any reader of CF-1.13: from the aggregation variables alone. It takes over a minute and 2.9 GB
for the million and is left out there.
"""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.archives import paths_in, write_archive
from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.opening import TUNED, load_aggarray, with_xarray

_INDEX, _ABSOLUTE, _STRINGS, _CHARACTERS = "index.nca", "absolute.nca", "strings.nc", "characters.nc"


def _make(folder: Path, size: Size) -> None:
    import aggarray as aa

    write_archive(folder, size, rich=True)
    agg = aa.open(paths_in(folder))
    agg.save(folder / _INDEX)
    # cfdm resolves relative names against the working directory.
    agg.save(folder / _ABSOLUTE, relative=False)


def many_partitions(count: int, files: Sequence[str] | None = None) -> Any:
    """Return an aggregation of one partition per step, in an irregular order.

    ``files``: those that the partitions refer to in turn; None: one for each, which need not exist.
    """
    import aggarray as aa
    from aggarray.cf.encoding import encoding
    from aggarray.opening.aggregation import Aggregation
    from aggarray.partition.matrix import Matrix, References, Template

    sizes, names, ways = (1, 18, 36), ("time", "lat", "lon"), (True, True, True)
    template = Template(sizes, names, ways, "K", None, encoding(np.dtype("f4"), {}), "netCDF4")
    uris = files or [f"/archive/model/run/tas_day_model_historical_{n:07}.nc" for n in range(count)]
    numbers, first = np.arange(count, dtype=np.int32) % len(uris), np.zeros(count, np.int32)
    references = References(uris, ("tas",), (template,), (), numbers, first, first)
    order = np.random.default_rng(0).permutation(count).astype(np.int32)
    edges = (np.arange(count + 1), np.array([0, 18]), np.array([0, 36]))
    days = aa.SubArray.from_array(np.arange(count, dtype="f8"), dimensions=("time",), units="days since 1850-01-01")
    time = aa.MasterArray.from_subarrays([([(0, count)], days)], dimensions=("time",), name="time")
    matrix = Matrix(names, ways, edges, references, order)
    return Aggregation((aa.MasterArray("tas", np.dtype("f4"), "K", None, np.nan, matrix, coords={"time": time}),))


def _make_million(folder: Path, size: Size) -> None:
    many_partitions(size["fragments"]).save(folder / _INDEX)


def _make_foreign(folder: Path, size: Size) -> None:
    _make_million(folder, size)
    for name in (_STRINGS, _CHARACTERS):
        write_foreign(folder / _INDEX, folder / name, name == _CHARACTERS)


def write_foreign(index: Path, path: Path, characters: bool = False) -> None:
    """Write an index as other software would: without the group of aggarray."""
    import netCDF4

    with netCDF4.Dataset(index) as ours, netCDF4.Dataset(path, "w") as copy:
        _copy_variables(ours, copy, characters)


def _copy_variables(ours: Any, copy: Any, characters: bool) -> None:
    """Copy the root group; ``characters``: texts become characters along a last dimension."""
    copy.setncatts(ours.__dict__)
    for name, dimension in ours.dimensions.items():
        copy.createDimension(name, len(dimension))
    for name, variable in ours.variables.items():
        variable.set_auto_maskandscale(False)
        values, attrs = variable[...], variable.__dict__
        dtype, dimensions, fill = variable.dtype, variable.dimensions, attrs.pop("_FillValue", None)
        if dtype is str and characters:
            values = np.asarray(values).astype("S")
            length = copy.createDimension(f"{name}_length", values.itemsize)
            values = np.ascontiguousarray(values).reshape(-1).view("S1").reshape(*values.shape, -1)
            dtype, dimensions = "S1", (*dimensions, length.name)
        made = copy.createVariable(name, dtype, dimensions, fill_value=fill)
        made.set_auto_maskandscale(False)
        made.setncatts(attrs)
        made[...] = values


def _with(name: str) -> Any:
    """Return a preparation that opens an index of another name."""
    return lambda folder, _size: SimpleNamespace(library=load_aggarray(), index=str(folder / name))


def _with_aggarray(folder: Path, _size: Size) -> SimpleNamespace:
    return SimpleNamespace(library=load_aggarray(), index=str(folder / _INDEX), paths=paths_in(folder))


def _with_cfdm(folder: Path, _size: Size) -> SimpleNamespace:
    import cfdm

    return SimpleNamespace(library=cfdm, index=str(folder / _ABSOLUTE))


def _to_save(folder: Path, size: Size) -> SimpleNamespace:
    import netCDF4  # noqa: F401

    return SimpleNamespace(agg=many_partitions(size["fragments"]), path=folder / "other.nca")


def _to_plan(folder: Path, size: Size) -> SimpleNamespace:
    given = _with_aggarray(folder, size)
    return SimpleNamespace(array=given.library.open(given.index)["tas"])


def _save(given: SimpleNamespace) -> Any:
    given.agg.save(given.path)
    return given.agg["tas"]


def _open_index(given: SimpleNamespace) -> Any:
    return given.library.open(given.index)["tas"]


def _open_files(given: SimpleNamespace) -> Any:
    return given.library.open(given.paths)["tas"]


def _plan(given: SimpleNamespace) -> Any:
    """Plan a read of fifty partitions from the middle, including file names."""
    from aggarray.memory.selection import normalise
    from aggarray.partition.plan import pieces, plan_dimension

    a = given.array
    middle = a.shape[0] // 2
    selectors = normalise(slice(middle, middle + 50), a.shape, a.dimensions)
    result = list(pieces(a._matrix, [plan_dimension(s, e) for s, e in zip(selectors, a._matrix.edges, strict=True)]))
    return [a._matrix.references.uri_of(piece.ref) for piece in result]


def _cfdm_read(given: SimpleNamespace) -> Any:
    return next(f for f in given.library.read(given.index) if f.nc_get_variable() == "tas")


def _shape(_given: Any, array: Any) -> dict[str, np.ndarray]:
    return {"shape": np.array(array.shape)}


def _files(_given: Any, array: Any) -> dict[str, np.ndarray]:
    references, refs = array._matrix.references, array._matrix.refs
    return {"shape": np.array(array.shape), "files": np.array([references.uri_of(int(refs[i])) for i in (0, 7, -1)])}


def _some(_given: Any, array: Any) -> dict[str, np.ndarray]:
    return {"shape": np.array(array.shape), "some": np.ma.filled(np.asarray(array[::97, 1, 2]).ravel(), np.nan)}


def _some_of_cfdm(_given: Any, field: Any) -> dict[str, np.ndarray]:
    return {"shape": np.array(field.shape), "some": np.ma.filled(field.data[::97, 1, 2].array.ravel(), np.nan)}


def _planned(_given: Any, uris: Any) -> dict[str, np.ndarray]:
    return {"count": np.array(len(uris))}


_FILES = {"full": {"files": 1000, "steps": 10, "lat": 18, "lon": 36}, "tiny": {"files": 5, "steps": 10, "lat": 2, "lon": 4}}
_MANY = {"full": {"fragments": 1_000_000}, "tiny": {"fragments": 200}}

BENCHMARKS = (
    Benchmark(
        "index",
        "an index of files opened again",
        _FILES,
        _make,
        (
            Contestant("aggarray, the index", _with_aggarray, _open_index, _some),
            Contestant("aggarray, the files", _with_aggarray, _open_files, _some),
            Contestant("cfdm, the index", _with_cfdm, _cfdm_read, _some_of_cfdm, ("cfdm",)),
            Contestant(
                "xarray.open_mfdataset, tuned",
                with_xarray,
                lambda given: given.library.open_mfdataset(given.paths, **TUNED)["tas"],
                _some,
            ),
        ),
    ),
    Benchmark(
        "index-open",
        "an index of many fragments opened again",
        _MANY,
        _make_million,
        (Contestant("aggarray", _with_aggarray, _open_index, _shape),),
    ),
    Benchmark(
        "index-foreign",
        "an index of many fragments by other software",
        _MANY,
        _make_foreign,
        (
            Contestant("aggarray, its own index", _with_aggarray, _open_index, _files),
            Contestant("aggarray, names as strings", _with(_STRINGS), _open_index, _files),
            Contestant("aggarray, names as characters", _with(_CHARACTERS), _open_index, _files),
        ),
    ),
    Benchmark(
        "index-save",
        "an index of many fragments saved",
        _MANY,
        _make_million,
        (Contestant("aggarray", _to_save, _save, _shape),),
    ),
    Benchmark(
        "index-plan",
        "a read of fifty partitions planned",
        _MANY,
        _make_million,
        (Contestant("aggarray", _to_plan, _plan, _planned),),
    ),
)
