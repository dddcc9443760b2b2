"""A chapter of the demonstration: valid files of other programs with unusual names, units and types."""

import tempfile
from pathlib import Path

import h5py
import numpy as np

import aggarray as aa
from aggarray.display.table import table
from sample_data.output import check, show


def foreign() -> None:
    """Run the chapter."""
    show("Files of other programs: dimensions that hide, differences of temperature, types of their own")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_hidden(folder / "hidden.nc")
        _write_spread(folder / "spread_1.nc", "K", [0.0, 1.0])
        _write_spread(folder / "spread_2.nc", "degC", [2.0, 3.0])
        _write_types(folder / "types.h5")
        hidden, spread = aa.open(folder / "hidden.nc"), aa.open(sorted(folder.glob("spread_*.nc")))["tas"]
        types = aa.open(folder / "types.h5")
        rows = [[str(a.name), a.shape, ", ".join(a.coords), a.units or ""] for a in (*hidden, spread, *types)]
        print(table(rows, ["array", "shape", "coordinates", "units"]))
        print("\nskipped:", *(f"  {s.variable}: {s.reason}" for s in types.skipped), sep="\n")
        v = hidden["region/v"]
        check(v.coords["y"][:].tolist() == [0, 10, 20, 30], "region/v lies along /y, though its group has a y of its own")
        check(spread[:].tolist() == [1.5] * 4, "standard deviations in K and degC join without an offset")
        check(types["depth"][:].tolist() == [1, 2, 3], "a compound type is listed in skipped, the rest of its file is read")


def _write_hidden(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for where, size, step in (("x", 2, 1), ("y", 4, 10), ("region/y", 3, 1)):
            file[where] = np.arange(size) * float(step)
            file[where].make_scale(where[-1])
        for name, y in (("v", "y"), ("w", "region/y")):
            made = file.create_dataset(f"region/{name}", data=np.zeros((2, len(file[y]))))
            made.dims[0].attach_scale(file["x"])
            made.dims[1].attach_scale(file[y])


def _write_spread(path: Path, units: str, days: list[float]) -> None:
    with h5py.File(path, "w") as file:
        file["time"] = days
        file["time"].make_scale("time")
        file["time"].attrs["units"] = "days since 2000-01-01"
        file["tas"] = np.full(len(days), 1.5)
        file["tas"].dims[0].attach_scale(file["time"])
        about = {"cell_methods": "time: standard_deviation", "standard_name": "air_temperature"}
        file["tas"].attrs.update({"units": units, **about})


def _write_types(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["depth"] = np.array([1, 2, 3], h5py.enum_dtype({"shallow": 1, "middle": 2, "deep": 3}, "u1"))
        file["pairs"] = np.zeros(2, [("a", "f4"), ("b", "i4")])
        file.create_dataset("label", (3,), "S2", fillvalue=b"ab")
