"""Names and texts from files cannot affect a terminal, shell or page: non-printing characters are escaped everywhere."""

import json
import subprocess
import sys
from pathlib import Path

import click
import h5py
import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray.cli import _common
from aggarray.scan.progress import Bar
from tests.faults.hostile import ROOT, looked_at, unborne
from tests.support.netcdf import cube, write

#: Clears the screen, writes the clipboard, sets the title, rings, moves back, reverses and hides text, ends lines.
WILD = "a\x1b[2J\x1b]52;c;eA==\x07\x1b]8;;http://x\x1b\\\x08\u202e\u200b\u2028\x85\x9b31m\r\nb<script>\"'$(x)`x`"


def wild_netcdf(path: Path, format: str) -> str:
    """Write a file with control characters in every name, as far as the format permits."""
    with netCDF4.Dataset(path, "w", format="NETCDF4" if format == "NETCDF4" else "NETCDF3_CLASSIC") as file:
        file.title = WILD
        file.createDimension("time", 3)
        for name in ("time", "v"):
            made = file.createVariable(name, "f8", ("time",))
            made[...] = np.arange(3.0)
            names = ("long_name", "standard_name", "coordinates", "cell_methods", "source_id", "calendar")
            made.setncatts({"units": f"K{WILD}", **dict.fromkeys(names, WILD)})
    if format == "NETCDF3":
        # Libraries refuse to write such names; a byte editor does not.
        path.write_bytes(path.read_bytes().replace(b"time", b"t\x1b[\r").replace(b"title", b"\x07\x08\x1b[A"))
    return str(path)


def wild_hdf5(path: Path) -> str:
    with h5py.File(path, "w") as file:
        name = WILD.replace("/", "_")
        scale = file.create_dataset("t\x1b[2J", data=np.arange(3.0))
        scale.make_scale(WILD)
        made = file.create_dataset(name, data=np.zeros(3))
        made.dims[0].attach_scale(scale)
        made.attrs.update({"units": WILD, "long_name": WILD, WILD: WILD})
        file.create_group(f"g{name}")["v\x9b31m"] = np.zeros(2)
        file["gone"] = h5py.SoftLink(WILD)
        file[f"e{name}"] = h5py.ExternalLink(WILD, WILD)
        file[f"c{name}"] = np.zeros(2, [("a", "f8")])
        file.attrs.update({"title": WILD, "\x1b[31m": 1})
    return str(path)


def wild_bytes(path: Path) -> str:
    """Write names that are not UTF-8: noise, and a lone surrogate."""
    with h5py.File(path, "w") as file:
        for name in (b"bad\xff\xfe", b"\xed\xa0\x80"):
            h5py.h5d.create(file.id, name, h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((3,)))
    return str(path)


def wild_references(path: Path) -> str:
    array = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<f8", "compressor": None, "fill_value": 0, "order": "C"}
    name = WILD.replace("/", "_")
    refs = {".zgroup": '{"zarr_format": 2}', f"{name}/.zarray": json.dumps(array), f"{name}/0": [WILD, 0, 32]}
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    return str(path)


def test_names_with_control_characters_are_escaped(tmp_path: Path) -> None:
    """In every command, error, page and representation: `unborne` checks all output."""
    folder = tmp_path / "x\x1b[2J\u202e\n"
    folder.mkdir()
    (folder / "noise").write_bytes(b"\x1b[2J" * 99)
    files = {
        "netCDF-4": wild_netcdf(folder / "a\x07.nc", "NETCDF4"),
        "netCDF-3": wild_netcdf(folder / "b\r.nc", "NETCDF3"),
        "HDF5": wild_hdf5(folder / "c\x08.h5"),
        "bytes": wild_bytes(folder / "d.h5"),
        "references": wild_references(folder / "e.json"),
        "gone": str(folder / "gone.nc"),
        "noise": str(folder / "noise"),
    }
    result = looked_at(files, tmp_path)
    assert unborne(result) == {}
    assert any("\\x1b[2J" in text for text in result["netCDF-4"].texts)


def test_errors_and_representations_are_escaped(tmp_path: Path) -> None:
    piece = aa.SubArray.from_array(np.zeros((2, 2)), dimensions=(WILD, "y"), units=WILD)
    pieces = [([(0, 2), (0, 2)], piece), ([(2, 4), (0, 2)], piece)]
    array = aa.MasterArray.from_subarrays(pieces, dimensions=(WILD, "y"), name=WILD)
    shown = [repr(array), repr(piece), repr(array.partitions), repr(aa.Aggregation((array,))), str(aa.FormatError(WILD))]
    shown += [str(aa.NotFoundError(WILD)), str(aa.ProtocolError(WILD))]
    with pytest.raises(aa.NotFoundError) as error:
        aa.Aggregation((array,))["b"]
    shown.append(str(error.value))
    assert [text for text in shown if not text.replace("\n", "").isprintable()] == []
    assert all("\\x1b[2J" in text for text in shown)


def test_bar_and_completion_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Bar()(1, 2, WILD)
    assert capsys.readouterr().err.replace("\r", "").isprintable()
    path = write(tmp_path / "a.nc", cube([1.0], tas_2m=(("time",), np.zeros(1))))
    with h5py.File(path, "a") as file:
        file["$(reboot)"], file["`id`"] = np.zeros(1), np.zeros(1)
    context = click.Context(click.Command("info"))
    context.params = {"source": (path,)}
    assert set(aa.open(path).names) >= {"$(reboot)", "`id`"}
    result = _common.variables_of(context, click.Argument(["v"]), "")
    assert result == ["tas", "tas_2m"]
    assert set(_common.dimensions_of(context, click.Argument(["v"]), "")) == {"time=", "lat=", "lon=", "dim_0="}


def test_tracebacks_are_escaped(tmp_path: Path) -> None:
    """Output of Python for an uncaught error."""
    line = f"import aggarray; aggarray.open({str(tmp_path / 'x')!r} + {WILD!r})"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, cwd=ROOT, check=False)
    said = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "aggarray.errors." in said and said.isprintable()


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_names_of_hdf5_in_another_encoding(libver: str, tmp_path: Path) -> None:
    """A scale with an undecodable name names no dimension; the rest is read."""
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file["lat"], file[b"l\xe4nge"] = np.arange(2.0), np.arange(3.0)
        tas = file.create_dataset("tas", data=np.arange(6.0).reshape(2, 3))
        for axis, name in enumerate(("lat", b"l\xe4nge")):
            file[name].make_scale()
            tas.dims[axis].attach_scale(file[name])
    agg = aa.open(tmp_path / "a.h5")
    assert agg["tas"][...].tolist() == [[0, 1, 2], [3, 4, 5]] and agg["tas"].dimensions[0] == "lat"
    ((skipped,),) = [[s for s in agg.skipped if s.variable]]
    assert skipped.variable == "l\\xe4nge" and "not UTF-8" in skipped.reason
