"""A chapter of the demonstration: damaged, truncated and replaced files raise errors, and other files stay readable."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

import aggarray as aa
from sample_data.telling import HERE, check, show


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
        said = [_said(rest["tas"].sel(time="2001-01").read), _said(aa.open(index)["tas"].sel(time="2001-03").read)]
        for text in said:
            print(f"  {text.replace(name, '...')}\n")
        check("tas_200101.nc, variable 'tas': chunk [0, 0, 0]" in said[0], "a bit that flipped in a compressed chunk is told")
        check("tas_200103.nc" in said[1], "a file of an index that was cut short is told")
        check(np.array_equal(aa.open(index)["tas"].sel(time="2001-04")[:], april), "months that are whole have their values")
        check(
            any("tas_200103.nc" in s.file for s in rest.skipped),
            "opened anew, the file that is short is listed, the others join",
        )
        print("\n  docs/reliability.md lists what is promised, and the test of each promise.\n")


def _said(work: Callable[[], object]) -> str:
    try:
        work()
    except aa.AggarrayError as error:
        return str(error)
    return "nothing was said"


def _flip(path: Path) -> None:
    """Flip a bit in the middle of the first chunk of an HDF5 file."""
    with h5py.File(path) as file:
        chunk = file["tas"].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset + chunk.size // 2] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)
