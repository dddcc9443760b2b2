"""Specimens of rare HDF5 and netCDF-4 features that are left to the libraries completely or in part.

Registered in `specimens.SPECIMENS`, each in the oldest version of HDF5, which has no checksums, and in the newest.
"""

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np

from tests.faults.specimens import SHAPE, specimen, values
from tests.support.netcdf import TAS

_VERSIONS = ("earliest", "latest")


def _both(name: str) -> list[tuple[str, dict[str, Any]]]:
    return [(f"hdf5-{name}-{version}", {"version": version}) for version in _VERSIONS]


@specimen(*_both("no-scales"))
def _no_scales(folder: Path, version: str) -> str:
    """Write a typical h5py file: no scales, string attributes."""
    path = folder / "a.h5"
    with h5py.File(path, "w", libver=version) as file:
        file.attrs["title"] = "plain"
        made = file.create_dataset("tas", data=values(), chunks=(1, 2, 5), shuffle=True, compression=4)
        made.attrs.update(TAS)
        made.attrs["flags"], made.attrs["texts"] = np.arange(3, dtype="i2"), ["a", "bb", "ccc"]
        file["whole"] = np.arange(6.0)
        file["scalar"] = 3.5
        file["fixed"] = np.array([b"ab", b"cde", b"f"])
    return str(path)


@specimen(*_both("types"))
def _types(folder: Path, version: str) -> str:
    """Write one dataset and one attribute for each of many types."""
    path = folder / "a.h5"
    with h5py.File(path, "w", libver=version) as file:
        pair = np.dtype([("a", "i4"), ("b", "f8", (2,))])
        file["committed"] = np.dtype("f4")
        kinds: dict[str, Any] = {
            "compound": np.zeros(3, pair),
            "boolean": np.array([True, False]),
            "half": np.arange(4, dtype="f2"),
            "big": np.arange(4, dtype=">i8"),
            "complex": np.arange(3) * 1j,
            "opaque": np.array([b"ab", b"cd"], "V2"),
            "unsigned": np.arange(3, dtype="u1"),
            "nothing": h5py.Empty("f4"),
            "no_rows": np.zeros((0, 3)),
        }
        for name, data in kinds.items():
            file[name] = data
            file.attrs[name] = data
        enum = h5py.enum_dtype({"RED": 0, "GREEN": 1}, basetype="i2")
        file.create_dataset("enum", data=np.array([0, 1], "i2"), dtype=enum)
        file.create_dataset("of_committed", data=np.arange(3.0), dtype=file["committed"])
        file.create_dataset("array", (2,), np.dtype(("i4", (3,))))[...] = np.arange(6).reshape(2, 3)
        file.create_dataset("references", data=[file["big"].ref, file["half"].ref], dtype=h5py.ref_dtype)
        file["big"].attrs["where"] = file["half"].ref
    return str(path)


@specimen(*_both("rows"))
def _rows(folder: Path, version: str) -> str:
    """Write variable-length sequences and strings, contiguous and chunked."""
    path = folder / "a.h5"
    with h5py.File(path, "w", libver=version) as file:
        made = file.create_dataset("rows", (4,), h5py.vlen_dtype("i4"))
        chunked = file.create_dataset("chunked", (4,), h5py.vlen_dtype("f8"), chunks=(2,), compression="gzip")
        for i in range(4):
            made[i], chunked[i] = np.arange(i), np.arange(i + 1.0)
        file["texts"] = ["one", "two", "a long text of many characters"]
        file.create_dataset("many", data=["x" * i for i in range(12)], chunks=(5,), compression="gzip", shuffle=True)
        file["rows"].attrs["units"] = "m"
    return str(path)


@specimen(*_both("links"))
def _links(folder: Path, version: str) -> str:
    """Write nested groups, soft links, hard links, comments, a fill value and datasets without values."""
    path = folder / "a.h5"
    with h5py.File(path, "w", libver=version) as file:
        inner = file.create_group("a/b/c")
        inner["data"] = np.arange(5.0)
        inner.attrs["note"] = "deep"
        file["soft"], file["twice"] = h5py.SoftLink("/a/b/c/data"), inner["data"]
        file["dangling"] = h5py.SoftLink("/nowhere")
        file.create_dataset("unwritten", (4, 6), "i4", chunks=(2, 3), fillvalue=7)
        file.create_dataset("partly", (8,), "f4", chunks=(2,), maxshape=(None,), fillvalue=-1.0)[2:5] = 1
        file["a"].id.set_comment(b".", b"a comment")
    return str(path)


@specimen(*_both("virtual"))
def _virtual(folder: Path, version: str) -> str:
    """Write a virtual dataset with sources in the same file, and a chunked dataset without chunks."""
    path = folder / "a.h5"
    with h5py.File(path, "w", libver=version) as file:
        layout = h5py.VirtualLayout((2, 5), "f8")
        for i in range(2):
            file[f"part_{i}"] = np.arange(5.0) + i
            layout[i] = h5py.VirtualSource(".", f"part_{i}", (5,))
        file.create_virtual_dataset("joined", layout, fillvalue=-1)
        file["joined"].attrs["units"] = "m"
    return str(path)


@specimen(*_both("scales"))
def _scales(folder: Path, version: str) -> str:
    """Write scales with labels, two scales of one dimension, and dimensions without scales."""
    path = folder / "a.h5"
    with h5py.File(path, "w", libver=version) as file:
        made = file.create_dataset("tas", data=values(), chunks=(2, 2, 5), maxshape=(None, None, 5))
        made.attrs.update(TAS)
        for name, axis in (("time", 0), ("step", 0), ("lon", 2)):
            file[name] = np.arange(float(SHAPE[axis]))
            file[name].make_scale(name)
            made.dims[axis].attach_scale(file[name])
        for axis, label in enumerate("tyx"):
            made.dims[axis].label = label
        file.create_dataset("grown", (0, 3), "f4", maxshape=(None, 3), chunks=(1, 3))
    return str(path)


@specimen(("netcdf4-types", {}))
def _netcdf4_types(folder: Path) -> str:
    """Write user-defined types, string attributes, and groups with their own dimensions."""
    path = folder / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.setncattr_string("titles", ["one", "two"])
        file.createDimension("x", 3)
        file.createDimension("time", None)
        pair = file.createCompoundType(np.dtype([("a", "i4"), ("b", "f8")]), "pair")
        color = file.createEnumType("i1", "color", {"RED": 0, "GREEN": 1})
        file.createVariable("pairs", pair, ("x",))[:] = np.zeros(3, [("a", "i4"), ("b", "f8")])
        file.createVariable("colors", color, ("x",), fill_value=0)[:] = np.array([0, 1, 0], "i1")
        file.createVariable("name", str, ("x",))[:] = np.array(["a", "bb", "ccc"], object)
        file.createVariable("letters", "S1", ("x",))[:] = np.array([b"a", b"b", b"c"])
        file.createVariable("twice", "f4", ("time", "x"))[:] = np.arange(6.0).reshape(2, 3)
        inner = file.createGroup("inner")
        inner.createDimension("x", 2)
        inner.createVariable("x", "f8", ("x",))[:] = [1, 2]
        inner.createVariable("lonely", "f8", ("x",)).units = "m"
        file.createVariable("single", "f8", ())[...] = 3
    return str(path)


@specimen(("netcdf4-growing-twice", {}))
def _netcdf4_growing_twice(folder: Path) -> str:
    """Write two unlimited dimensions, one of them extended by another variable."""
    path = folder / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("height", None)
        file.createVariable("tas", "f4", ("time", "height"), zlib=True)[:2, :3] = np.arange(6.0).reshape(2, 3)
        file.createVariable("level", "f8", ("height",))[:5] = np.arange(5.0)
        file.createVariable("time", "f8", ("time",))[:4] = np.arange(4.0)
        file["time"].units = "days since 2000-01-01"
    return str(path)
