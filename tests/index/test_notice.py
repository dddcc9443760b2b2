"""The comment of an index, which says how to open it to software that finds no values in it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import aggarray as aa
from tests.support.index_files import same
from tests.support.netcdf import cube, write

NOTICE = 'open with engine="aggarray" or {} aggregation software'
CONVENTIONS = ("CF-1.13", "CFA-0.4")


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("comment", [None, "", "monthly means; 2nd version", "two\nlines", np.int32(3)])
def test_a_comment_says_how_to_open_an_index(tmp_path: Path, convention: str, comment: Any) -> None:
    attrs = {"title": "a", **({} if comment is None else {"comment": comment})}
    for step in range(2):
        write(tmp_path / "data" / f"{step}.nc", cube([step]), attrs)
    agg, path = aa.open(tmp_path / "data"), tmp_path / "index.nca"
    agg.save(path, convention=convention)
    notice = NOTICE.format(convention)
    expected = {None: notice, "": notice}.get(comment, f"{comment}; {notice}" if isinstance(comment, str) else comment)
    for _ in range(2):
        with netCDF4.Dataset(path) as file:
            assert file.comment == expected and file.ncattrs()[-2:] == ["Conventions", "comment"]
        again = aa.open(path)
        same(again, agg)
        assert again["tas"].file_attrs == agg["tas"].file_attrs == {**attrs}
        again.append(tmp_path / "data").save(path, convention=convention)


def test_other_indexes_are_read_without_the_notice(tmp_path: Path) -> None:
    """Also an index that another program copied without the group of aggarray."""
    for step in range(2):
        write(tmp_path / f"{step}.nc", cube([step]), {"comment": "of the data"})
    aa.open([tmp_path / "0.nc", tmp_path / "1.nc"]).save(tmp_path / "index.nca", relative=False)
    with netCDF4.Dataset(tmp_path / "index.nca") as source, netCDF4.Dataset(tmp_path / "copy.nc", "w") as copy:
        copy.setncatts(source.__dict__)
        for name, dimension in source.dimensions.items():
            copy.createDimension(name, len(dimension))
        for name, variable in source.variables.items():
            made = copy.createVariable(name, variable.dtype, variable.dimensions)
            made.setncatts({k: v for k, v in variable.__dict__.items() if k != "_FillValue"})
            made[...] = variable[...]
    array = aa.open(tmp_path / "copy.nc")["tas"]
    assert array.file_attrs["comment"] == "of the data" and array.shape == (2, 3, 2)
    aa.open(tmp_path / "copy.nc").save(tmp_path / "again.nca")
    with netCDF4.Dataset(tmp_path / "again.nca") as file:
        assert file.comment == f"of the data; {NOTICE.format('CF-1.13')}"


def test_xarray_shows_the_notice_without_the_engine(tmp_path: Path) -> None:
    aa.open(write(tmp_path / "a.nc", cube([0]), {f"attribute_{n}": n for n in range(40)})).save(tmp_path / "a.nca")
    with xr.open_dataset(tmp_path / "a.nca") as plain:
        assert 'comment:       open with engine="aggarray"' in repr(plain)
    assert "comment" not in xr.open_dataset(tmp_path / "a.nca", engine="aggarray").attrs


def test_xarray_finds_the_engine_where_it_asks(tmp_path: Path) -> None:
    """xarray asks the engines of netCDF first, unless their order is empty."""
    aa.open(write(tmp_path / "a.nc", cube([0]))).save(tmp_path / "index.nca")
    script = """
import sys, xarray as xr
xr.set_options(netcdf_engine_order=())
index, data = (xr.open_dataset(path) for path in sys.argv[1:])
print(index["tas"].shape, index.attrs, data["tas"].shape, "aggarray" in str(type(data["tas"].variable._data)))
"""
    command = [sys.executable, "-c", script, str(tmp_path / "index.nca"), str(tmp_path / "a.nc")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "(1, 3, 2) {} (1, 3, 2) False\n"), done.stderr
