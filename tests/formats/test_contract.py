"""Contract of `aggarray.formats.base` for every format.

The tests run for all formats in the folder. `SAMPLES[X]` writes a sample of the format named X. A format without a sample
is tested without files.
"""

import json
import os
import pickle
import threading
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray import formats
from aggarray.errors import FormatError, MissingFileError, NotFoundError
from aggarray.formats.base import SCAN_ELEMENTS, Format, Variable, full_box, scan_values
from tests.support.chunk_indexes import assembled
from tests.support.netcdf import write

TEMPERATURE = np.arange(24, dtype="f4").reshape(2, 3, 4)


def write_netcdf(path: Path, kind: str) -> None:
    with netCDF4.Dataset(path, "w", format=kind) as file:
        file.title = "sample"
        for name, size in (("time", None), ("lat", 3), ("lon", 4), ("length", 5)):
            file.createDimension(name, size)
        for name, values in (("time", [0.0, 1.0]), ("lat", [10.0, 20.0, 30.0])):
            file.createVariable(name, "f8", (name,))[:] = values
        temperature = file.createVariable("tas", "f4", ("time", "lat", "lon"), fill_value=-1.0)
        temperature.setncatts({"units": "K", "coordinates": "place", "levels": np.array([1, 2], "i4")})
        temperature[:] = TEMPERATURE
        place = np.array([b"a", b"bcd", b"efghi"], "S5").view("S1").reshape(3, 5)
        file.createVariable("place", "S1", ("lat", "length"))[:] = place
        file.createVariable("single", "i2", ())[...] = 7


def write_zarr(path: Path) -> None:
    import zarr

    group = zarr.open_group(path, mode="w", zarr_format=3, attributes={"title": "sample"})
    attributes = {"units": "K", "coordinates": "place", "levels": [1, 2], "_FillValue": -1.0}
    arrays: list[tuple[str, Any, list[str], dict[str, Any]]] = [
        ("time", np.array([0.0, 1.0]), ["time"], {}),
        ("lat", np.array([10.0, 20.0, 30.0]), ["lat"], {}),
        ("tas", TEMPERATURE, ["time", "lat", "lon"], attributes),
        ("place", np.array(["a", "bcd", "efghi"], np.dtypes.StringDType()), ["lat"], {}),
        ("single", np.array(7, "i2"), [], {}),
    ]
    for name, values, dimensions, attrs in arrays:
        made = group.create_array(name, shape=values.shape, dtype=values.dtype, dimension_names=dimensions, attributes=attrs)
        made[...] = values


def write_references(path: Path) -> None:
    """Write references to a netCDF-3 file beside them; the references hold the coordinates inline."""
    write_netcdf(path.with_name("referred.nc"), "NETCDF3_CLASSIC")
    references = aa.open(path.with_name("referred.nc")).to_kerchunk()
    path.write_text(json.dumps(references))


SAMPLES: dict[str, Callable[[Path], None]] = {
    "netCDF3": lambda path: write_netcdf(path, "NETCDF3_CLASSIC"),
    "HDF5": lambda path: write_netcdf(path, "NETCDF4"),
    "Zarr": write_zarr,
    "Kerchunk": write_references,
}

every = pytest.mark.parametrize("fmt", formats.formats(), ids=lambda f: f.name)
sampled = pytest.mark.parametrize("fmt", [f for f in formats.formats() if f.name in SAMPLES], ids=lambda f: f.name)


@pytest.fixture
def sample(fmt: Format, tmp_path: Path) -> str:
    path = tmp_path / "sample"
    SAMPLES[fmt.name](path)
    return str(path)


@every
def test_is_a_format_and_refuses_other_content(fmt: Format, tmp_path: Path) -> None:
    assert isinstance(fmt, Format)
    assert fmt.name
    path = tmp_path / "text"
    path.write_bytes(b"just some text" * 100)
    assert not fmt.recognises(str(path), path.read_bytes()[:512])
    assert not fmt.recognises(str(tmp_path), b"")


@sampled
def test_is_recognised_by_content(fmt: Format, sample: str) -> None:
    assert formats.identify(sample) is fmt
    others = [f for f in formats.formats() if f is not fmt]
    head = b"" if os.path.isdir(sample) else Path(sample).read_bytes()[:512]
    assert not any(f.recognises(sample, head) for f in others)


@sampled
def test_structure(fmt: Format, sample: str) -> None:
    result = formats.scan(sample)
    assert result.uri == sample
    assert result.attrs["title"] == "sample"
    assert result.skipped == ()
    variables = {v.name: v for v in result.variables}
    assert set(variables) == {"time", "lat", "tas", "place", "single"}
    tas = variables["tas"]
    assert (tas.shape, tas.dimensions, tas.dtype) == ((2, 3, 4), ("time", "lat", "lon"), np.dtype("f4"))
    assert tas.dtype.isnative
    assert tas.attrs["units"] == "K"
    assert tas.attrs["_FillValue"] == -1.0
    assert np.array_equal(tas.attrs["levels"], [1, 2])
    place = variables["place"]
    assert (place.shape, place.dimensions, place.dtype) == ((3,), ("lat",), np.dtypes.StringDType())
    assert (variables["single"].shape, variables["single"].dimensions) == ((), ())


@sampled
def test_scan_reads_only_coordinates(fmt: Format, sample: str) -> None:
    values = {v.name: v.values for v in formats.scan(sample).variables}
    assert values["tas"] is None
    assert values["single"] is None
    assert values["time"].tolist() == [0.0, 1.0]
    assert values["place"].tolist() == ["a", "bcd", "efghi"]
    assert not values["time"].flags.writeable


@sampled
def test_values(fmt: Format, sample: str) -> None:
    handle = formats.open_file(sample)
    box = (slice(0, 2, 1), slice(0, 3, 2), slice(1, 4, 1))
    result = handle.read("tas", box)
    assert result.dtype == np.dtype("f4")
    assert result.dtype.isnative
    assert result.flags.writeable
    np.testing.assert_array_equal(result, TEMPERATURE[box])
    assert handle.read("tas", (slice(1, 1, 1), slice(0, 3, 1), slice(0, 4, 1))).shape == (0, 3, 4)
    assert handle.read("place", (slice(1, 3, 1),)).tolist() == ["bcd", "efghi"]
    assert handle.read("single", ()) == 7
    assert handle.read("single", ()).shape == ()
    handle.close()
    handle.close()


@sampled
def test_mapped_views_are_read_only_and_outlive_the_handle(fmt: Format, sample: str) -> None:
    handle = formats.open_file(sample)
    view = handle.mapped("tas")
    assert handle.mapped("place") is None
    handle.close()
    if view is not None:
        assert not view.flags.writeable
        np.testing.assert_array_equal(view, TEMPERATURE)


@sampled
def test_chunk_index_locates_the_values(fmt: Format, sample: str) -> None:
    handle = formats.open_file(sample)
    table = handle.chunks("tas")
    assert table is not None
    assert (table.shape, table.dtype.newbyteorder("=")) == ((2, 3, 4), np.dtype("f4"))
    assert len(table.offsets) == len(table.sizes) == np.prod(table.grid)
    assert (table.offsets.dtype, table.sizes.dtype) == (np.int64, np.int64)
    assert not table.offsets.flags.writeable
    np.testing.assert_array_equal(assembled(sample, table), TEMPERATURE)
    single = handle.chunks("single")
    assert single is not None
    assert assembled(sample, single) == 7
    assert handle.chunks("place") is None
    with pytest.raises(NotFoundError, match=r"no variable 'nothing'"):
        handle.chunks("nothing")
    handle.close()
    again = pickle.loads(pickle.dumps(table))
    assert (again.shape, again.filters, again.offsets.tolist()) == (table.shape, table.filters, table.offsets.tolist())


@sampled
def test_an_unknown_variable_is_an_error_that_lists_the_others(fmt: Format, sample: str) -> None:
    handle = formats.open_file(sample)
    with pytest.raises(NotFoundError, match=r"no variable 'nothing'.*tas"):
        handle.read("nothing", ())
    handle.close()


@sampled
def test_threads_read_through_one_handle(fmt: Format, sample: str) -> None:
    handle = formats.open_file(sample)
    faults: list[object] = []

    def work(row: int) -> None:
        for _ in range(20):
            result = handle.read("tas", (slice(0, 2, 1), slice(row, row + 1, 1), slice(0, 4, 1)))
            if not np.array_equal(result, TEMPERATURE[:, row : row + 1]):
                faults.append(result)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handle.close()
    assert not faults


@sampled
def test_structures_pickle(fmt: Format, sample: str) -> None:
    result = formats.scan(sample)
    again = pickle.loads(pickle.dumps(result))
    assert [v.name for v in again.variables] == [v.name for v in result.variables]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"no such file.*none.nc"):
        formats.scan(tmp_path / "none.nc")
    with pytest.raises(FileNotFoundError):
        formats.open_file(tmp_path / "none.nc")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(MissingFileError):
        formats.identify(tmp_path / "file" / "below")


def test_error_of_a_file_that_is_not_a_data_file(tmp_path: Path) -> None:
    (tmp_path / "empty.nc").touch()
    (tmp_path / "text.nc").write_text("hello")
    os.mkfifo(tmp_path / "pipe.nc")
    with pytest.raises(FormatError, match=r"an empty file.*empty.nc"):
        formats.identify(tmp_path / "empty.nc")
    with pytest.raises(FormatError, match=r"not a data file of a known format \(.*HDF5.*\).*text.nc"):
        formats.identify(tmp_path / "text.nc")
    with pytest.raises(FormatError, match="a folder that is not a Zarr store"):
        formats.identify(tmp_path)
    with pytest.raises(FormatError, match=r"neither a file nor a folder.*pipe.nc"):
        formats.identify(tmp_path / "pipe.nc")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "locked.nc"
    path.write_bytes(b"CDF\x01")
    path.chmod(0)
    with pytest.raises(FormatError, match=r"cannot be opened: Permission denied.*locked.nc"):
        formats.identify(path)


def test_a_scan_does_not_read_large_coordinates() -> None:
    side = SCAN_ELEMENTS + 1
    large = Variable("x", np.dtype("f8"), (side,), ("x",), {})
    vast = Variable("y", np.dtype("f8"), (2**40, 2**40), ("y", "z"), {"bounds": "y"})
    assert scan_values([large, vast]) == set()


def test_formats_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name, value = "other", "other:FORMAT"

        def __init__(self, found: object):
            self.found = found

        def load(self) -> object:
            if self.found is None:
                raise ImportError("no module named other")
            return self.found

    own = formats.formats()[0]
    monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry(own)] if group == "aggarray.formats" else [])
    formats._foreign_formats.cache_clear()
    try:
        assert formats.formats()[-1] is own
        monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry(None)])
        formats._foreign_formats.cache_clear()
        with pytest.warns(RuntimeWarning, match="format other .* does not load"):
            assert own in formats.formats()
    finally:
        monkeypatch.undo()
        formats._foreign_formats.cache_clear()


def test_real_data(shared_data: Path) -> None:
    paths = sorted(shared_data.rglob("*.nc"))
    assert len(paths) >= 300
    for path in paths[::10]:
        result = formats.scan(path)
        assert result.skipped == ()
        handle = formats.open_file(path)
        with netCDF4.Dataset(path) as oracle:
            oracle.set_auto_maskandscale(False)
            assert [v.name for v in result.variables] == list(oracle.variables)
            assert list(result.attrs) == oracle.ncattrs()
            for variable in result.variables:
                source = oracle.variables[variable.name]
                assert (variable.shape, variable.dimensions) == (source.shape, source.dimensions)
                np.testing.assert_array_equal(handle.read(variable.name, full_box(variable.shape)), source[...])
        handle.close()


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"])
def test_dimensions_of_the_file(tmp_path: Path, format: str) -> None:
    groups = {"g/v": (("y",), np.zeros(3))} if format == "NETCDF4" else {}
    path = write(tmp_path / "a.nc", {"w": (("t", "x"), np.zeros((2, 5))), **groups}, format=format, unlimited=("t",))
    assert formats.scan(path).sizes == {"t": 2, "x": 5, **({"g/y": 3} if groups else {})}
