"""Missing, changed and unreadable files: `check`, and errors of reads."""

import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray.read import close_files
from tests.support.index_files import same, same_values, save_and_open
from tests.support.netcdf import cube, field, write

pytestmark = pytest.mark.quick


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Return an index of three files, larger than the part that a checksum covers."""
    lons = np.arange(8000.0)
    for t in range(3):
        write(tmp_path / f"{t}.nc", cube([t], lons=lons), format="NETCDF3_CLASSIC")
    aa.open(tmp_path / "*.nc").save(tmp_path / "index.idx")
    close_files()
    return tmp_path / "index.idx"


def kinds(agg: aa.Aggregation, checksum: bool = False) -> dict[str, str]:
    """Return the kinds of problem by file name."""
    report = agg.check(checksum=checksum)
    assert report.ok == (not report.problems)
    assert all("\n" not in p.message and p.file is not None and p.file in p.message for p in report.problems)
    return {os.path.basename(p.file or ""): p.kind for p in report.problems}


def rewrite(path: Path, offset: int, touched: bool) -> None:
    """Change a byte of a file, keeping its size and, unless ``touch``, its time."""
    times = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    ns = (times.st_atime_ns, times.st_mtime_ns + 5_000_000_000 * touched)
    os.utime(path, ns=ns)


def test_no_problems(index: Path) -> None:
    assert aa.open(index).check() == aa.Report(True, ())
    assert aa.open(index).check(checksum=True).ok


def test_every_kind(index: Path) -> None:
    agg, folder = aa.open(index), index.parent
    (folder / "0.nc").unlink()
    with open(folder / "1.nc", "ab") as file:
        file.write(b"more")
    (folder / "2.nc").write_bytes(b"no data any more")
    for checksum in (False, True):
        assert kinds(agg, checksum) == {"0.nc": "missing", "1.nc": "changed", "2.nc": "unreadable"}
    assert {os.path.basename(p.file or "") for p in aa.open(index).check().problems} == {"0.nc", "1.nc", "2.nc"}


def test_touched_and_rewritten(index: Path) -> None:
    folder = index.parent
    os.utime(folder / "0.nc", (1, 1))
    rewrite(folder / "1.nc", -1, touched=False)
    rewrite(folder / "2.nc", -1, touched=True)
    agg = aa.open(index)
    assert kinds(agg) == {"0.nc": "changed", "2.nc": "changed"}
    assert kinds(agg, True) == {"0.nc": "changed", "1.nc": "changed", "2.nc": "changed"}
    messages = {os.path.basename(p.file or ""): p.message for p in agg.check(checksum=True).problems}
    assert "same bytes" in messages["0.nc"] and "same bytes" not in messages["2.nc"] and "different bytes" in messages["1.nc"]


def test_check_of_an_unsaved_aggregation(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    write(tmp_path / "b.nc", cube([1]))
    agg = aa.open(tmp_path)
    assert kinds(agg) == {}
    os.utime(tmp_path / "a.nc", (1, 1))
    assert kinds(agg) == {"a.nc": "changed"}


def test_append_updates_changed_files(index: Path) -> None:
    os.utime(index.parent / "0.nc", (1, 1))
    write(index.parent / "1.nc", cube([7], lons=np.arange(8000.0)))
    agg = aa.open(index)
    assert kinds(agg) == {"0.nc": "changed", "1.nc": "changed"}
    agg.append(index.parent / "*.nc").save(index)
    again = aa.open(index)
    assert {p.kind for p in again.check(checksum=True).problems} <= {"gap"}
    same(again, aa.open(index.parent / "*.nc"))


def test_gaps_and_holes_of_an_index(tmp_path: Path) -> None:
    for t in (0, 1, 2, 4, 5, 6):
        for y in range(2):
            if (t, y) != (5, 1):
                write(tmp_path / f"{t}{y}.nc", cube([t], lats=[y * 10.0, y * 10 + 5.0]))
    agg = aa.open(tmp_path)
    again = save_and_open(agg, tmp_path / "index.idx")
    assert {p.kind for p in again.check().problems} == {"gap", "hole"}
    assert again.check() == agg.check()


# Read


def test_a_touched_file_reads(index: Path) -> None:
    expected = aa.open(index.parent / "*.nc")["tas"][...]
    for t in range(3):
        os.utime(index.parent / f"{t}.nc", (t + 1, t + 1))
    tas = aa.open(index)["tas"]
    np.testing.assert_array_equal(tas[...], expected)
    np.testing.assert_array_equal(tas[1], expected[1])


@pytest.mark.parametrize("checked", [True, False])
def test_a_read_of_a_file_of_another_size_is_an_error(index: Path, checked: bool) -> None:
    tas = aa.open(index)["tas"]
    if checked:
        tas[...]
    write(index.parent / "1.nc", cube([1], lons=np.arange(8000.0), extra=(("time",), [1.0])), format="NETCDF3_CLASSIC")
    for read in (lambda: tas[1], lambda: tas[...], lambda: tas.read(copy=None), lambda: tas.lazy[1:].flip()[...]):
        with pytest.raises(aa.IndexFileError, match=r"changed since it was scanned: \d+ bytes.*variable 'tas' in .*1\.nc"):
            read()
    np.testing.assert_array_equal(tas[0], field([0], (10, 20, 30), np.arange(8000.0))[0])
    # Copies in other processes raise the error too.
    other = aa.open(index)["tas"]
    with pytest.raises(aa.IndexFileError):
        other[:, 0, 0]


@pytest.mark.parametrize("offset", [10, -1])
def test_a_read_of_a_rewritten_file_of_the_same_size_is_an_error(index: Path, offset: int) -> None:
    rewrite(index.parent / "1.nc", offset, touched=True)
    tas = aa.open(index)["tas"]
    for _ in range(2):
        with pytest.raises(aa.IndexFileError, match=r"changed since .*written to.*'tas' in .*1\.nc.*; open the files anew"):
            tas[1, 0, 0]
    # The original file reads again.
    rewrite(index.parent / "1.nc", offset, touched=True)
    assert tas[1, 0, 0] == field([1], [10.0], [0.0])[0, 0, 0]


def test_a_changed_file_is_an_error_with_missing_fill(index: Path) -> None:
    (index.parent / "0.nc").unlink()
    tas = aa.open(index, missing="fill")["tas"]
    assert np.isnan(tas[0]).all() and tas.read(0, masked=True).mask.all() and not np.isnan(tas[1:]).any()
    with pytest.raises(aa.MissingFileError, match=r"variable 'tas' in .*0\.nc.*missing='fill'"):
        aa.open(index)["tas"][0]
    with open(index.parent / "1.nc", "ab") as file:
        file.write(b"more")
    with pytest.raises(aa.IndexFileError, match=r"1\.nc"):
        tas[1]


def test_missing_fill_applies_to_derived_arrays(index: Path) -> None:
    (index.parent / "0.nc").unlink()
    write(index.parent / "more" / "3.nc", cube([3], lons=np.arange(8000.0)))
    agg = aa.open(index, missing="fill")
    grown = agg.append(index.parent / "more")
    for tas in (grown["tas"], kept_as(grown, index.parent / "grown.idx")["tas"], agg["tas"].to_units("degC").lazy[:2]):
        assert np.isnan(tas[0]).all() and not np.isnan(tas[1]).any()
    # The option is not saved.
    with pytest.raises(aa.MissingFileError):
        aa.open(index.parent / "grown.idx")["tas"][0]


def kept_as(agg: aa.Aggregation, path: Path) -> aa.Aggregation:
    agg.save(path)
    return aa.open(path, missing="fill")


def test_missing_fill_of_large_coordinates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggarray.formats.base.SCAN_ELEMENTS", 10)
    lats = np.arange(20.0)
    content = cube([0], lats=lats)
    write(tmp_path / "a.nc", content)
    agg = save_and_open(aa.open(tmp_path / "a.nc"), tmp_path / "index.idx")
    same(agg, aa.open(tmp_path / "a.nc"))
    with open(tmp_path / "a.nc", "ab") as file:
        file.write(b"more")
    coordinate = aa.open(tmp_path / "index.idx")["tas"].coords["lat"]
    if coordinate._known is None:
        with pytest.raises(aa.IndexFileError, match=r"variable 'lat' in .*a\.nc"):
            coordinate[...]


def test_a_file_that_became_a_folder_or_a_link(index: Path) -> None:
    folder = index.parent
    shutil.move(folder / "0.nc", folder / "there.nc")
    (folder / "0.nc").symlink_to("there.nc")
    (folder / "1.nc").unlink()
    (folder / "1.nc").mkdir()
    agg = aa.open(index)
    assert agg["tas"][0, 0, 0] == 10.0
    with pytest.raises(aa.AggarrayError, match=r"1\.nc"):
        agg["tas"][1]
    assert kinds(agg)["1.nc"] in ("unreadable", "changed")
    assert "0.nc" not in kinds(agg)


def test_zarr_stores(tmp_path: Path) -> None:
    for t in range(3):
        root = zarr.open_group(tmp_path / f"{t}.zarr", mode="w", zarr_format=2 + t % 2)
        for name, (dimensions, values, attrs) in cube([t]).items():
            names = {} if t % 2 == 0 else {"dimension_names": dimensions}
            values = np.asarray(values)
            made = root.create_array(
                name, shape=values.shape, dtype=values.dtype, chunks=values.shape, fill_value=-999, **names
            )
            made[...] = values
            made.attrs.update({**attrs, **({} if t % 2 else {"_ARRAY_DIMENSIONS": list(dimensions)})})
    agg = aa.open(tmp_path / "*.zarr")
    again = save_and_open(agg, tmp_path / "index.nc")
    same(again, agg)
    assert kinds(again) == {} and kinds(again, True) == {}
    shutil.copytree(tmp_path / "0.zarr", tmp_path / "copy.zarr")
    shutil.rmtree(tmp_path / "0.zarr")
    os.rename(tmp_path / "copy.zarr", tmp_path / "0.zarr")
    same_values(aa.open(tmp_path / "index.nc")["tas"], agg["tas"])
    mark = next(tmp_path / "1.zarr" / n for n in ("zarr.json", ".zgroup") if (tmp_path / "1.zarr" / n).exists())
    mark.write_text(mark.read_text() + "   ")
    with pytest.raises(aa.IndexFileError, match=r"changed.*variable 'tas' in .*1\.zarr"):
        aa.open(tmp_path / "index.nc")["tas"][1]
    shutil.rmtree(tmp_path / "2.zarr")
    result = kinds(aa.open(tmp_path / "index.nc"))
    assert {n: k for n, k in result.items() if n != "0.zarr"} == {"1.zarr": "changed", "2.zarr": "missing"}
    assert np.isnan(aa.open(tmp_path / "index.nc", missing="fill")["tas"][2]).all()


def test_threads_read_lazy_values_of_one_index(tmp_path: Path) -> None:
    """Several threads read the same values for the first time."""
    lats = np.arange(50_000) / 1000.0
    names = [f"v{n}" for n in range(8)]
    values = {n: (("time", "lat"), np.zeros((1, len(lats)), "i1"), {"coordinates": f"a{n}"}) for n in names}
    extra = {f"a{n}": (("lat",), lats + i, {"units": "m"}) for i, n in enumerate(names)}
    write(tmp_path / "a.nc", cube([0], lats=lats, lons=[0.0], tas=None, **values, **extra))
    aa.open(tmp_path / "a.nc").save(tmp_path / "index.nc")
    for _ in range(5):
        agg = aa.open(tmp_path / "index.nc")
        errors: list[BaseException] = []

        def work(number: int, agg: aa.Aggregation = agg, errors: list[BaseException] = errors) -> None:
            try:
                name = names[number % 8]
                np.testing.assert_array_equal(agg[name].coords[f"a{name}"][...], lats + number % 8)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
