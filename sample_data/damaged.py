"""A chapter of the demonstration: damaged, truncated and replaced files raise errors, and other files stay readable."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

import aggarray as aa
from sample_data.output import HERE, check, show


def damaged() -> None:
    """Damage copies of the archive, each in one way."""
    show("Damage: the right values, or an error that says where")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "archive"
        shutil.copytree(HERE / "archive", folder)
        before, index = aa.open(folder), Path(name) / "tas.nca"
        april = before["tas"].sel(time="2001-04")[:]
        before.save(index)
        _flip(folder / "tas_200101.nc")
        _cut(folder / "tas_200103.nc")
        rest = aa.open(folder)
        flipped = _message(rest["tas"].sel(time="2001-01").read)
        truncated = _message(aa.open(index)["tas"].sel(time="2001-03").read)
        for text in (flipped, truncated):
            print(f"  {text.replace(name, '...')}\n")
        where = ("chunk [0, 0, 0]", "variable 'tas' in", "tas_200101.nc")
        check(
            all(part in flipped for part in where), "a flipped bit in a compressed chunk raises an error that names the chunk"
        )
        check("tas_200103.nc" in truncated, "a truncated file of an index raises an error that names the file")
        check(np.array_equal(aa.open(index)["tas"].sel(time="2001-04")[:], april), "intact months have their values")
        check(
            any("tas_200103.nc" in s.file for s in rest.skipped),
            "opened anew, the truncated file is listed as skipped, and the others join",
        )
        print("\n  docs/reliability.md lists what is promised, and the test of each promise.\n")


def _message(work: Callable[[], object]) -> str:
    """Return the message of the error that a call raises."""
    try:
        work()
    except aa.AggarrayError as error:
        return str(error)
    return "no error"


def _flip(path: Path) -> None:
    """Flip a bit in the middle of the first chunk of an HDF5 file."""
    with h5py.File(path) as file:
        chunk = file["tas"].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset + chunk.size // 2] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)
