"""Files truncated at every length in the header, and at many others.

Reads return the original values if none of them is missing, or raise one error that names the file. They never crash, hang,
raise an exception of another package, or return values that were not written.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import aggarray as aa
from aggarray.formats.netcdf3.header import header_of
from aggarray.index import end_of_hdf5
from aggarray.storage.byte_source import open_source
from tests.faults.running import cuts, faults_in, outcomes
from tests.support.examples import examples


def test_truncated_files(group: list[str], tmp_path: Path) -> None:
    few = max(1, examples(400) // len(group))
    cases = [case for path in group for case in list(cuts(path, 8, 1 + few // 20, 1))[:few]]
    result = outcomes(tmp_path, cases)
    assert not faults_in(result)
    assert len(result) == len(cases)
    # Truncated text may be valid text, and a store without attributes a valid store: all other damage is detected.
    wrong = [
        one for one in result if one.kind == "wrong" and not one.case[1].endswith((".json", ".zattrs", ".zgroup", ".zarray"))
    ]
    assert not wrong
    assert sum(one.kind == "error" for one in result) > len(result) / 2


@pytest.mark.heavy
def test_every_header_length(made: Callable[[str], str], tmp_path: Path) -> None:
    paths = [made(name) for name in ("netcdf3-records-CLASSIC", "netcdf3-64BIT_DATA", "hdf5-deflate-earliest", "index")]
    # An index that lost only its directory, which lies behind the HDF5 file, is read without it.
    content, index = Path(paths.pop()).read_bytes(), tmp_path / "index.nca"
    index.write_bytes(content[: end_of_hdf5(content)])
    paths.append(str(index))
    cases = [case for path in paths for case in cuts(path, examples(120), 5, 2)]
    result = outcomes(tmp_path, cases)
    assert not faults_in(result)
    assert {one.kind for one in result} == {"error"}


@pytest.mark.parametrize("name", ["netcdf3-CLASSIC", "netcdf3-64BIT_DATA"])
def test_missing_ends_raise_on_opening(made: Callable[[str], str], tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.nc"
    shutil.copy(made(name), path)
    os.truncate(path, path.stat().st_size - 40)
    with pytest.raises(aa.FormatError, match=r"truncated: its values end at byte \d+.*variable '\w+' in .*a\.nc"):
        aa.open(path)


@pytest.mark.parametrize("where", ["header", "other"])
def test_overlapping_values_raise(made: Callable[[str], str], tmp_path: Path, where: str) -> None:
    path = tmp_path / "a.nc"
    shutil.copy(made("netcdf3-CLASSIC"), path)
    first, second, *_ = sorted(place.begin for place in header_of(str(path), open_source(str(path))).locations)
    whole = path.read_bytes()
    begin = 16 if where == "header" else first
    path.write_bytes(whole.replace(second.to_bytes(4, "big"), begin.to_bytes(4, "big"), 1))
    with pytest.raises(aa.FormatError, match=r"damaged netCDF-3 header .* begin at byte \d+, before the end of.*a\.nc"):
        aa.open(path)


def test_truncated_hdf5_says_what_to_do(made: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    shutil.copy(made("hdf5-deflate-earliest"), path)
    os.truncate(path, path.stat().st_size - 40)
    with pytest.raises(aa.FormatError, match=r"^truncated: its data end at byte \d+.* \(.*a\.h5\); fetch or write it again$"):
        aa.open(path)
