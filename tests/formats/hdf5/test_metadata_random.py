"""Scans without the library of files of random structure and of damaged files.

The HDF5 library crashes on some damage, so it runs in a process of its own. Bytes are changed from a fixed seed.
"""

import io
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.formats import scan
from aggarray.formats.base import Structure
from tests.formats.hdf5.test_metadata_h5py import scales
from tests.support.paths import ROOT
from tests.support.scans import check, check_against_h5py, differences, differences_from_h5py, without_library

DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "S1", "str")
NAMES = st.text("abcxyzåöñ_0- .", min_size=1, max_size=9).map(lambda name: f"n{name}".rstrip())
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
ATTRIBUTES = st.dictionaries(
    NAMES,
    st.one_of(
        *(TEXT, TEXT.map(lambda t: t * 90), st.floats(allow_nan=True), st.integers(-(2**31), 2**31 - 1)),
        st.lists(st.integers(0, 100), min_size=1, max_size=5).map(lambda v: np.array(v, "i2")),
        st.lists(TEXT.filter(bool), min_size=2, max_size=4),
    ),
    max_size=10,
)


def set_attributes(item: Any, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if isinstance(value, list):
            item.setncattr_string(name, value)
        else:
            item.setncattr(name, value)


def fill_group(draw: Callable[[Any], Any], group: Any, dimensions: dict[str, int | None], depth: int) -> None:
    """Draw the contents of a group; ``dimensions``: lengths of the usable dimensions by name."""
    dimensions = dict(dimensions)
    set_attributes(group, draw(ATTRIBUTES))
    for name in draw(st.lists(NAMES, max_size=3, unique=True)):
        dimensions[name] = draw(st.none() | st.integers(1, 5))
        group.createDimension(name, dimensions[name])
    for name in draw(st.lists(st.sampled_from([*dimensions, "a", "b", "c"]) | NAMES, max_size=5, unique=True)):
        add_variable(draw, group, name, dimensions)
    if depth:
        for name in draw(st.lists(NAMES, max_size=2, unique=True)):
            if name not in group.variables and name not in group.dimensions:
                fill_group(draw, group.createGroup(name), dimensions, depth - 1)


def add_variable(draw: Callable[[Any], Any], group: Any, name: str, lengths: dict[str, int | None]) -> None:
    dimensions = draw(st.lists(st.sampled_from(sorted(lengths)), max_size=3)) if lengths else []
    dtype = draw(st.sampled_from(DTYPES))
    kind: Any = str if dtype == "str" else dtype
    options: dict[str, Any] = {}
    if dtype != "str" and dimensions:
        options = {"zlib": draw(st.booleans()), "shuffle": draw(st.booleans()), "fletcher32": draw(st.booleans())}
    made = group.createVariable(name, kind, dimensions, **options)
    set_attributes(made, draw(ATTRIBUTES))
    made.setncattr("coordinates", draw(st.sampled_from(["", "a b", f"{name} c", *lengths])))
    made.set_auto_maskandscale(False)
    shape = tuple(lengths[d] or draw(st.integers(0, 4)) for d in dimensions)
    if draw(st.booleans()) and 0 not in shape and sum(lengths[d] is None for d in dimensions) < 2:
        values = np.random.default_rng(1).integers(48, 90, shape)
        values = values.astype("u1").view("S1") if dtype == "S1" else values.astype(object if kind is str else dtype)
        made[tuple(slice(n) for n in shape) or ...] = values.astype(str).astype(object) if kind is str else values


@given(st.data())
def test_any_structure(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("any") / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        fill_group(data.draw, file, {}, 1)
    if has_two_unlimited(path):
        check_against_h5py(path)
    else:
        check(path)


def test_partly_written_dimensions(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        file.createDimension("y", None)
        file.createVariable("v", "i1", ("x", "y"))[:, 0:1] = [[67], [69]]
        file.createVariable("u", "f4", ("x", "y"))[:, 0:1] = [[67], [69]]
        file.createVariable("w", "i1", ("y",))[0:2] = [1, 2]
        file["w"].coordinates = "v u"
    values = {v.name: v.values for v in check(tmp_path / "a.nc").variables}
    np.testing.assert_array_equal(values["v"], [[67, -127], [69, -127]])
    np.testing.assert_array_equal(values["u"], np.array([[67, 2.0**122 * 1.875], [69, 2.0**122 * 1.875]], "f4"))


def has_two_unlimited(path: Path) -> bool:
    """Return whether a variable has two unlimited dimensions, or one twice, which netCDF4 does not read reliably."""
    with netCDF4.Dataset(path) as file:

        def inside(group: Any) -> bool:
            free = [[d.name for d in v.get_dims() if d.isunlimited()] for v in group.variables.values()]
            return any(len(names) > 1 for names in free) or any(map(inside, group.groups.values()))

        return inside(file)


# Damage

_ORACLE = """
import pickle, sys
from tests.support import scans
for path in sys.stdin.read().split():
    try:
        found = getattr(scans, sys.argv[1])(path)
    except Exception as error:
        found = repr(error)
    sys.stdout.buffer.write(pickle.dumps(found))
    sys.stdout.buffer.flush()
"""


def scan_in_process(oracle: str, paths: list[str]) -> list[Structure | str]:
    """Return the scans of files by an oracle of `scans`: an error as text, "crash" if the oracle crashes."""
    result: list[Structure | str] = []
    while len(result) < len(paths):
        rest = "\n".join(paths[len(result) :]).encode()
        done = subprocess.run([sys.executable, "-c", _ORACLE, oracle], cwd=ROOT, input=rest, capture_output=True, check=False)
        answers = io.BytesIO(done.stdout)
        while answers.tell() < len(done.stdout):
            result.append(pickle.load(answers))
        if len(result) < len(paths):
            result.append("crash")
    return result


def new(path: Path) -> None:
    with netCDF4.Dataset(path, "w") as file:
        file.title = "damaged"
        file.createDimension("t", None)
        file.createDimension("x", 3)
        file.createVariable("t", "f8", ("t",), zlib=True)[:] = [1, 2, 3]
        file.createVariable("x", str, ("x",))[:] = np.array(["a", "b", "ccc"], object)
        file.createVariable("v", "f4", ("t", "x"), fill_value=2)[:] = 1
        file["v"].setncatts({f"attribute {n}": "text" for n in range(12)})
        file["v"].coordinates = "t x"


def old(path: Path) -> None:
    with h5py.File(path, "w", libver="earliest") as file:
        scales(file)


def old_groups(path: Path) -> None:
    with h5py.File(path, "w", libver="earliest", userblock_size=512) as file:
        scales(file.create_group("g"), compression="gzip")


def latest(path: Path) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        scales(file, compression="gzip")


@pytest.mark.parametrize("write", [new, old, old_groups, latest])
def test_damaged_files(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "whole.nc")
    raw = (tmp_path / "whole.nc").read_bytes()
    whole = check(tmp_path / "whole.nc")
    chance = random.Random(20)
    accepted: dict[str, Structure] = {}
    for number in range(400):
        damaged = bytearray(raw)
        at = chance.randrange(len(raw))
        damaged[at] = chance.choice([damaged[at] ^ 1 << chance.randrange(8), chance.randrange(256), 0, 255])
        path = tmp_path / f"{number}.nc"
        path.write_bytes(damaged)
        result = without_library(path)
        if result is not None:
            accepted[str(path)] = result
    assert len(accepted) < 400
    paths = list(accepted)
    by_netcdf4 = dict(zip(paths, scan_in_process("by_netcdf4", paths), strict=True))
    # h5py may read or report files that netCDF4 refuses, crashes on or silently shortens.
    left = [path for path in paths if isinstance(by_netcdf4[path], str) or accepted[path].skipped]
    by_h5py = dict(zip(left, scan_in_process("by_h5py", left), strict=True))
    for path, result in accepted.items():
        expected = by_h5py.get(path, by_netcdf4[path])
        if isinstance(expected, str):
            # HDF5 fails on a structure that a scan does not need.
            assert {d.partition(":")[0] for d in differences(result, whole)} == {"uri"}, (path, expected)
        else:
            told = differences_from_h5py(result, expected) if path in by_h5py else list(differences(result, expected))
            assert not told, (path, told)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    new(path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"attribute 3") + 3] ^= 1
    path.write_bytes(raw)
    assert without_library(path) is None
    with pytest.raises(Exception, match=r"a\.nc"):
        scan(path)
